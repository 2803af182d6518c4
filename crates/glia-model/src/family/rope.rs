//! Inverse frequencies of rotary embeddings: every scaling becomes a table of numbers here, so that the op knows none.
//!
//! Formulas after Hugging Face's `modeling_rope_utils` and the papers it cites: linear (kaiokendev 2023), Llama 3.1,
//! YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024), dynamic NTK (bloc97 2023).
//! Transformers makes the base of dynamic NTK anew for each length; here it has two values, so that what was computed for a
//! shorter sequence stays right.

use std::f64::consts::PI;

/// Wider heads than any model has: a claimed size must not become a table.
const MAX_WIDTH: usize = 1 << 16;

/// A rotation ready for the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// One inverse frequency per rotated pair.
    pub inv_freq: Vec<f32>,
    /// LongRoPE: the table for sequences longer than the count of tokens beside it.
    pub long: Option<(Vec<f32>, usize)>,
    /// Factor on cosine and sine.
    pub scale: f32,
}

/// A scaling and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    Default,
    /// Positions divided by `factor`.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Dynamic NTK: as trained up to `original_max` tokens; beyond, the base for `factor` times as many.
    Dynamic {
        /// The factor.
        factor: f64,
        /// Tokens that the model was trained on.
        original_max: usize,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, smoothly between two bounds.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Bound of the long wavelengths.
        low_freq_factor: f64,
        /// Bound of the short wavelengths.
        high_freq_factor: f64,
        /// Tokens of the original training.
        original_max: f64,
    },
    /// YaRN.
    Yarn {
        /// The factor.
        factor: f64,
        /// Factor on cosine and sine; derived when `None`.
        attention_factor: Option<f64>,
        /// Rotations above which a dimension is not scaled.
        beta_fast: f64,
        /// Rotations below which a dimension is fully scaled.
        beta_slow: f64,
        /// `mscale` and `mscale_all_dim`, where both are given.
        mscale: Option<(f64, f64)>,
        /// Tokens of the original training.
        original_max: f64,
        /// Whether the bounds are rounded to whole dimensions.
        truncate: bool,
    },
    /// LongRoPE.
    LongRope {
        /// Divisors up to `original_max` tokens.
        short: Vec<f64>,
        /// Divisors beyond.
        long: Vec<f64>,
        /// Extension over `original_max`.
        factor: f64,
        /// Factor on cosine and sine; derived when `None`.
        attention_factor: Option<f64>,
        /// Tokens of the original training.
        original_max: usize,
    },
    /// Given divisors of the inverse frequencies (GGUF's `rope_freqs.weight`).
    Divisors(Vec<f64>),
}

/// Why a rotation cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rope: {0}")]
pub struct RopeError(pub String);

fn yarn_mscale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * mscale * factor.ln() + 1.0
    }
}

