//! `glia run --timings`: where the time of a run went.

use std::fmt::Write;
use std::time::Duration;

use glia_model::Model;

/// Times up to the first token, each with what it was spent on.
pub struct Times {
    open: Duration,
    vocabulary: (Duration, usize),
    packing: (Duration, usize),
    prompt: (Duration, usize),
    /// The first step, and when it had ended, since the program began.
    pub first: Option<(Duration, Duration)>,
}

impl Times {
    /// `open` is finding the file and reading its header, `prompt` the chat template and the tokenizer.
    pub fn new(model: &Model, open: Duration, prompt: Duration, n_prompt: usize) -> Times {
        let times = model.load_times();
        Times {
            open,
            vocabulary: (times.vocabulary, model.tokenizer().vocab_size()),
            packing: (times.packing, model.executor().weight_bytes()),
            prompt: (prompt, n_prompt),
            first: None,
        }
    }

    /// The table, given the tokens that were generated and when the last of them was there, since the program began.
    pub fn table(&self, n_generated: usize, end: Duration) -> String {
        let mut table = format!("{:<12} {:>10}", "timings", "ms");
        let mut row = |name: &str, time: Duration, what: String| {
            let ms = time.as_secs_f64() * 1e3;
            let _ = write!(table, "\n{name:<12} {ms:>10.1}  {what}");
        };
        row("open", self.open, "file and metadata".to_owned());
        let (time, n_tokens) = self.vocabulary;
        row("vocabulary", time, format!("{n_tokens} tokens, while packing"));
        let (time, bytes) = self.packing;
        row("packing", time, format!("{:.1} MB of weights", bytes as f64 / 1e6));
        let (time, n_prompt) = self.prompt;
        row("prompt", time, format!("{n_prompt} tokens"));
        if let Some((step, first)) = self.first {
            row("first step", step, rate(n_prompt, step));
            row("first token", first, "since the program began".to_owned());
            let decode = end.saturating_sub(first);
            row("decode", decode, rate(n_generated.saturating_sub(1), decode));
        }
        table
    }
}

fn rate(n: usize, time: Duration) -> String {
    match n {
        0 => "0 tokens".to_owned(),
        n => format!("{n} tokens, {:.1} tok/s", n as f64 / time.as_secs_f64().max(1e-9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_run() {
        let ms = Duration::from_millis;
        let mut times = Times {
            open: ms(2),
            vocabulary: (ms(40), 49152),
            packing: (ms(90), 98_000_000),
            prompt: (ms(1), 5),
            first: None,
        };
        assert_eq!(times.table(0, ms(140)).lines().count(), 5);
        times.first = Some((ms(20), ms(120)));
        let expected = [
            "timings              ms",
            "open                2.0  file and metadata",
            "vocabulary         40.0  49152 tokens, while packing",
            "packing            90.0  98.0 MB of weights",
            "prompt              1.0  5 tokens",
            "first step         20.0  5 tokens, 250.0 tok/s",
            "first token       120.0  since the program began",
            "decode            500.0  10 tokens, 20.0 tok/s",
        ];
        assert_eq!(times.table(11, ms(620)).lines().collect::<Vec<_>>(), expected);
        assert!(times.table(1, ms(120)).ends_with("0.0  0 tokens"));
    }
}
