//! How much memory this process may still take.

/// Bytes that are free to this process: the least of the system's available memory, the cgroup's limit and the limit on
/// address space. `None` where the system does not say.
pub(crate) fn available_bytes() -> Option<u64> {
    let limits = [meminfo(), cgroup(), address_space()];
    limits.into_iter().flatten().min()
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

fn meminfo() -> Option<u64> {
    kib_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn cgroup() -> Option<u64> {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/sys/fs/cgroup/{name}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current").unwrap_or(0)))
}

fn address_space() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|l| l.starts_with("Max address space"))?;
    let limit = line.split_whitespace().nth(3)?.parse::<u64>().ok()?;
    let used = kib_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmSize:").unwrap_or(0);
    Some(limit.saturating_sub(used))
}
