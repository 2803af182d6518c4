//! Steps of the sizes of real layers, for runs that measure speed: a token behind a past, a prompt. Bytes and
//! operations are the segment's own counts.

use std::ops::Range;
use std::sync::Arc;

use super::blocks::{LAYER, Layer, Net, attention_of, decoder_of, encoder_of, mlp_of};
use super::{Action, Built, Check, Rig, Setup, Wanted, check, support};
use crate::conformance::case::{Body, Case, Cx, List, Outcome};
use crate::conformance::op::Timing;
use crate::{Backend, BackendError, Cost, DType, Precision, Sizes};

const WIDTH: usize = 1024;
const INNER: usize = 2816;
/// Most rows of a step that brings a sequence to its depth.
const CHUNK: i32 = 256;
/// Tokens that a step of one row is behind, and rows of a prompt.
const DEPTH: i32 = 1000;
const PROMPT: i32 = 128;

const WIDE: Layer = Layer {
    width: WIDTH,
    heads: 16,
    kv_heads: 4,
    dim: 64,
    ..LAYER
};

/// A step of a segment behind some tokens.
#[derive(Clone, Copy)]
pub(in crate::conformance) struct StepCase {
    name: &'static str,
    build: fn(Net) -> Built,
    dtype: DType,
    /// Tokens before the step, and its rows.
    depth: i32,
    rows: i32,
}

/// A step of `rows` rows behind `depth` tokens.
const fn step(name: &'static str, build: fn(Net) -> Built, depth: i32, rows: i32) -> StepCase {
    StepCase {
        name,
        build,
        dtype: DType::F32,
        depth,
        rows,
    }
}

/// What is timed, with matrices of every dtype below.
const STEPS: [StepCase; 7] = [
    step("attention_decode", |net| attention_of(net, WIDE), DEPTH, 1),
    step("attention_prefill", |net| attention_of(net, WIDE), 0, PROMPT),
    step("gated_mlp_decode", mlp_of, 0, 1),
    step("gated_mlp_prefill", mlp_of, 0, PROMPT),
    step("encoder", encoder_of, 0, PROMPT),
    step("decoder_decode", |net| decoder_of(net, [WIDE; 2]), DEPTH, 1),
    step("decoder_prefill", |net| decoder_of(net, [WIDE; 2]), 0, PROMPT),
];

const DTYPES: [DType; 3] = [DType::F32, DType::Q8_0, DType::Q4_0];

pub(in crate::conformance) fn add_speed(list: &mut List) {
    for step in STEPS {
        for dtype in DTYPES {
            let case = StepCase { dtype, ..step };
            list.cases.push(Case {
                group: "segment",
                name: format!("speed_{}_{dtype}", step.name),
                covers: None,
                speed_only: true,
                body: Body::Steps(case),
            });
        }
    }
}

impl StepCase {
    fn built(&self) -> Built {
        (self.build)(Net::of_width(self.name, self.dtype, WIDTH, INNER))
    }

    fn setup() -> Setup {
        Setup {
            precision: Precision::Fast,
            kv: DType::F16,
            ..Setup::default()
        }
    }

    /// Whether a short script is right at these widths; what is fast must be right too.
    pub fn run(&self, cx: &Cx) -> Outcome {
        let built = self.built();
        if !support(&*cx.backend, &built).0 {
            return Outcome::Unsupported(format!("{} does not run all of {}", cx.backend.name(), self.name));
        }
        let step = |tokens: Range<i32>| Action::Step(vec![(1, tokens)], Wanted::Last);
        let script = vec![Action::Create(1), step(0..3), step(3..4)];
        check(
            cx,
            &Check::new(self.name, built, StepCase::setup(), script).weights(self.dtype),
        )
    }

    /// Time of the step, beside what the segment says that it moves and computes at least.
    ///
    /// # Errors
    /// What the backend says.
    pub fn time(&self, backend: &Arc<dyn Backend>) -> Result<Timing, BackendError> {
        let built = self.built();
        let mut rig = Rig::new(backend, &built, StepCase::setup())?;
        let said = |what: String| BackendError::invalid("speed", what);
        rig.act(&Action::Create(1)).map_err(said)?;
        for from in (0..self.depth).step_by(CHUNK as usize) {
            let to = self.depth.min(from + CHUNK);
            rig.act(&Action::Step(vec![(1, from..to)], Wanted::Last))
                .map_err(said)?;
        }
        let rows = self.depth..self.depth + self.rows;
        let time = rig.time(&[(1, rows)], &[self.rows as u32 - 1])?;
        let cost = self.cost(&built).ok_or_else(|| said("sizes overflow".to_owned()))?;
        Ok(Timing {
            time,
            n_chained: 1,
            bytes: cost.bytes(),
            ops: cost.ops,
        })
    }

    fn cost(&self, built: &Built) -> Option<Cost> {
        let sizes = Sizes {
            t: self.rows as usize,
            p: self.depth as usize,
            r: 1,
            n: 1,
            s: 0,
        };
        let mut all = Cost::default();
        for instr in &built.segment.instrs {
            all += built.segment.cost(instr, &sizes, &[sizes], [DType::F16; 2])?;
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &str, dtype: DType) -> Cost {
        let step = STEPS.into_iter().find(|s| s.name == name).unwrap();
        let case = StepCase { dtype, ..step };
        case.cost(&case.built()).unwrap()
    }

    #[test]
    fn steps_count_weights_cache_and_products() {
        let decode = cost("attention_decode", DType::F32);
        // Four projections, a gain, and the table of frequencies for queries and for keys.
        let matrices = (1024 * 1024 * 2 + 256 * 1024 * 2) as u64;
        assert_eq!(decode.weight_bytes, 4 * (matrices + 1024 + 2 * 32));
        // One row of keys and values is appended, 1001 are read, each of four heads of 64 in halves.
        assert_eq!(decode.cache_bytes, 2 * 2 * 256 * (1 + 1001));
        assert!(decode.ops > 2 * matrices + 1001 * 16 * 4 * 64, "{decode:?}");
        let prefill = cost("attention_prefill", DType::F32);
        assert_eq!(prefill.weight_bytes, decode.weight_bytes);
        assert!(prefill.ops > 128 * 2 * matrices, "{prefill:?}");
        let (f32, q8) = (
            cost("gated_mlp_decode", DType::F32),
            cost("gated_mlp_decode", DType::Q8_0),
        );
        assert_eq!((f32.ops, f32.cache_bytes), (q8.ops, 0));
        assert_eq!(q8.weight_bytes, 3 * 1024 * 2816 / 32 * 34 + 4 * 1024);
    }
}
