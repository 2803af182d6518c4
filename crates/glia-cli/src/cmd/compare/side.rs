//! The two sides of a comparison: `cpu:exact`, `wgpu+cpu:fast`.

use std::sync::Arc;

use glia_core::{Backend, DType, Precision};
use glia_ir::ExecConfig;
use glia_ir::compare::Side;

use crate::args::{CompareArgs, EngineArgs, PrecisionArg};
use crate::closest::shortened;
use crate::cmd::backends;
use crate::exit::CliError;

/// A side and how it was asked for.
pub struct Named {
    /// As on the command line.
    pub name: String,
    backends: Vec<Arc<dyn Backend>>,
    precision: Precision,
    kv_dtypes: [DType; 2],
}

/// Both sides.
pub fn pair(args: &CompareArgs) -> Result<[Named; 2], CliError> {
    let words: Vec<&str> = args
        .backends
        .split(',')
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .collect();
    let [a, b] = words[..] else {
        let message = format!(
            "--backends names the two sides, such as cpu:exact,cpu:fast; `{}` are {}",
            shortened(&args.backends),
            words.len()
        );
        return Err(CliError::usage(message));
    };
    Ok([side(a, args)?, side(b, args)?])
}

fn side(spec: &str, args: &CompareArgs) -> Result<Named, CliError> {
    let (list, precision) = precision_of(spec)?;
    let precision = precision.unwrap_or(args.precision);
    let engine = EngineArgs {
        threads: args.threads,
        precision,
        cache_type_k: args.cache_type_k,
        cache_type_v: args.cache_type_v,
        backend: String::new(),
        max_step_tokens: 0,
        max_intermediate_bytes: 0,
        no_mmap: false,
        mmap: false,
        pre_tokenizer: None,
    };
    Ok(Named {
        name: shortened(spec),
        backends: backends::open_list("--backends", &list, '+', &engine)?.backends,
        precision: precision.into(),
        kv_dtypes: engine.kv_dtypes(),
    })
}

/// Takes `exact` and `fast` out of the options of a side, which has one precision for all of its backends.
fn precision_of(spec: &str) -> Result<(String, Option<PrecisionArg>), CliError> {
    let mut precision = None;
    let mut backends = Vec::new();
    for backend in spec.split('+') {
        let mut words = Vec::new();
        for word in backend.split(':').map(str::trim) {
            let said = match word {
                "exact" => PrecisionArg::Exact,
                "fast" => PrecisionArg::Fast,
                other => {
                    words.push(other);
                    continue;
                }
            };
            if precision.is_some_and(|p| p != said) {
                return Err(CliError::usage(format!(
                    "--backends: `{}` is both exact and fast: say one",
                    shortened(spec)
                )));
            }
            precision = Some(said);
        }
        backends.push(words.join(":"));
    }
    Ok((backends.join("+"), precision))
}

impl Named {
    /// The side, for a text of so many tokens.
    pub fn side(&self, n_tokens: usize) -> Side {
        Side {
            backends: self.backends.clone(),
            config: ExecConfig::default()
                .with_precision(self.precision)
                .with_kv_dtypes(self.kv_dtypes)
                .with_max_context(n_tokens),
        }
    }

    /// The error from which sides are said to part: rounding alone stays below.
    pub fn usual_limit(sides: &[Named; 2]) -> f64 {
        let fast = sides.iter().any(|s| s.precision == Precision::Fast);
        if fast { 0.2 } else { 1e-3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_has_one_precision() {
        let exact = Some(PrecisionArg::Exact);
        for (spec, expected) in [
            ("cpu", ("cpu", None)),
            ("cpu:exact", ("cpu", exact)),
            ("cpu:portable:exact", ("cpu:portable", exact)),
            ("other:exact+cpu", ("other+cpu", exact)),
            ("other:exact+cpu:exact", ("other+cpu", exact)),
        ] {
            assert_eq!(
                precision_of(spec).unwrap(),
                (expected.0.to_owned(), expected.1),
                "{spec}"
            );
        }
        assert!(
            precision_of("other:exact+cpu:fast")
                .unwrap_err()
                .to_string()
                .contains("both")
        );
    }
}
