//! A Hub of a few lines on 127.0.0.1: it answers each request by a closure and remembers what was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

/// One request: its path and its headers in lower case, one a line.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: String,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers
            .lines()
            .find_map(|l| l.strip_prefix(&format!("{name}: ")).map(str::to_owned))
    }
}

/// A running server; its thread ends with the test process.
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers with whatever bytes `answer` returns, head included, and closes.
    pub fn start(answer: impl Fn(&Request) -> Vec<u8> + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let Some(Ok(first)) = lines.next() else { continue };
                let path = first.split(' ').nth(1).unwrap_or("").to_owned();
                let headers = lines
                    .map_while(|l| l.ok().filter(|l| !l.is_empty()))
                    .map(|l| lower_name(&l))
                    .collect();
                let request = Request { path, headers };
                log.lock().unwrap().push(request.clone());
                let _ = stream.write_all(&answer(&request));
            }
        });
        Server { url, seen }
    }

    /// What was asked so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn lower_name(line: &str) -> String {
    match line.split_once(':') {
        Some((name, value)) => format!("{}: {}\n", name.to_ascii_lowercase(), value.trim()),
        None => format!("{line}\n"),
    }
}

/// A whole answer.
pub fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nconnection: close\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    if !headers.iter().any(|(n, _)| *n == "content-length") {
        bytes.extend(format!("content-length: {}\r\n", body.len()).bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}
