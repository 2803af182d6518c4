//! What Vulkan needs of a machine: the loader, a driver, and the file that names the driver. Bare containers with a GPU
//! lack some of them, so the missing ones are carried or written, and used only then.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The loader, which the programs open by this name.
pub const LOADER: &str = "libvulkan.so.1";

/// Libraries to carry: the loader, and what NVIDIA's driver links to. All but the first may be missing.
pub const CARRIED: &[&str] = &[
    LOADER,
    "libX11.so.6",
    "libXext.so.6",
    "libxcb.so.1",
    "libXau.so.6",
    "libXdmcp.so.6",
    "libbsd.so.0",
    "libmd.so.0",
    "libGLdispatch.so.0",
];

/// NVIDIA's driver, by the names under which it is installed. The second needs no X11.
const DRIVERS: &[&str] = &["libGLX_nvidia.so.0", "libEGL_nvidia.so.0"];

/// Where the dynamic linker looks without being told.
const LINKED: &[&str] = &[
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// Where containers are given drivers, and the linker is not told.
const APART: &[&str] = &["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/nvidia"];

/// Where the loader looks for files that name drivers.
const NAMED: &[&str] = &[
    "/etc/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "/usr/local/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
];

/// Where containers are given such files, and the loader is not told.
const NAMED_APART: &[&str] = &["/usr/local/nvidia/share/vulkan/icd.d"];

/// Files that a system with a GPU has.
const DEVICES: &[&str] = &["/dev/nvidiactl", "/dev/nvidia0", "/dev/dri", "/dev/kfd"];

/// What a machine has.
#[derive(Debug, Default)]
pub struct Machine {
    /// Folders of libraries that the linker looks into.
    linked: Vec<PathBuf>,
    /// Libraries that the linker knows beside those, as `ldconfig -p` lists them.
    cached: Vec<PathBuf>,
    /// Folders of libraries that it does not look into.
    apart: Vec<PathBuf>,
    /// Files that name drivers and that the loader reads.
    named: Vec<PathBuf>,
    /// Such files that it does not read.
    named_apart: Vec<PathBuf>,
    /// Devices of GPUs that the system shows.
    devices: Vec<PathBuf>,
}

/// A way to run Vulkan programs: what is set for them, and how it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// For people.
    pub what: String,
    /// Variables for the programs.
    pub env: Vec<(&'static str, OsString)>,
}

impl Machine {
    /// This machine.
    pub fn of_this() -> Machine {
        let of = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let mut linked: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
            .map(|paths| std::env::split_paths(&paths).collect())
            .unwrap_or_default();
        linked.extend(of(LINKED));
        let mut named = of(NAMED);
        if let Some(home) = std::env::var_os("HOME") {
            named.push(PathBuf::from(home).join(".local/share/vulkan/icd.d"));
        }
        let listed = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .iter()
            .find_map(|program| std::process::Command::new(program).arg("-p").output().ok());
        Machine {
            linked,
            cached: listed.map_or_else(Vec::new, |o| libraries(&String::from_utf8_lossy(&o.stdout))),
            apart: of(APART),
            named: named.iter().flat_map(|folder| manifests(folder)).collect(),
            devices: DEVICES.iter().map(PathBuf::from).filter(|p| p.exists()).collect(),
            named_apart: NAMED_APART
                .iter()
                .flat_map(|folder| manifests(Path::new(folder)))
                .collect(),
        }
    }

    /// Where the linker finds a library.
    pub fn linked(&self, name: &str) -> Option<PathBuf> {
        let in_folder = self.linked.iter().map(|folder| folder.join(name)).find(|p| p.exists());
        in_folder.or_else(|| {
            let cached = self.cached.iter().find(|p| p.file_name().is_some_and(|f| f == name));
            cached.filter(|p| p.exists()).cloned()
        })
    }

    /// Where a library is that the linker does not find.
    fn apart(&self, name: &str) -> Option<PathBuf> {
        self.apart.iter().map(|folder| folder.join(name)).find(|p| p.exists())
    }

    /// Ways to run, the plainest first. Libraries of `carried` are linked to in `scratch` where the machine has none,
    /// and files that name drivers are written there.
    pub fn attempts(&self, carried: &Path, scratch: &Path) -> Result<Vec<Attempt>, String> {
        let fail = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
        std::fs::create_dir_all(scratch).map_err(|e| fail(scratch, e))?;
        let mut attempts = vec![Attempt {
            what: "as this machine has it".to_owned(),
            env: Vec::new(),
        }];
        let (mut parts, mut folders) = (Vec::new(), Vec::new());
        for name in CARRIED.iter().filter(|name| self.linked(name).is_none()) {
            let from = carried.join(name);
            if from.exists() {
                let to = scratch.join(name);
                let _ = std::fs::remove_file(&to);
                std::fs::copy(&from, &to).map_err(|e| fail(&to, e))?;
                parts.push((*name).to_owned());
            }
        }
        if !parts.is_empty() {
            folders.push(scratch.to_owned());
            parts = vec![format!("carried {}", parts.join(", "))];
        }
        let apart = |name: &&&str| self.linked(name).is_none();
        if let Some(driver) = DRIVERS.iter().filter(apart).find_map(|name| self.apart(name)) {
            let folder = driver.parent().unwrap_or(Path::new("/")).to_owned();
            parts.push(format!("the driver of {}", folder.display()));
            folders.push(folder);
        }
        let mut env = Vec::new();
        if !folders.is_empty() {
            folders.extend(
                std::env::var_os("LD_LIBRARY_PATH")
                    .iter()
                    .flat_map(std::env::split_paths),
            );
            let joined = std::env::join_paths(folders).map_err(|e| e.to_string())?;
            env.push(("LD_LIBRARY_PATH", joined));
            attempts.push(Attempt {
                what: parts.join("; "),
                env: env.clone(),
            });
        }
        let mut with_manifest = |what: String, manifest: PathBuf| -> Result<(), String> {
            let all = std::iter::once(&manifest).chain(&self.named);
            let joined = std::env::join_paths(all).map_err(|e| e.to_string())?;
            let mut env = env.clone();
            // Loaders before 1.3.207 know the second only.
            env.extend([("VK_DRIVER_FILES", joined.clone()), ("VK_ICD_FILENAMES", joined)]);
            let what = parts.iter().cloned().chain([what]).collect::<Vec<_>>().join("; ");
            attempts.push(Attempt { what, env });
            Ok(())
        };
        if self.named.iter().any(|file| names_nvidia(file)) {
            return Ok(attempts);
        }
        if let Some(file) = self.named_apart.iter().find(|file| names_nvidia(file)) {
            with_manifest(format!("the driver that {} names", file.display()), file.clone())?;
        }
        for name in DRIVERS
            .iter()
            .filter(|name| self.linked(name).or_else(|| self.apart(name)).is_some())
        {
            let file = scratch.join(format!("{name}.json"));
            std::fs::write(&file, manifest(name)).map_err(|e| fail(&file, e))?;
            with_manifest(format!("no file names the driver {name}, so one was written"), file)?;
        }
        Ok(attempts)
    }

    /// What there is and what is missing, for people.
    pub fn describe(&self, carried: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let place = |path: Option<PathBuf>| path.map(|p| p.display().to_string());
        let loader = place(self.linked(LOADER)).unwrap_or_else(|| match carried.join(LOADER).exists() {
            true => "not on this machine; the carried copy stands in".to_owned(),
            false => "MISSING: install it (Debian: libvulkan1), or carry it: `device-check --prepare` on a machine that has it"
                .to_owned(),
        });
        lines.push(format!("loader {LOADER}: {loader}"));
        for name in DRIVERS {
            let found = place(self.linked(name).or_else(|| self.apart(name)));
            let said = found.unwrap_or_else(|| "not on this machine".to_owned());
            lines.push(format!("driver {name}: {said}"));
        }
        let devices = self.devices.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        let said = if devices.is_empty() {
            "none: is the GPU given to this machine or container?".to_owned()
        } else {
            devices.join(", ")
        };
        lines.push(format!("device files: {said}"));
        let named: Vec<String> = self.named.iter().map(|p| p.display().to_string()).collect();
        let said = if named.is_empty() {
            "none".to_owned()
        } else {
            named.join(", ")
        };
        lines.push(format!("files that name drivers: {said}"));
        lines
    }
}

/// The paths of `ldconfig -p`: lines such as `libm.so.6 (libc6,x86-64) => /lib/libm.so.6`.
fn libraries(listed: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_once(" => ").map(|(_, path)| PathBuf::from(path.trim()));
    listed.lines().filter_map(path).collect()
}

fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "json"));
    files.sort();
    files
}

