//! The sampler: penalties and biases on the logits, then filters on the distribution, then the draw.

use std::collections::HashMap;

use super::{SampleError, SampleParams, SplitMix64};

/// A chosen token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// Natural logarithm of its probability in the unfiltered distribution at temperature 1.
    pub logprob: f32,
}

/// The likeliest tokens of a row, falling, lowest id first on ties.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choices {
    /// Their logits.
    pub logits: Vec<f32>,
    pub ids: Vec<u32>,
    /// The sum of the exponentials of all logits, over that of the likeliest.
    pub total: f32,
}

/// Chooses the tokens of one generation.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SampleParams,
    rng: SplitMix64,
    seen: HashMap<u32, u32>,
}

impl Sampler {
    /// A sampler; without a seed it takes a fresh one.
    ///
    /// # Errors
    /// [`SampleError::Parameter`].
    pub fn new(params: SampleParams) -> Result<Sampler, SampleError> {
        params.check()?;
        let rng = SplitMix64::new(params.seed.unwrap_or_else(SplitMix64::fresh_seed));
        Ok(Sampler {
            params,
            rng,
            seen: HashMap::new(),
        })
    }

    /// Counts a token for the penalties: those of the prompt, and each one generated.
    pub fn accept(&mut self, token: u32) {
        let count = self.seen.entry(token).or_default();
        *count = count.saturating_add(1);
    }

    /// How many of the likeliest tokens decide alone; `None` when all logits are needed.
    pub(crate) fn n_choices(&self) -> Option<usize> {
        let p = &self.params;
        let penalised = p.repeat_penalty != 1.0 || p.presence_penalty != 0.0 || p.frequency_penalty != 0.0;
        match (penalised || !p.logit_bias.is_empty(), p.temperature == 0.0) {
            (true, _) => None,
            (false, true) => Some(1),
            (false, false) => (p.top_k > 0).then_some(p.top_k),
        }
    }

    /// Chooses as [`Sampler::sample`] does, from at least [`Sampler::n_choices`] of the likeliest tokens.
    ///
    /// # Errors
    /// [`SampleError::Logits`] when the likeliest logit, or the sum of all, is not finite.
    pub(crate) fn sample_of(&mut self, choices: &Choices) -> Result<Sampled, SampleError> {
        let max = choices.logits.first().copied().unwrap_or(f32::NAN);
        let usable = max.is_finite() && choices.total.is_finite() && choices.ids.len() == choices.logits.len();
        if !usable {
            return Err(SampleError::Logits {
                what: "NaN, +infinity or no finite value",
                index: choices.ids.first().map_or(0, |&id| id as usize),
            });
        }
        let at = if self.params.temperature == 0.0 {
            0
        } else {
            self.draw(&choices.logits)
        };
        Ok(Sampled {
            token: choices.ids[at],
            logprob: (f64::from(choices.logits[at] - max) - f64::from(choices.total).ln()) as f32,
        })
    }

    /// Chooses a token from logits `[vocab]`.
    ///
    /// # Errors
    /// [`SampleError::Logits`] when a logit is NaN or +inf, or none is finite; [`SampleError::Token`] for a bias
    /// outside the vocabulary.
    pub fn sample(&mut self, logits: &[f32]) -> Result<Sampled, SampleError> {
        if let Some(index) = logits.iter().position(|x| x.is_nan()) {
            return Err(SampleError::Logits { what: "NaN", index });
        }
        if let Some(index) = logits.iter().position(|&x| x == f32::INFINITY) {
            return Err(SampleError::Logits {
                what: "+infinity",
                index,
            });
        }
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if max == f32::NEG_INFINITY {
            return Err(SampleError::Logits {
                what: "no finite value",
                index: 0,
            });
        }
        let log_sum = logits.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln();
        let adjusted = self.adjust(logits)?;
        let scores: &[f32] = adjusted.as_deref().unwrap_or(logits);
        let token = if self.params.temperature == 0.0 {
            argmax(scores)
        } else {
            self.draw(scores)
        };
        let logprob = (f64::from(logits[token] - max) - log_sum) as f32;
        Ok(Sampled {
            token: token as u32,
            logprob,
        })
    }

