//! Where to look and whom to ask, read once from the environment. Nothing below this reads a variable.

use std::path::PathBuf;
use std::time::Duration;

/// The places and limits of a fetch.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our own folder of model files.
    pub cache: PathBuf,
    /// Folders in the Hub's layout (`models--org--name/snapshots/REVISION/FILE`), only read.
    pub hub_caches: Vec<PathBuf>,
    /// The Hub's address, possibly with a path, without a slash at the end.
    pub endpoint: String,
    /// The Hub's token; sent to the endpoint's own origin only.
    pub token: Option<String>,
    /// Never use the network.
    pub offline: bool,
    /// Python interpreters to try for `-m pip`.
    pub pythons: Vec<PathBuf>,
    /// Proxy for the Hub; `None` goes straight.
    pub proxy: Option<ureq::Proxy>,
    /// Longest wait for a name and for a connection, each.
    pub connect_timeout: Duration,
    /// Longest silence of a server.
    pub read_timeout: Duration,
    /// Longest run of pip per package.
    pub pip_timeout: Duration,
}

impl Settings {
    /// Reads `GLIA_CACHE`, `XDG_CACHE_HOME`, `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`
    /// and the proxy variables.
    pub fn from_env() -> Settings {
        Settings {
            proxy: ureq::Proxy::try_from_env(),
            ..Settings::from_vars(|name| std::env::var(name).ok())
        }
    }

    /// The same from any source of variables; the proxy is left out.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Settings {
        let var = |name: &str| var(name).filter(|v| !v.trim().is_empty());
        let path = |name: &str| var(name).map(PathBuf::from);
        let home = path("HOME")
            .or_else(|| path("USERPROFILE"))
            .unwrap_or_else(std::env::temp_dir);
        let user_cache = path("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
        let cache = path("GLIA_CACHE").unwrap_or_else(|| user_cache.join("glia").join("models"));
        let mut hub_caches: Vec<PathBuf> = path("HF_HUB_CACHE").into_iter().collect();
        hub_caches.extend(path("HF_HOME").map(|h| h.join("hub")));
        hub_caches.push(user_cache.join("huggingface").join("hub"));
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Settings {
            cache,
            hub_caches,
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: var("HF_TOKEN").map(|t| t.trim().to_owned()),
            offline: var("HF_HUB_OFFLINE").is_some_and(|v| is_true(&v)),
            pythons: vec![PathBuf::from("python3"), PathBuf::from("python")],
            proxy: None,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            pip_timeout: Duration::from_secs(900),
        }
    }
}

fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"]
        .iter()
        .any(|t| value.trim().eq_ignore_ascii_case(t))
}