fn names_nvidia(file: &Path) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.contains("_nvidia.so"))
}

/// The file that tells the loader of a driver.
fn manifest(library: &str) -> String {
    let json = serde_json::json!({
        "file_format_version": "1.0.1",
        "ICD": { "library_path": library, "api_version": "1.3.0" },
    });
    format!("{json:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_check::tests::Folder;

    fn names(list: &[Attempt]) -> Vec<&str> {
        list.iter().map(|a| a.what.as_str()).collect()
    }

    fn var(attempt: &Attempt, name: &str) -> String {
        let found = attempt.env.iter().find(|(n, _)| *n == name);
        found.map_or(String::new(), |(_, v)| v.to_string_lossy().into_owned())
    }

    #[test]
    fn a_machine_that_has_all_is_left_as_it_is() {
        let folder = Folder::new("whole");
        let (lib, icd) = (folder.join("lib"), folder.join("icd"));
        for name in CARRIED {
            folder.write(&format!("lib/{name}"), "");
        }
        folder.write("icd/nvidia_icd.json", &manifest("libGLX_nvidia.so.0"));
        let machine = Machine {
            linked: vec![lib.clone()],
            named: manifests(&icd),
            ..Machine::default()
        };
        let attempts = machine
            .attempts(&folder.join("carried"), &folder.join("scratch"))
            .unwrap();
        assert_eq!(names(&attempts), ["as this machine has it"]);
        assert!(attempts[0].env.is_empty());
        assert!(machine.describe(&lib)[0].ends_with(LOADER));
    }

    #[test]
    fn a_bare_container_is_given_the_loader_and_the_name_of_its_driver() {
        let folder = Folder::new("bare");
        folder.write("carried/libvulkan.so.1", "loader");
        folder.write("carried/libX11.so.6", "");
        folder.write("lib/libX11.so.6", "");
        folder.write("nvidia/libGLX_nvidia.so.0", "");
        folder.write("nvidia/libEGL_nvidia.so.0", "");
        folder.write("icd/lvp_icd.json", &manifest("libvulkan_lvp.so"));
        folder.write("icd/README", "");
        let machine = Machine {
            linked: vec![folder.join("lib")],
            apart: vec![folder.join("nvidia")],
            named: manifests(&folder.join("icd")),
            ..Machine::default()
        };
        let scratch = folder.join("scratch");
        let attempts = machine.attempts(&folder.join("carried"), &scratch).unwrap();
        let said = names(&attempts);
        assert_eq!(said.len(), 4, "{said:?}");
        let libraries = format!(
            "carried libvulkan.so.1; the driver of {}",
            folder.join("nvidia").display()
        );
        assert_eq!(said[1], libraries);
        assert_eq!(
            said[2],
            format!("{libraries}; no file names the driver libGLX_nvidia.so.0, so one was written")
        );
        assert!(said[3].contains("libEGL_nvidia.so.0"));
        // What the machine has is not replaced.
        assert!(scratch.join(LOADER).exists() && !scratch.join("libX11.so.6").exists());
        let paths = var(&attempts[3], "LD_LIBRARY_PATH");
        assert!(
            paths.starts_with(&*scratch.to_string_lossy()) && paths.contains("nvidia"),
            "{paths}"
        );
        let drivers = var(&attempts[2], "VK_DRIVER_FILES");
        assert_eq!(drivers, var(&attempts[2], "VK_ICD_FILENAMES"));
        let written = scratch.join("libGLX_nvidia.so.0.json");
        assert_eq!(
            drivers,
            format!("{}:{}", written.display(), folder.join("icd/lvp_icd.json").display())
        );
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(written).unwrap()).unwrap();
        assert_eq!(json["ICD"]["library_path"], "libGLX_nvidia.so.0");
    }

    #[test]
    fn what_is_missing_is_told() {
        let folder = Folder::new("missing");
        let machine = Machine::default();
        let lines = machine.describe(&folder.join("carried"));
        assert!(
            lines[0].contains("MISSING") && lines[0].contains("--prepare"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("libGLX_nvidia.so.0: not on this machine"),
            "{lines:?}"
        );
        assert!(lines[3].starts_with("device files: none"), "{lines:?}");
        assert_eq!(lines[4], "files that name drivers: none");
        let attempts = machine
            .attempts(&folder.join("carried"), &folder.join("scratch"))
            .unwrap();
        assert_eq!(names(&attempts), ["as this machine has it"]);
    }

    #[test]
    fn a_file_beside_the_usual_places_is_found() {
        let folder = Folder::new("apart");
        folder.write("apart/nvidia_icd.json", &manifest("libGLX_nvidia.so.0"));
        let machine = Machine {
            named_apart: manifests(&folder.join("apart")),
            ..Machine::default()
        };
        let attempts = machine
            .attempts(&folder.join("carried"), &folder.join("scratch"))
            .unwrap();
        assert_eq!(attempts.len(), 2);
        assert!(var(&attempts[1], "VK_DRIVER_FILES").ends_with("nvidia_icd.json"));
    }

    #[test]
    fn the_list_of_the_linker_is_read() {
        let listed = "2 libs found in cache\n\tlibm.so.6 (libc6,x86-64) => /lib/x/libm.so.6\n";
        assert_eq!(libraries(listed), [PathBuf::from("/lib/x/libm.so.6")]);
    }
}