    /// Penalties and biases; `None` when there are none.
    fn adjust(&self, logits: &[f32]) -> Result<Option<Vec<f32>>, SampleError> {
        let p = &self.params;
        let penalised = p.repeat_penalty != 1.0 || p.presence_penalty != 0.0 || p.frequency_penalty != 0.0;
        if p.logit_bias.is_empty() && (!penalised || self.seen.is_empty()) {
            return Ok(None);
        }
        let mut scores = logits.to_vec();
        if penalised {
            for (&token, &count) in &self.seen {
                if let Some(x) = scores.get_mut(token as usize) {
                    *x = if *x > 0.0 {
                        *x / p.repeat_penalty
                    } else {
                        *x * p.repeat_penalty
                    };
                    *x -= p.presence_penalty + p.frequency_penalty * count as f32;
                }
            }
        }
        for &(token, bias) in &p.logit_bias {
            let vocab = logits.len();
            let x = scores
                .get_mut(token as usize)
                .ok_or(SampleError::Token { token, vocab })?;
            // Beyond +-100 a bias is a ban or a command, however large the logits are.
            *x += match bias {
                b if b <= -100.0 => f32::NEG_INFINITY,
                b if b >= 100.0 => 1e30,
                b => b,
            };
        }
        if scores.iter().all(|&x| x == f32::NEG_INFINITY) {
            return Err(SampleError::Logits {
                what: "no token that is not banned",
                index: 0,
            });
        }
        Ok(Some(scores))
    }

    fn draw(&mut self, scores: &[f32]) -> usize {
        let p = &self.params;
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // A tiny temperature overflows the quotient to -inf, whose exponential is the right 0.
        let weight = |x: f32| (f64::from(x - max) / f64::from(p.temperature)).exp();
        let mut kept: Vec<(usize, f64)> = scores
            .iter()
            .map(|&x| weight(x))
            .enumerate()
            .filter(|c| c.1 > 0.0)
            .collect();
        // Falling weight, lowest id first on ties: a fixed order, whatever the filters.
        let falling = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if p.top_k > 0 && p.top_k < kept.len() {
            kept.select_nth_unstable_by(p.top_k - 1, falling);
            kept.truncate(p.top_k);
        }
        kept.sort_unstable_by(falling);
        if p.top_p < 1.0 {
            let total: f64 = kept.iter().map(|c| c.1).sum();
            let mut sum = 0.0;
            let reached = kept.iter().position(|c| {
                sum += c.1;
                sum >= total * f64::from(p.top_p)
            });
            kept.truncate(reached.map_or(kept.len(), |i| i + 1));
        }
        if p.min_p > 0.0 {
            let floor = kept[0].1 * f64::from(p.min_p);
            kept.retain(|c| c.1 >= floor);
        }
        let total: f64 = kept.iter().map(|c| c.1).sum();
        let mut left = self.rng.next_f64() * total;
        for &(token, weight) in &kept {
            left -= weight;
            if left < 0.0 {
                return token;
            }
        }
        kept[kept.len() - 1].0
    }
}

