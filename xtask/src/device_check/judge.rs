//! What the outputs of the programs say: in a line for the table, or why they are not good enough.

use std::collections::HashMap;

use serde_json::Value;

/// The first request of a process may take so many times what the second takes.
const MOST_TIMES_SECOND: f64 = 2.0;
/// Exact precision: rounding in another order stays below this error of a node.
pub const EXACT_LIMIT: &str = "1e-3";
/// Fast precision: backends round activations differently; this much of the distribution of the next token may move.
const FAST_KL: f64 = 0.05;

/// What is known so far.
#[derive(Debug, Default)]
pub struct Facts {
    /// Bytes per second that copies on the device read and write.
    pub copy_bandwidth: Option<f64>,
    /// By model.
    models: HashMap<String, PerToken>,
    /// Lines of the table of speeds.
    pub speeds: Vec<Speed>,
}

/// What a token of a model costs at least.
#[derive(Clone, Copy, Debug)]
struct PerToken {
    weight_bytes: f64,
    ops: f64,
    prompt_ops: f64,
}

/// A measured speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Model.
    pub model: String,
    /// `wgpu` or `cpu`.
    pub backend: &'static str,
    /// `pp512`, `tg64 @ d1024`.
    pub test: String,
    /// Tokens per second.
    pub rate: f64,
    /// Weights read per second, for decoding.
    pub bytes_per_s: Option<f64>,
    /// Their share of the copy bandwidth.
    pub share: Option<f64>,
    /// Operations per second.
    pub ops_per_s: Option<f64>,
}

/// The line of the best adapter in what `glia devices` prints: `Name (discrete, vulkan, driver)`.
pub fn adapter(devices: &str) -> Option<&str> {
    let line = devices
        .lines()
        .find(|l| l.starts_with("wgpu:0 ") && !l.contains(" copies "))?;
    Some(line["wgpu:0".len()..].trim())
}

/// Whether an adapter is a program on the processor.
pub fn is_software(adapter: &str) -> bool {
    adapter.contains(" (software, ")
}

/// Bytes per second of `wgpu:0 copies 12.3 GB/s`.
pub fn copy_bandwidth(devices: &str) -> Option<f64> {
    let line = devices.lines().find(|l| l.starts_with("wgpu:0 copies "))?;
    let number = line["wgpu:0 copies ".len()..].split_whitespace().next()?;
    number.parse().ok().map(|gb: f64| gb * 1e9)
}

/// The last line of the suite: how many passed. None may be red.
pub fn suite(stdout: &str) -> Result<String, String> {
    let red = stdout.lines().filter(|l| l.starts_with("RED ")).count();
    let last = stdout
        .lines()
        .rev()
        .find(|l| !l.trim().is_empty())
        .unwrap_or("no output");
    if red > 0 {
        Err(format!("{red} red; {last}"))
    } else {
        Ok(last.to_owned())
    }
}

/// The sums of `xtask goldens`. Cases of kinds that no backend runs yet are none of the device's business.
pub fn goldens(stdout: &str) -> Result<String, String> {
    let line = stdout.lines().rev().find(|l| l.starts_with("all "));
    let counts: Vec<usize> = line
        .iter()
        .flat_map(|l| l.split_whitespace())
        .filter_map(|w| w.parse().ok())
        .collect();
    match counts[..] {
        [passed, 0, unsupported] if passed > 0 => Ok(format!("{passed} pass, {unsupported} of other kinds")),
        [passed, failed, _] => Err(format!("{failed} fail, {passed} pass")),
        _ => Err("no table of golden cases".to_owned()),
    }
}

/// What `glia compare --json` found. Exact precision has failed by itself where a node differs too much.
pub fn comparison(stdout: &str, fast: bool) -> Result<String, String> {
    let found = json(stdout)?;
    let worst = found["layers"].as_array().into_iter().flatten();
    let worst = worst.filter_map(|l| number(&l["largest_error"])).fold(0.0, f64::max);
    let logits = &found["logits"];
    let (Some(kl), Some(top)) = (number(&logits["mean_kl"]), number(&logits["top1_agreement"])) else {
        return Err("nothing is said of the logits".to_owned());
    };
    let said = format!(
        "largest error {worst:.1e}, KL {kl:.1e}, same top token {:.1} %",
        100.0 * top
    );
    if fast && !(kl <= FAST_KL) {
        return Err(format!("{said}; at most a KL of {FAST_KL} is allowed"));
    }
    Ok(said)
}

