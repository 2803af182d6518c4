//! What the control groups of Linux leave this process: the limits of its own group and of those around it.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one version of control groups.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Fields of `memory.stat`: pages of files, which are given back when memory is wanted.
    cached: [&'static str; 2],
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_active_file", "total_inactive_file"],
};

const V2: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    cached: ["active_file", "inactive_file"],
};

/// Bytes that are left; `None` where no group has a limit.
pub(crate) fn available_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    left(Path::new("/sys/fs/cgroup"), &groups)
}

/// `groups` is a line per hierarchy: its number, its controllers, the group's path in it.
fn left(root: &Path, groups: &str) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mounts, names) = match controllers {
            "" => (vec![root.to_owned(), root.join("unified")], &V2),
            list if list.split(',').any(|c| c == "memory") => (vec![root.join("memory"), root.join(list)], &V1),
            _ => continue,
        };
        for mount in mounts {
            // In a container the path may be the host's, of which only the root is mounted.
            for folder in within(&mount, group) {
                least = least.into_iter().chain(left_in(&folder, names)).min();
            }
        }
    }
    least
}

/// The group's folder and those around it, up to the mount itself.
fn within(mount: &Path, group: &str) -> Vec<PathBuf> {
    let group = Path::new(group.trim_start_matches('/'));
    let is_plain = group.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    // What lies outside the mount is written with `..`, and not seen.
    let around = group.ancestors().filter(|_| is_plain).map(|part| mount.join(part));
    around.chain([mount.to_owned()]).collect()
}

fn left_in(folder: &Path, names: &Names) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // Without a limit version 2 says `max`, version 1 a number beyond any memory.
    let limit = number(names.limit)?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
        fields.find(|(n, _)| *n == name)?.1.trim().parse().ok()
    };
    let cached = names.cached.iter().filter_map(|name| field(name));
    let cached = cached.fold(0, u64::saturating_add);
    let used = number(names.used).unwrap_or(0).saturating_sub(cached);
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is gone at the end.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let root = std::env::temp_dir().join(format!("glia-cgroup-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Root(root)
        }

        fn put(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_tightest_group_around_counts() {
        let root = Root::new("v2");
        assert_eq!(left(&root.0, "0::/a/b\n"), None);
        root.put("memory.max", "max\n");
        root.put("a/memory.max", "1000\n");
        root.put("a/memory.current", "600\n");
        root.put(
            "a/memory.stat",
            "anon 300\nactive_file 100\ninactive_file 150\nslab 9\n",
        );
        root.put("a/b/memory.max", "max\n");
        assert_eq!(left(&root.0, "0::/a/b\n"), Some(650));
        root.put("a/b/memory.max", "500\n");
        assert_eq!(left(&root.0, "0::/a/b\n"), Some(500));
        // In a container: its own group is the mount's root.
        root.put("memory.max", "70\n");
        assert_eq!(left(&root.0, "0::/host/path\n"), Some(70));
        assert_eq!(left(&root.0, "0::/../other\n"), Some(70));
    }

    #[test]
    fn the_older_version_has_other_names() {
        let root = Root::new("v1");
        let groups = "9:name=systemd:/\n4:memory:/job\n1:cpu,cpuacct:/\n0::/\n";
        root.put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert!(left(&root.0, groups).is_some_and(|n| n > 1 << 60));
        root.put("memory/job/memory.limit_in_bytes", "1000\n");
        root.put("memory/job/memory.usage_in_bytes", "1200\n");
        root.put(
            "memory/job/memory.stat",
            "total_active_file 1\ntotal_inactive_file 199\n",
        );
        assert_eq!(left(&root.0, groups), Some(0));
    }

    #[test]
    fn what_is_no_list_of_groups_limits_nothing() {
        let root = Root::new("odd");
        root.put("memory.max", "many\n");
        for groups in ["", "\n", "0", "0:", "::", "x:y:z\n\u{1F600}", "0::/a\n"] {
            assert_eq!(left(&root.0, groups), None, "{groups:?}");
        }
    }
}