/// Index of the largest value, lowest on ties. The slice is not empty and holds no NaN.
fn argmax(scores: &[f32]) -> usize {
    scores
        .iter()
        .enumerate()
        .fold(0, |best, (i, &x)| if x > scores[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(params: SampleParams) -> Sampler {
        Sampler::new(params).unwrap()
    }

    #[test]
    fn bad_logits_are_an_error_and_never_token_zero() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let cases: [&[f32]; 6] = [
            &[nan, 1.0, 2.0],
            &[1.0, nan, 2.0],
            &[1.0, 2.0, nan],
            &[nan; 3],
            &[1.0, inf, 0.0],
            &[-inf; 3],
        ];
        for temperature in [0.0, 0.8] {
            for logits in cases {
                let mut s = sampler(SampleParams {
                    temperature,
                    ..Default::default()
                });
                assert!(
                    matches!(s.sample(logits), Err(SampleError::Logits { .. })),
                    "{logits:?}"
                );
            }
        }
        assert!(matches!(
            sampler(SampleParams::default()).sample(&[]),
            Err(SampleError::Logits { .. })
        ));
    }

    #[test]
    fn top_k_zero_and_beyond_the_vocabulary_are_off() {
        let logits: Vec<f32> = (0..20).map(|i| (i as f32 * 0.7).sin()).collect();
        let draw = |top_k| {
            let mut s = sampler(SampleParams {
                temperature: 1.0,
                top_k,
                seed: Some(7),
                ..Default::default()
            });
            (0..50).map(|_| s.sample(&logits).unwrap().token).collect::<Vec<_>>()
        };
        let off = draw(0);
        for k in [20, 21, i32::MAX as usize] {
            assert_eq!(draw(k), off);
        }
        let best = argmax(&logits) as u32;
        assert!(draw(1).iter().all(|&t| t == best));
        assert!(off.iter().any(|&t| t != best));
    }

    #[test]
    fn penalties_follow_the_sign_of_the_logit() {
        let mut s = sampler(SampleParams {
            repeat_penalty: 1.5,
            ..Default::default()
        });
        s.accept(0);
        s.accept(1);
        assert_eq!(s.adjust(&[-2.0, 1.0]).unwrap().unwrap(), [-3.0, 1.0 / 1.5]);
        let mut s = sampler(SampleParams {
            presence_penalty: -1.0,
            ..Default::default()
        });
        s.accept(0);
        assert_eq!(s.adjust(&[0.0, 0.0]).unwrap().unwrap(), [1.0, 0.0]);
        assert!(
            SampleParams {
                presence_penalty: 2.5,
                ..Default::default()
            }
            .check()
            .is_err()
        );
    }

    #[test]
    fn temperature_zero_is_argmax_whatever_the_seed() {
        let logits = [1.0, 3.0, 3.0, 2.0];
        for temperature in [0.0, -0.0] {
            for seed in 0..5 {
                let mut s = sampler(SampleParams {
                    temperature,
                    seed: Some(seed),
                    ..Default::default()
                });
                assert_eq!(s.sample(&logits).unwrap().token, 1);
            }
        }
        let mut tiny = sampler(SampleParams {
            temperature: 1e-9,
            seed: Some(1),
            ..Default::default()
        });
        assert_eq!(tiny.sample(&[0.0, 5.0, 1.0]).unwrap().token, 1);
        for bad in [-1.0, f32::NAN, f32::INFINITY] {
            assert!(
                SampleParams {
                    temperature: bad,
                    ..Default::default()
                }
                .check()
                .is_err()
            );
        }
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let logits: Vec<f32> = (0..100).map(|i| (i as f32).cos()).collect();
        let draw = |seed| {
            let mut s = sampler(SampleParams {
                temperature: 0.8,
                seed,
                ..Default::default()
            });
            (0..30).map(|_| s.sample(&logits).unwrap().token).collect::<Vec<_>>()
        };
        assert_eq!(draw(Some(42)), draw(Some(42)));
        assert_ne!(draw(Some(42)), draw(Some(43)));
        assert_ne!(draw(None), draw(None));
    }

    #[test]
    fn bias_bans_and_forces() {
        let logits = [5.0, 1.0, 0.0];
        let pick = |logit_bias| {
            let mut s = sampler(SampleParams {
                logit_bias,
                ..Default::default()
            });
            s.sample(&logits).map(|c| c.token)
        };
        assert_eq!(pick(vec![(0, -100.0)]), Ok(1));
        assert_eq!(pick(vec![(2, 100.0)]), Ok(2));
        assert_eq!(pick(vec![(3, 1.0)]), Err(SampleError::Token { token: 3, vocab: 3 }));
    }

    #[test]
    fn the_likeliest_alone_decide_the_same() {
        let logits: Vec<f32> = (0..300).map(|i| (i as f32 * 0.37).sin() * 4.0).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        order.truncate(64);
        let max = logits[order[0]];
        let choices = Choices {
            logits: order.iter().map(|&i| logits[i]).collect(),
            ids: order.iter().map(|&i| i as u32).collect(),
            total: logits.iter().map(|x| (x - max).exp()).sum(),
        };
        for (temperature, top_k, top_p, min_p) in [
            (0.0, 0, 1.0, 0.0),
            (0.8, 40, 0.9, 0.0),
            (1.5, 64, 1.0, 0.05),
            (0.7, 1, 0.5, 0.0),
        ] {
            let params = SampleParams {
                temperature,
                top_k,
                top_p,
                min_p,
                seed: Some(11),
                ..Default::default()
            };
            let (mut all, mut few) = (sampler(params.clone()), sampler(params));
            assert!(few.n_choices().unwrap() <= 64);
            for _ in 0..100 {
                let (a, b) = (all.sample(&logits).unwrap(), few.sample_of(&choices).unwrap());
                assert_eq!(a.token, b.token);
                assert!((a.logprob - b.logprob).abs() < 1e-5);
            }
        }
        let penalised = SampleParams {
            repeat_penalty: 1.1,
            ..Default::default()
        };
        assert_eq!(sampler(penalised).n_choices(), None);
        let free = SampleParams {
            temperature: 1.0,
            ..Default::default()
        };
        assert_eq!(sampler(free).n_choices(), None);
    }

    #[test]
    fn logprob_is_that_of_the_raw_distribution() {
        let logits = [1.0f32, 2.0, 0.5];
        let sum: f32 = logits.iter().map(|x| x.exp()).sum();
        let mut s = sampler(SampleParams {
            temperature: 0.3,
            top_k: 1,
            seed: Some(1),
            ..Default::default()
        });
        let sampled = s.sample(&logits).unwrap();
        assert!((sampled.logprob - (2.0 - sum.ln())).abs() < 1e-6);
    }
}