fn json(stdout: &str) -> Result<Value, String> {
    serde_json::from_str(stdout.trim()).map_err(|e| format!("no JSON: {e}"))
}

/// A number, also where JSON has none and it is a text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

impl Facts {
    /// Takes what `xtask first-token` prints.
    pub fn first_token(&mut self, model: &str, stdout: &str) -> Result<String, String> {
        let found = json(stdout)?;
        let get = |name: &str| number(&found[name]).ok_or_else(|| format!("no `{name}`"));
        let (weight_bytes, ops, prompt_ops) = (get("weight_bytes")?, get("ops")?, get("prompt_ops")?);
        self.models.insert(
            model.to_owned(),
            PerToken {
                weight_bytes,
                ops,
                prompt_ops,
            },
        );
        let times: Vec<f64> = found["first_token_ms"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(number)
            .collect();
        let [first, second, ..] = times[..] else {
            return Err("fewer than two requests".to_owned());
        };
        let times = first / second;
        let said = format!(
            "load {:.2} s, first token of request 1 {first:.2} ms, of request 2 {second:.2} ms: {times:.2} times; {} \
             pipelines made in request 1",
            get("load_ms")? / 1e3,
            get("pipelines_in_first")?
        );
        if !(times <= MOST_TIMES_SECOND) {
            return Err(format!("{said}; at most {MOST_TIMES_SECOND} times is allowed"));
        }
        Ok(said)
    }

    /// Takes what `glia bench --json` prints.
    pub fn bench(&mut self, model: &str, backend: &'static str, stdout: &str) -> Result<String, String> {
        let found = json(stdout)?;
        let per_token = self.models.get(model).copied();
        let mut said = Vec::new();
        for row in found.as_array().into_iter().flatten() {
            let (Some(test), Some(rate)) = (row["test"].as_str(), number(&row["tok_per_s"])) else {
                return Err(format!("a row without speed: {row}"));
            };
            said.push(format!("{test} {rate:.1} tok/s"));
            let bytes_per_s = per_token
                .filter(|_| test.starts_with("tg"))
                .map(|p| p.weight_bytes * rate);
            let of_device = self.copy_bandwidth.filter(|_| backend == "wgpu");
            self.speeds.push(Speed {
                model: model.to_owned(),
                backend,
                test: test.to_owned(),
                rate,
                bytes_per_s,
                share: bytes_per_s.zip(of_device).map(|(bytes, all)| bytes / all),
                ops_per_s: per_token.map(|p| rate * if test.starts_with("pp") { p.prompt_ops } else { p.ops }),
            });
        }
        if said.is_empty() {
            Err("no speeds".to_owned())
        } else {
            Ok(said.join(", "))
        }
    }

    /// The table of speeds.
    pub fn speed_table(&self) -> String {
        let mut text = format!(
            "{:<32} {:<8} {:<14} {:>10} {:>14} {:>8} {:>12}\n",
            "model", "backend", "test", "tok/s", "weights GB/s", "of copy", "GFLOP/s"
        );
        let cell = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or("-".to_owned(), show);
        for s in &self.speeds {
            text += &format!(
                "{:<32} {:<8} {:<14} {:>10.1} {:>14} {:>8} {:>12}\n",
                s.model,
                s.backend,
                s.test,
                s.rate,
                cell(s.bytes_per_s, &|x| format!("{:.1}", x / 1e9)),
                cell(s.share, &|x| format!("{:.1} %", 100.0 * x)),
                cell(s.ops_per_s, &|x| format!("{:.1}", x / 1e9)),
            );
        }
        if let Some(all) = self.copy_bandwidth {
            text += &format!(
                "copies on the device: {:.1} GB/s, reading and writing together\n",
                all / 1e9
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &str = "cpu     16 threads, avx512\nwgpu:0  NVIDIA X (discrete, vulkan, NVIDIA 570.1)\n\
                           wgpu:1  llvmpipe (software, vulkan, llvmpipe)\n\n\
                           wgpu:0 copies       3210.5 GB/s, reading and writing\n\
                           wgpu:1 copies          8.1 GB/s, reading and writing\n";

    #[test]
    fn adapters_and_their_bandwidth_are_read() {
        assert_eq!(adapter(DEVICES), Some("NVIDIA X (discrete, vulkan, NVIDIA 570.1)"));
        assert!(!is_software(adapter(DEVICES).unwrap()));
        assert!(is_software("llvmpipe (software, vulkan, llvmpipe)"));
        assert_eq!(copy_bandwidth(DEVICES), Some(3210.5e9));
        let none = "cpu     2 threads\nwgpu    no adapter: install the driver of a GPU\n";
        assert_eq!((adapter(none), copy_bandwidth(none)), (None, None));
    }

    #[test]
    fn suites_and_goldens_are_judged() {
        let good = "| table |\n\nwgpu: 1310 cases: 1300 passed, 0 failed, 10 not supported\n";
        assert_eq!(
            suite(good).unwrap(),
            "wgpu: 1310 cases: 1300 passed, 0 failed, 10 not supported"
        );
        assert!(suite("RED a: b\nwgpu: 2 cases").unwrap_err().starts_with("1 red"));
        let table = |n: &str| format!("kind pass fail unsupported\nmodels 1 1 1\nall   {n}\n");
        assert_eq!(goldens(&table("20 0 3")).unwrap(), "20 pass, 3 of other kinds");
        assert_eq!(goldens(&table("20 2 3")).unwrap_err(), "2 fail, 20 pass");
        assert!(goldens(&table("0 0 3")).is_err());
        assert!(goldens("").is_err());
    }

    #[test]
    fn comparisons_are_judged_by_their_logits() {
        let found = |kl: &str| {
            format!(
                r#"{{"layers": [{{"largest_error": 0.001}}, {{"largest_error": 0.02}}], "logits": {{"mean_kl": {kl}, "top1_agreement": 0.5}}}}"#
            )
        };
        let said = comparison(&found("0.001"), true).unwrap();
        assert_eq!(said, "largest error 2.0e-2, KL 1.0e-3, same top token 50.0 %");
        assert!(comparison(&found("0.5"), true).unwrap_err().contains("allowed"));
        assert!(comparison(&found("0.5"), false).is_ok());
        assert!(comparison(&found("\"NaN\""), true).is_err());
        assert!(comparison("{}", true).is_err());
        assert!(comparison("oops", true).is_err());
    }

    #[test]
    fn first_requests_are_judged() {
        let found = |ms: &str| {
            format!(
                r#"{{"load_ms": 1500.0, "first_token_ms": {ms}, "pipelines_in_first": 0, "weight_bytes": 100000000, "ops": 300000000, "prompt_ops": 200000000}}"#
            )
        };
        let mut facts = Facts::default();
        let said = facts.first_token("m", &found("[15.0, 10.0, 9.0]")).unwrap();
        assert!(
            said.contains("request 1 15.00 ms, of request 2 10.00 ms: 1.50 times"),
            "{said}"
        );
        assert!(
            facts
                .first_token("m", &found("[25.0, 10.0]"))
                .unwrap_err()
                .contains("2.50 times")
        );
        assert!(facts.first_token("m", &found("[25.0]")).is_err());
        assert!(facts.first_token("m", "").is_err());
    }

    #[test]
    fn decode_speed_is_set_beside_the_bandwidth() {
        let mut facts = Facts {
            copy_bandwidth: Some(100e9),
            ..Facts::default()
        };
        let per_token = r#"{"load_ms": 1, "first_token_ms": [1, 1], "pipelines_in_first": 0, "weight_bytes": 100000000, "ops": 300000000, "prompt_ops": 200000000}"#;
        facts.first_token("m", per_token).unwrap();
        let rows = r#"[{"test": "pp512", "tok_per_s": 1000.0}, {"test": "tg64", "tok_per_s": 250.0}]"#;
        assert_eq!(
            facts.bench("m", "wgpu", rows).unwrap(),
            "pp512 1000.0 tok/s, tg64 250.0 tok/s"
        );
        let [prefill, decode] = &facts.speeds[..] else { panic!() };
        assert_eq!((prefill.bytes_per_s, prefill.ops_per_s), (None, Some(2e11)));
        assert_eq!((decode.bytes_per_s, decode.share), (Some(25e9), Some(0.25)));
        let table = facts.speed_table();
        assert!(table.contains("25.0 %") && table.contains("100.0 GB/s"), "{table}");
        // The CPU has no share of the device's bandwidth, an unknown model none of anything.
        facts.bench("m", "cpu", rows).unwrap();
        assert_eq!(facts.speeds[3].share, None);
        facts.bench("other", "wgpu", rows).unwrap();
        assert_eq!(facts.speeds[5].bytes_per_s, None);
        assert!(facts.bench("m", "wgpu", "[]").is_err());
    }
}