/// The table for `rot` rotated elements (an even number) of each head and base `theta`.
///
/// # Errors
/// [`RopeError`] when a parameter is no usable number or a table has another length than `rot / 2`.
pub fn table(theta: f64, rot: usize, scaling: &RopeScaling) -> Result<RopeTable, RopeError> {
    let error = |reason: String| Err(RopeError(reason));
    if rot == 0 || !rot.is_multiple_of(2) {
        return error(format!("the rotated width must be even and above 0, not {rot}"));
    }
    if rot > MAX_WIDTH {
        return error(format!("the rotated width is {rot}, at most {MAX_WIDTH} is supported"));
    }
    if !(theta.is_finite() && theta > 0.0) {
        return error(format!("the base must be above 0, not {theta}"));
    }
    let half = rot / 2;
    let base: Vec<f64> = (0..half)
        .map(|i| theta.powf(2.0 * i as f64 / rot as f64).recip())
        .collect();
    let positive = |name: &str, x: f64| {
        if x.is_finite() && x > 0.0 {
            Ok(())
        } else {
            Err(RopeError(format!("{name} must be above 0, not {x}")))
        }
    };
    let divided = |divisors: &[f64]| -> Result<Vec<f64>, RopeError> {
        if divisors.len() != half {
            return Err(RopeError(format!(
                "{} frequency factors for {half} pairs",
                divisors.len()
            )));
        }
        divisors.iter().try_for_each(|&d| positive("a frequency factor", d))?;
        // Files keep divisors as f32: the same table, wherever they come from.
        Ok(base
            .iter()
            .zip(divisors)
            .map(|(f, &d)| f / f64::from(d as f32))
            .collect())
    };
    let mut scale = 1.0;
    let mut long_table = None;
    let inv: Vec<f64> = match scaling {
        RopeScaling::Default => base,
        RopeScaling::Linear { factor } => {
            positive("factor", *factor)?;
            base.iter().map(|f| f / factor).collect()
        }
        RopeScaling::Dynamic { factor, original_max } => {
            positive("original length", *original_max as f64)?;
            if !(factor.is_finite() && *factor >= 1.0) {
                return error(format!("factor must be at least 1, not {factor}"));
            }
            if rot > 2 && *factor > 1.0 {
                // The base for a sequence of `factor * original_max` tokens.
                let growth = factor * factor - (factor - 1.0);
                let theta = theta * growth.powf(rot as f64 / (rot as f64 - 2.0));
                let long = (0..half)
                    .map(|i| theta.powf(2.0 * i as f64 / rot as f64).recip())
                    .collect();
                long_table = Some((long, *original_max));
            }
            base
        }
        RopeScaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max,
        } => {
            for (name, x) in [
                ("factor", factor),
                ("low_freq_factor", low),
                ("original length", original_max),
            ] {
                positive(name, *x)?;
            }
            if !(high > low) {
                return error(format!("high_freq_factor {high} must exceed low_freq_factor {low}"));
            }
            let divisor = |&f: &f64| {
                let wavelength = 2.0 * PI / f;
                if wavelength > original_max / low {
                    *factor
                } else if wavelength < original_max / high {
                    1.0
                } else {
                    let smooth = (original_max / wavelength - low) / (high - low);
                    ((1.0 - smooth) / factor + smooth).recip()
                }
            };
            divided(&base.iter().map(divisor).collect::<Vec<_>>())?
        }
        RopeScaling::Yarn {
            factor,
            attention_factor,
            beta_fast,
            beta_slow,
            mscale,
            original_max,
            truncate,
        } => {
            for (name, x) in [("factor", factor), ("beta_fast", beta_fast), ("beta_slow", beta_slow)] {
                positive(name, *x)?;
            }
            positive("original length", *original_max)?;
            scale = attention_factor.unwrap_or_else(|| match mscale {
                Some((m, all)) => yarn_mscale(*factor, *m) / yarn_mscale(*factor, *all),
                None => yarn_mscale(*factor, 1.0),
            });
            let dim_of =
                |rotations: f64| rot as f64 * (original_max / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln());
            let (mut low, mut high) = (dim_of(*beta_fast), dim_of(*beta_slow));
            if *truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            (low, high) = (low.max(0.0), high.min(rot as f64 - 1.0));
            if low == high {
                high += 0.001;
            }
            let blend = |(i, f): (usize, &f64)| {
                let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                f / factor * ramp + f * (1.0 - ramp)
            };
            base.iter().enumerate().map(blend).collect()
        }
        RopeScaling::LongRope {
            short,
            long,
            factor,
            attention_factor,
            original_max,
        } => {
            positive("original length", *original_max as f64)?;
            scale = attention_factor.unwrap_or_else(|| {
                if *factor <= 1.0 {
                    1.0
                } else {
                    (1.0 + factor.ln() / (*original_max as f64).ln()).sqrt()
                }
            });
            long_table = Some((divided(long)?, *original_max));
            divided(short)?
        }
        RopeScaling::Divisors(divisors) => divided(divisors)?,
    };
    if !scale.is_finite() || inv.iter().any(|f| !f.is_finite()) {
        return error("the parameters give no finite frequencies".to_owned());
    }
    let single = |v: Vec<f64>| v.into_iter().map(|f| f as f32).collect::<Vec<f32>>();
    Ok(RopeTable {
        inv_freq: single(inv),
        long: long_table.map(|(v, n)| (single(v), n)),
        scale: scale as f32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_fall_from_one() {
        let t = table(10000.0, 4, &RopeScaling::Default).unwrap();
        assert_eq!(t.inv_freq, [1.0, 0.01]);
    }

    #[test]
    fn dynamic_scaling_is_plain_up_to_the_trained_length() {
        let dynamic = |factor| RopeScaling::Dynamic {
            factor,
            original_max: 64,
        };
        let (plain, t) = (
            table(10000.0, 8, &RopeScaling::Default).unwrap(),
            table(10000.0, 8, &dynamic(2.0)).unwrap(),
        );
        assert_eq!(t.inv_freq, plain.inv_freq);
        let (long, from) = t.long.unwrap();
        // For twice the length the base grows by 3^(8/6).
        let base = 10000.0 * 3f64.powf(8.0 / 6.0);
        assert_eq!((long[1], from), (base.powf(-0.25) as f32, 64));
        assert_eq!(table(10000.0, 8, &dynamic(1.0)).unwrap(), plain);
        assert!(table(10000.0, 8, &dynamic(0.5)).is_err());
        assert!(table(10000.0, 1 << 20, &RopeScaling::Default).is_err());
    }

    #[test]
    fn hostile_parameters_are_refused() {
        for (theta, rot) in [(0.0, 4), (f64::NAN, 4), (1e4, 0), (1e4, 3)] {
            assert!(table(theta, rot, &RopeScaling::Default).is_err(), "{theta} {rot}");
        }
        assert!(table(1e4, 4, &RopeScaling::Linear { factor: 0.0 }).is_err());
        assert!(table(1e4, 4, &RopeScaling::Divisors(vec![1.0])).is_err());
    }
}
