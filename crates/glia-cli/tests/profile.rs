//! `glia profile`: sums that add up, a trace that nests, a report that needs nothing else, and what is refused.

mod support;

use serde_json::Value;
use support::{demo_file, fails, folder, glia, out};

fn profile(args: &[&str]) -> String {
    let base = ["profile", "demo", "--prefill", "8", "--decode", "2"];
    out(glia(&[&base[..], args].concat(), b""))
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&profile(&[&["--json", "--no-ceiling"], args].concat())).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn tables_name_ops_layers_and_the_ceiling() {
    let text = profile(&["--threads", "1"]);
    for part in [
        "1 thread",
        "in huge pages",
        "prefill of 8 tokens",
        "decode of 2 tokens",
        "mean of 2 forwards",
        "matmul",
        "sdpa",
        "no op",
        "embedding",
        "layer 3",
        "output head",
        "%",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn sums_add_up() {
    let all = json(&["--depth", "3"]);
    assert!(all["ceiling"].is_null());
    let phases = list(&all, "phases");
    assert_eq!(phases.len(), 2);
    for (phase, (forwards, tokens)) in phases.iter().zip([(1.0, 8.0), (2.0, 2.0)]) {
        assert_eq!((number(phase, "forwards"), number(phase, "tokens")), (forwards, tokens));
        let total = &phase["total"];
        for key in ["ms", "bytes", "ops", "calls"] {
            for rows in ["ops", "layers"] {
                let sum: f64 = list(phase, rows).iter().map(|r| number(r, key)).sum();
                let total = number(total, key);
                assert!(
                    (sum - total).abs() <= 1e-6 * total,
                    "{key} of {rows}: {sum} and {total}"
                );
            }
        }
        let (ms, rest) = (number(phase, "ms"), number(phase, "no_op_ms"));
        assert!(number(total, "ms") <= ms && (number(total, "ms") + rest - ms).abs() < 1e-6 * ms);
        assert!(total["share_of_ceiling"].is_null());
    }
    // Four layers of 786432 weights and a head of 524288, each read once per forward, 34 bytes per 32.
    let of = |phase: &Value, op: &str| list(phase, "ops").iter().find(|r| r["name"] == op).unwrap().clone();
    let weights = f64::from(4 * 786_432 + 524_288) / 32.0 * 34.0;
    assert_eq!(number(&of(&phases[1], "matmul"), "weight_bytes"), 2.0 * weights);
    assert_eq!(number(&of(&phases[1], "matmul"), "calls"), 2.0 * 29.0);
    // K and V in f16, 2 heads of 64, behind 3 and 4 tokens, 4 layers.
    assert_eq!(
        number(&of(&phases[1], "sdpa"), "cache_bytes"),
        f64::from((4 + 5) * 4 * 2 * 128 * 2)
    );
    assert_eq!(
        number(&of(&phases[1], "kv_cache"), "cache_bytes"),
        f64::from(2 * 4 * 2 * 128 * 2)
    );
    // What is left out is not there.
    let args = [
        "profile",
        "demo",
        "--prefill",
        "0",
        "--decode",
        "1",
        "--no-ceiling",
        "--json",
    ];
    let decode: Value = serde_json::from_str(&out(glia(&args, b""))).unwrap();
    assert_eq!(list(&decode, "phases").len(), 1);
}

#[test]
fn traces_nest_and_are_ordered() {
    let path = folder().join("trace.json");
    profile(&[
        "--no-ceiling",
        "--max-step-tokens",
        "4",
        "--trace",
        path.to_str().unwrap(),
    ]);
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = list(&trace, "traceEvents");
    let ns = |event: &Value, key: &str| (number(event, key) * 1e3).round() as u64;
    // What is open now, outermost first, as its category and its end.
    let mut open: Vec<(String, u64)> = Vec::new();
    let (mut last, mut n_nodes, mut n_steps) = (0, 0, 0);
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let (start, category) = (ns(event, "ts"), event["cat"].as_str().unwrap());
        assert!(start >= last, "{event}");
        last = start;
        while open.last().is_some_and(|(_, end)| *end <= start) {
            open.pop();
        }
        let end = start + ns(event, "dur");
        assert!(open.iter().all(|(_, outer)| end <= *outer), "{event} in {open:?}");
        let outer = open.last().map(|(c, _)| c.as_str());
        match category {
            "forward" => assert_eq!(outer, None),
            "step" => {
                assert_eq!(outer, Some("forward"));
                n_steps += 1;
            }
            _ => {
                assert_eq!(outer, Some("step"), "{event}");
                let args = &event["args"];
                assert!(args["node"].is_string() && args["shape"].as_str().unwrap().contains('['));
                assert!(number(args, "bytes") > 0.0 && args["ops"].is_u64());
                n_nodes += 1;
            }
        }
        assert!(event["pid"].is_u64() && event["tid"].is_u64());
        open.push((category.to_owned(), end));
    }
    // Two steps of the prefill, two of decoding.
    assert_eq!(n_steps, 4);
    assert!(n_nodes >= 4 * 60, "{n_nodes}");
}

#[test]
fn reports_need_nothing_else() {
    let folder = folder();
    let path = folder.join("profile.html");
    let all = json(&["--html", path.to_str().unwrap()]);
    let html = std::fs::read_to_string(path).unwrap();
    for row in list(&list(&all, "phases")[0], "ops") {
        assert!(html.contains(row["name"].as_str().unwrap()), "{row}");
    }
    for part in ["layer 3", "Roofline", "<svg", "decode of 2 tokens"] {
        assert!(html.contains(part), "{part}");
    }
    for part in ["<script", "http", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(part), "{part}");
    }
    let tags = |open: &str, close: &str| (html.matches(open).count(), html.matches(close).count());
    for (open, close) in [
        ("<svg", "</svg>"),
        ("<table", "</table>"),
        ("<tr", "</tr>"),
        ("<title", "</title>"),
    ] {
        let (a, b) = tags(open, close);
        assert_eq!(a, b, "{open}");
    }
}

