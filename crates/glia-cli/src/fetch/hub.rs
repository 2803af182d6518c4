//! One file of the Hugging Face Hub over HTTP: resumable, bounded in time and size, careful with the token.
//!
//! Redirects are followed here rather than in the HTTP library: the token goes to the endpoint's own origin only, https
//! never becomes http, and at most [`MAX_REDIRECTS`] are followed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ureq::http::Response;
use ureq::{Agent, Body};

use super::cache;
use super::catalog::{Entry, HubFile};
use super::error::FetchError;
use super::names;
use super::progress::Progress;
use super::settings::Settings;

/// Most redirects that are followed for one request.
const MAX_REDIRECTS: usize = 5;
/// Most attempts for one file; each goes on where the last one stopped.
const MAX_ATTEMPTS: usize = 4;

/// Fetches `file` of the Hub into the cache.
pub fn download(
    entry: &Entry,
    file: &HubFile,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<PathBuf, FetchError> {
    names::check(entry.file)?;
    file.file
        .split('/')
        .chain(file.repo.split('/'))
        .try_for_each(names::check)?;
    let url = format!("{}/{}/resolve/main/{}", settings.endpoint, file.repo, file.file);
    let part = settings.cache.join(format!("{}.part", entry.file));
    let agent = agent(settings);
    let transfer = Transfer {
        agent,
        url: &url,
        part: &part,
        entry,
        settings,
        progress,
    };
    let mut attempt = 1;
    loop {
        let before = length(&part);
        let outcome = transfer.attempt();
        progress.end();
        match outcome {
            Ok(()) => return cache::install(&part, entry, &url, settings).inspect(|_| transfer.forget_tag()),
            // A connection that broke after some progress is worth another attempt.
            Err(FetchError::Network { .. }) if attempt < MAX_ATTEMPTS && length(&part) > before => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

fn agent(settings: &Settings) -> Agent {
    Agent::config_builder()
        .proxy(settings.proxy.clone())
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("glia/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .timeout_resolve(Some(settings.connect_timeout))
        .timeout_connect(Some(settings.connect_timeout))
        .timeout_recv_response(Some(settings.read_timeout))
        .timeout_per_read(Some(settings.read_timeout))
        .build()
        .new_agent()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

struct Transfer<'a> {
    agent: Agent,
    url: &'a str,
    part: &'a Path,
    entry: &'a Entry,
    settings: &'a Settings,
    progress: &'a dyn Progress,
}

impl Transfer<'_> {
    /// Appends to the part file until it has its full size.
    fn attempt(&self) -> Result<(), FetchError> {
        let total = self.entry.size_bytes;
        let mut have = length(self.part);
        let tag = fs::read_to_string(self.tag_path()).ok().filter(|t| !t.is_empty());
        if have > total || tag.is_none() {
            have = 0;
        }
        if have == total {
            return Ok(());
        }
        let resume = tag.as_deref().filter(|_| have > 0).map(|tag| (have, tag));
        let mut response = self.get(resume)?;
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or("")
                .to_owned()
        };
        let (status, new_tag) = (response.status().as_u16(), header("etag"));
        let start = match status {
            200 => 0,
            206 if resume.is_some_and(|(_, old)| old == new_tag)
                && range_start(&header("content-range")) == Some(have) =>
            {
                have
            }
            // Another file, another range, or the part does not fit what the server has: begin anew.
            206 | 416 if resume.is_some() => {
                drop(response);
                fs::remove_file(self.part).map_err(FetchError::io(self.part))?;
                return self.attempt();
            }
            _ => {
                return Err(self.answer(
                    format!("{total} bytes of {}", self.entry.file),
                    format!("status {status}"),
                ));
            }
        };
        self.check_length(&header("content-length"), total - start, &header("content-type"))?;
        self.copy(&mut response, start, &new_tag)
    }

    fn check_length(&self, declared: &str, expected: u64, kind: &str) -> Result<(), FetchError> {
        match declared.parse::<u64>() {
            Ok(n) if n != expected => Err(self.answer(
                format!("{expected} bytes of {}", self.entry.file),
                format!("{n} bytes of {kind}"),
            )),
            _ => Ok(()),
        }
    }

    fn copy(&self, response: &mut Response<Body>, start: u64, tag: &str) -> Result<(), FetchError> {
        let total = self.entry.size_bytes;
        let mut options = File::options();
        let mut file = if start == 0 {
            options.create(true).write(true).truncate(true).open(self.part)
        } else {
            options.append(true).open(self.part)
        }
        .map_err(FetchError::io(self.part))?;
        fs::write(self.tag_path(), tag).map_err(FetchError::io(&self.tag_path()))?;
        self.progress.begin(self.entry.names[0], start, total);
        let mut reader = response.body_mut().as_reader();
        let mut buffer = vec![0u8; 1 << 16];
        let mut done = start;
        while done < total {
            let room = usize::try_from(total - done).unwrap_or(usize::MAX).min(buffer.len());
            let n = match reader.read(&mut buffer[..room]) {
                Ok(0) => return Err(self.network(format!("the connection ended at {done} of {total} bytes"))),
                Ok(n) => n,
                Err(e) => return Err(self.network(format!("{e} at {done} of {total} bytes"))),
            };
            file.write_all(&buffer[..n]).map_err(FetchError::io(self.part))?;
            done += n as u64;
            self.progress.at(done);
        }
        Ok(())
    }

    /// One GET with its redirects.
    fn get(&self, resume: Option<(u64, &str)>) -> Result<Response<Body>, FetchError> {
        let home =
            origin(self.url).ok_or_else(|| self.network("HF_ENDPOINT is not an http or https address".into()))?;
        let mut url = self.url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.agent.get(&url);
            if let Some(token) = &self.settings.token
                && origin(&url) == Some(home)
            {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if let Some((have, tag)) = resume {
                request = request
                    .header("range", format!("bytes={have}-"))
                    .header("if-range", tag);
            }
            let response = request.call().map_err(|e| FetchError::Network {
                url: url.clone(),
                reason: e.to_string(),
            })?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let target = response
                .headers()
                .get("location")
                .and_then(|v| v.to_str().ok())
                .unwrap_or("");
            url = follow(&url, target).map_err(|got| self.answer("a redirect to http or https".into(), got))?;
        }
        Err(self.answer(format!("at most {MAX_REDIRECTS} redirects"), "more".into()))
    }

    fn tag_path(&self) -> PathBuf {
        self.part.with_extension("etag")
    }

    fn forget_tag(&self) {
        let _ = fs::remove_file(self.tag_path());
    }

    fn answer(&self, expected: String, got: String) -> FetchError {
        FetchError::Answer {
            url: self.url.to_owned(),
            expected,
            got,
        }
    }

    fn network(&self, reason: String) -> FetchError {
        FetchError::Network {
            url: self.url.to_owned(),
            reason,
        }
    }
}

/// `scheme://host:port` of an http address; user names in it are refused.
fn origin(url: &str) -> Option<&str> {
    let scheme = ["https://", "http://"].into_iter().find(|s| url.starts_with(s))?;
    let end = url[scheme.len()..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |i| i + scheme.len());
    let host = &url[scheme.len()..end];
    (!host.is_empty() && !host.contains(['@', '\\', ' '])).then_some(&url[..end])
}

/// Where a redirect leads; the error says what is wrong with it.
pub(super) fn follow(from: &str, target: &str) -> Result<String, String> {
    let base = origin(from).ok_or_else(|| format!("a redirect from {from:?}"))?;
    let scheme = base.split(':').next().unwrap_or("https");
    let url = if target.starts_with("//") {
        format!("{scheme}:{target}")
    } else if target.starts_with('/') {
        format!("{base}{target}")
    } else {
        target.to_owned()
    };
    match origin(&url) {
        None => Err(format!("a redirect to {target:?}")),
        Some(o) if scheme == "https" && o.starts_with("http:") => Err(format!("a redirect from https to {o}")),
        Some(_) => Ok(url),
    }
}

/// The first byte of `bytes 10-19/20`.
fn range_start(header: &str) -> Option<u64> {
    header.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}
