//! From logits to a token: greedy, temperature, top-k, top-p, min-p, penalties, with a seed per generation.

mod chain;
mod rng;

pub(crate) use chain::Choices;
pub use chain::{Sampled, Sampler};
pub use rng::SplitMix64;

/// Why sampling parameters or logits were refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A parameter is out of range.
    #[error("{name} must be {expected}, not {got}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What is allowed.
        expected: &'static str,
        /// What was given.
        got: String,
    },
    /// The logits hold no usable distribution.
    #[error("the logits hold {what} (first at token {index}): the weights are damaged or the step overflowed")]
    Logits {
        /// NaN, or infinities.
        what: &'static str,
        /// First bad token.
        index: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Vocabulary size.
        vocab: usize,
    },
}

/// How to choose tokens. The default is greedy.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleParams {
    /// 0 is greedy (lowest id on ties, whatever the seed).
    pub temperature: f32,
    /// Keep the `k` likeliest; 0 is off, as is anything from the vocabulary size on.
    pub top_k: usize,
    /// Keep the likeliest until their probability reaches this; 1 is off.
    pub top_p: f32,
    /// Keep what has at least this share of the likeliest's probability; 0 is off.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted from the logits of tokens seen, -2 to 2.
    pub presence_penalty: f32,
    /// Subtracted per time that a token was seen, -2 to 2.
    pub frequency_penalty: f32,
    /// Added to logits of single tokens; -100 and below bans, +100 and above forces.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same text. `None` takes a fresh one per generation.
    pub seed: Option<u64>,
}

impl Default for SampleParams {
    fn default() -> SampleParams {
        SampleParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SampleParams {
    /// Checks every range.
    ///
    /// # Errors
    /// [`SampleError::Parameter`] naming the first that is out of range.
    pub fn check(&self) -> Result<(), SampleError> {
        let ranges: [(&'static str, f32, std::ops::RangeInclusive<f32>, &'static str); 6] = [
            ("temperature", self.temperature, 0.0..=f32::MAX, "finite and at least 0"),
            ("top-p", self.top_p, 0.0..=1.0, "between 0 and 1"),
            ("min-p", self.min_p, 0.0..=1.0, "between 0 and 1"),
            (
                "repeat penalty",
                self.repeat_penalty,
                f32::MIN_POSITIVE..=f32::MAX,
                "finite and above 0",
            ),
            (
                "presence penalty",
                self.presence_penalty,
                -2.0..=2.0,
                "between -2 and 2",
            ),
            (
                "frequency penalty",
                self.frequency_penalty,
                -2.0..=2.0,
                "between -2 and 2",
            ),
        ];
        for (name, value, range, expected) in ranges {
            if !range.contains(&value) {
                return Err(SampleError::Parameter {
                    name,
                    expected,
                    got: value.to_string(),
                });
            }
        }
        if let Some((_, bias)) = self.logit_bias.iter().find(|(_, b)| !b.is_finite()) {
            let expected = "finite (use -100 to ban a token)";
            return Err(SampleError::Parameter {
                name: "logit bias",
                expected,
                got: bias.to_string(),
            });
        }
        Ok(())
    }
}