#[cfg(unix)]
#[test]
fn names_are_no_markup() {
    let folder = folder();
    let (model, path) = (folder.join("<b onload=\"x\">&.gguf"), folder.join("profile.html"));
    std::fs::copy(demo_file(), &model).unwrap();
    let (model, path) = (model.to_str().unwrap(), path.to_str().unwrap());
    let args = [
        "profile",
        model,
        "--prefill",
        "1",
        "--decode",
        "0",
        "--no-ceiling",
        "--html",
        path,
    ];
    out(glia(&args, b""));
    let html = std::fs::read_to_string(path).unwrap();
    assert!(html.contains("&lt;b onload=&quot;x&quot;&gt;&amp;.gguf") && !html.contains("<b onload"));
}

#[test]
fn what_cannot_be_measured_or_written_is_refused_at_once() {
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        fails(glia(&[&["profile", "demo"], args].concat(), b""), code, parts);
    };
    refused(&["--prefill", "0", "--decode", "0"], 2, &["--prefill", "--decode"]);
    refused(&["--decode", "0", "--depth", "9"], 2, &["--depth", "--decode"]);
    refused(&["--decode", "-1"], 2, &["--decode"]);
    refused(&["--depth", "x"], 2, &["--depth", "whole number"]);
    refused(&["--trace", "a", "--html", "a"], 2, &["--trace", "--html"]);
    refused(&["--decode", "99999999999"], 1, &["--depth", "--decode"]);
    let folder = folder();
    let missing = folder.join("no").join("trace.json");
    let missing = missing.to_str().unwrap();
    for flag in ["--trace", "--html"] {
        refused(&[flag, missing], 1, &[missing]);
        refused(&[flag, folder.to_str().unwrap()], 1, &[folder.to_str().unwrap()]);
    }
    // However it is spelled, and whether or not it is there.
    let (one, same) = (folder.join("one"), folder.join(".").join("one"));
    let (one, same) = (one.to_str().unwrap(), same.to_str().unwrap());
    refused(&["--trace", one, "--html", same], 2, &["--trace", "--html"]);
    // A model is not overwritten, the profiled one least of all.
    let model = folder.join("model.gguf");
    std::fs::copy(demo_file(), &model).unwrap();
    let other = folder.join("other");
    std::fs::copy(demo_file(), &other).unwrap();
    for path in [&model, &other, &folder.join(".").join("model.gguf")] {
        let path = path.to_str().unwrap();
        let args = ["profile", model.to_str().unwrap(), "--html", path];
        fails(glia(&args, b""), 2, &["--html", path, "model"]);
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(demo_file()).unwrap());
    }
    // Nothing is left behind, and what a file holds is kept, when nothing comes of it.
    let fresh = folder.join("fresh");
    let args = ["profile", "no-such.gguf", "--trace", fresh.to_str().unwrap()];
    fails(glia(&args, b""), 1, &["no-such.gguf"]);
    assert!(!fresh.exists());
    let kept = folder.join("kept");
    std::fs::write(&kept, "before").unwrap();
    let args = ["profile", "no-such.gguf", "--html", kept.to_str().unwrap()];
    fails(glia(&args, b""), 1, &["no-such.gguf"]);
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "before");
}

#[test]
fn devices_measure_when_asked() {
    let devices = out(glia(&["devices"], b""));
    assert_eq!(devices.lines().filter(|l| l.starts_with("cpu")).count(), 1, "{devices}");
    assert!(devices.lines().any(|l| l.starts_with("wgpu")), "{devices}");
    let text = out(glia(&["devices", "--measure"], b""));
    for part in ["threads", "huge pages", "GB/s", "Gop/s", "int8", "f32"] {
        assert!(text.contains(part), "{text}");
    }
}

/// What ran is named, and the processor's ceilings are not held against a device.
#[test]
fn the_backend_is_named_where_it_is_not_the_cpu() {
    let text = profile(&["--backend", "reference"]);
    assert!(text.contains("runs on    plain loops in f64\n"), "{text}");
    let devices = out(glia(&["devices"], b""));
    let Some(adapter) = devices.lines().find_map(|l| l.strip_prefix("wgpu:0  ")) else {
        println!("SKIP: no adapter");
        return;
    };
    let text = profile(&["--backend", "wgpu,cpu"]);
    assert!(
        text.contains(&format!("runs on    {adapter}; ")) && !text.contains("huge pages"),
        "{text}"
    );
}
