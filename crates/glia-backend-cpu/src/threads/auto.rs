//! How many threads to use: the physical cores among the processors that the process may run on, and no more than a
//! container's quota.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;

/// Threads for a request; 0 asks for as many as the machine gives this process.
///
/// A request beyond twice the usable processors (at least 8) is cut to that: more threads only take turns.
pub(crate) fn resolve(requested: usize) -> usize {
    // Affinity masks and cgroup quotas are part of what the standard library reports.
    let usable = std::thread::available_parallelism().map_or(1, NonZero::get);
    match requested {
        0 => default(usable, allowed().as_ref(), &topology()),
        n => n.min(usable.saturating_mul(2).max(8)),
    }
}

/// A processor as the system lists it: two hardware threads of one core share its arithmetic units.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Processor {
    number: u32,
    /// Package and core within it; `None` where the system does not tell.
    core: Option<(String, String)>,
}

/// The threads to use of `usable` processors: one for each core of those in `allowed` (all, where that is not known). A
/// mask that holds one thread of each core, or both of some, is counted as it is.
fn default(usable: usize, allowed: Option<&BTreeSet<u32>>, processors: &[Processor]) -> usize {
    let ours = processors
        .iter()
        .filter(|p| allowed.is_none_or(|mask| mask.contains(&p.number)));
    let cores: Option<BTreeSet<_>> = ours.map(|p| p.core.as_ref()).collect();
    match cores {
        Some(cores) if !cores.is_empty() => cores.len().min(usable).max(1),
        _ => usable.max(1),
    }
}

/// The processors of `/sys/devices/system/cpu`.
fn topology() -> Vec<Processor> {
    let entries = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let processor = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?;
        let topology = entry.path().join("topology");
        let read = |file: &str| fs::read_to_string(topology.join(file)).ok();
        let core = read("physical_package_id").zip(read("core_id"));
        Some(Processor { number, core })
    };
    entries.filter_map(processor).collect()
}

/// The processors that this thread may run on.
fn allowed() -> Option<BTreeSet<u32>> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    allowed_in(&status)
}

/// The mask in a `status` file of `/proc`.
fn allowed_in(status: &str) -> Option<BTreeSet<u32>> {
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    numbers(list.trim())
}

/// A list such as `0-3,8,10-11`; `None` when it is something else.
fn numbers(list: &str) -> Option<BTreeSet<u32>> {
    /// More processors than any machine has.
    const MOST: u32 = 1 << 16;
    let mut all = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors by number, package and core.
    fn machine(cores: &[(u32, u32, u32)]) -> Vec<Processor> {
        let processor = |&(number, package, core): &(u32, u32, u32)| Processor {
            number,
            core: Some((package.to_string(), core.to_string())),
        };
        cores.iter().map(processor).collect()
    }

    #[test]
    fn any_request_gives_a_sane_count() {
        assert!(resolve(0) >= 1);
        assert_eq!(resolve(1), 1);
        assert_eq!(resolve(3), 3);
        assert!(resolve(10_000) <= std::thread::available_parallelism().map_or(1, NonZero::get) * 2 + 8);
    }

    #[test]
    fn masks_are_read_as_the_system_writes_them() {
        let of = |list: &str| numbers(list).map(|all| all.into_iter().collect::<Vec<_>>());
        assert_eq!(of("0"), Some(vec![0]));
        assert_eq!(of("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        for odd in ["", "3-1", "a", "0-", "0,,1", "0-4294967295", "-1"] {
            assert_eq!(of(odd), None, "{odd}");
        }
        let status = "Name:\tglia\nCpus_allowed:\tff\nCpus_allowed_list:\t1,3\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_in(status), Some(BTreeSet::from([1, 3])));
        assert_eq!(allowed_in("Name:\tglia\n"), None);
    }

    #[test]
    fn cores_are_counted_within_the_mask() {
        // Two packages of two cores of two threads; the second threads are numbered behind all first ones.
        let cores = [0, 1].map(|thread| {
            [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(package, core)| (thread * 4 + package * 2 + core, package, core))
        });
        let all = machine(cores.as_flattened());
        // Mask, usable processors by mask and quota, threads.
        let cases = [
            (Some("0-7"), 8, 4),
            (None, 8, 4),
            (Some("0-3"), 4, 4),
            // Both threads of one core are one.
            (Some("0,4"), 2, 1),
            (Some("0-1,4-5"), 4, 2),
            (Some("3"), 1, 1),
            // A quota of two or three processors.
            (Some("0-7"), 2, 2),
            (Some("0-7"), 3, 3),
            (Some("0,4"), 1, 1),
            // A mask of none that are known.
            (Some("40-41"), 2, 2),
        ];
        for (mask, usable, expected) in cases {
            let mask = mask.map(|m| numbers(m).unwrap());
            assert_eq!(
                default(usable, mask.as_ref(), &all),
                expected,
                "{mask:?} of {usable} usable"
            );
        }
    }

    #[test]
    fn where_cores_are_not_told_processors_count() {
        let mut some = machine(&[(0, 0, 0), (1, 0, 0)]);
        assert_eq!(default(2, None, &some), 1);
        some[1].core = None;
        assert_eq!(default(2, None, &some), 2);
        assert_eq!(default(3, None, &[]), 3);
        assert_eq!(default(0, None, &[]), 1);
    }
}
