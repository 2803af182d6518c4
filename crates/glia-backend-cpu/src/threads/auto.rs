//! How many threads to use: physical cores, narrowed by affinity and container quota.

use std::fs;
use std::num::NonZero;

/// Threads for a request; 0 asks for as many as the machine gives this process.
///
/// A request beyond twice the usable processors (at least 8) is cut to that: more threads only take turns.
pub(crate) fn resolve(requested: usize) -> usize {
    // Affinity masks and cgroup quotas are part of what the standard library reports.
    let usable = std::thread::available_parallelism().map_or(1, NonZero::get);
    match requested {
        0 => physical_cores().map_or(usable, |cores| cores.min(usable)).max(1),
        n => n.min(usable.saturating_mul(2).max(8)),
    }
}

/// Physical cores, where the system tells: two hardware threads of one core share its arithmetic units.
fn physical_cores() -> Option<usize> {
    let mut cores = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let name = entry.file_name();
        let is_cpu = name
            .to_str()?
            .strip_prefix("cpu")
            .is_some_and(|n| n.parse::<u32>().is_ok());
        if !is_cpu {
            continue;
        }
        let topology = entry.path().join("topology");
        let read = |file: &str| {
            fs::read_to_string(topology.join(file))
                .ok()
                .map(|s| s.trim().to_owned())
        };
        if let (Some(package), Some(core)) = (read("physical_package_id"), read("core_id")) {
            cores.push((package, core));
        }
    }
    cores.sort();
    cores.dedup();
    (!cores.is_empty()).then_some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_request_gives_a_sane_count() {
        assert!(resolve(0) >= 1);
        assert_eq!(resolve(1), 1);
        assert_eq!(resolve(3), 3);
        assert!(resolve(10_000) <= std::thread::available_parallelism().map_or(1, NonZero::get) * 2 + 8);
    }
}
