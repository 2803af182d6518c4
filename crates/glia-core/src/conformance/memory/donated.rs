//! Values that are used up: a backend may put an output where its input was once nobody reads that any more. Each piece
//! takes a value that lives on in one of several ways, or does not.

use super::middles::{MIDDLES, Middle};
use crate::conformance::case::{Cx, List, Outcome};
use crate::conformance::data::{Random, noise};
use crate::conformance::segment::{Action, Built, Check, SegmentBuilder, Setup, Slots, Wanted, check};
use crate::{Binary, DType, Dim, Gate, Op, Unary, ValueId};

/// How the value lives on beside the node that may use it up.
#[derive(Clone, Copy)]
enum Life {
    /// It does not.
    Ends,
    /// It is returned.
    Returned,
    /// A later node reads it.
    ReadLater,
    /// A later node reads a view of it.
    ViewReadLater,
    /// The node reads a view, a later one the value itself.
    ReadUnderView,
    /// It is the caller's, and read later.
    Given,
}

const LIVES: [(Life, &str); 6] = [
    (Life::Ends, "a value that nobody else reads"),
    (Life::Returned, "a value that is returned"),
    (Life::ReadLater, "a value that is read later"),
    (Life::ViewReadLater, "a value a view of which is read later"),
    (Life::ReadUnderView, "a view of a value that is read later"),
    (Life::Given, "an input of the step"),
];

/// Pieces of which one operand of several is the value, or that are one of a model's.
const PIECES: &[Middle] = &[
    ("add_left", |b, h| with_other(b, Op::Binary(Binary::Add), h, true)),
    ("add_right", |b, h| with_other(b, Op::Binary(Binary::Add), h, false)),
    ("sub_left", |b, h| with_other(b, Op::Binary(Binary::Sub), h, true)),
    ("sub_right", |b, h| with_other(b, Op::Binary(Binary::Sub), h, false)),
    ("mul_left", |b, h| with_other(b, Op::Binary(Binary::Mul), h, true)),
    ("mul_right", |b, h| with_other(b, Op::Binary(Binary::Mul), h, false)),
    ("swiglu_left", |b, h| with_other(b, Op::Gated(Gate::Silu), h, true)),
    ("swiglu_right", |b, h| with_other(b, Op::Gated(Gate::Silu), h, false)),
    ("add_of_rows_and_columns", |b, h| {
        let one = Op::Slice {
            axis: 1,
            start: 2,
            end: Some(3),
        };
        let column = b.one("column", one, &[h]);
        b.one("y", Op::Binary(Binary::Add), &[h, column])
    }),
    ("residual", |b, h| {
        let w = b.weight("w", noise(DType::F32, &[16, 16], 0.5, &mut Random::of("residual")));
        let y = b.one("product", Op::MatMul, &[h, w]);
        b.one("y", Op::Binary(Binary::Add), &[h, y])
    }),
    ("product_and_bias", |b, h| {
        let w = b.weight("w", noise(DType::F32, &[16, 16], 0.5, &mut Random::of("biased")));
        let bias = b.weight("bias", noise(DType::F32, &[16], 1.0, &mut Random::of("bias")));
        b.one("y", Op::MatMul, &[h, w, bias])
    }),
    ("rms_norm_and_gain", |b, h| {
        let gain = b.weight("gain", noise(DType::F32, &[16], 1.0, &mut Random::of("gain")));
        let op = Op::RmsNorm {
            eps: 1e-5,
            plus_one: true,
        };
        b.one("y", op, &[h, gain])
    }),
    ("layer_norm_gain_bias", |b, h| {
        let gain = b.weight("gain", noise(DType::F32, &[16], 1.0, &mut Random::of("gain")));
        let bias = b.weight("bias", noise(DType::F32, &[16], 1.0, &mut Random::of("bias")));
        b.one("y", Op::LayerNorm { eps: 1e-5 }, &[h, gain, bias])
    }),
    ("cast_of_same_size", |b, h| {
        let scaled = b.one("scaled", Op::Scale { factor: 50.0 }, &[h]);
        let whole = b.one("whole", Op::Cast { to: DType::I32 }, &[scaled]);
        b.one("y", Op::Cast { to: DType::F32 }, &[whole])
    }),
    ("tanh_of_tanh", |b, h| {
        let y = b.one("inner", Op::Unary(Unary::Tanh), &[h]);
        b.one("y", Op::Unary(Unary::Tanh), &[y])
    }),
    ("view_of_output", |b, h| {
        let y = b.one("made", Op::Unary(Unary::Relu), &[h]);
        b.one("y", Op::Reshape { dims: vec![-1, 2, 8] }, &[y])
    }),
];

/// An op of the value and one that was made of it before.
fn with_other(b: &mut SegmentBuilder, op: Op, h: ValueId, left: bool) -> ValueId {
    let other = b.one("other", Op::Unary(Unary::Sigmoid), &[h]);
    b.one("y", op, &if left { [h, other] } else { [other, h] })
}

pub(super) fn add(list: &mut List) {
    for &(name, piece) in MIDDLES.iter().chain(PIECES) {
        list.check("memory", format!("donated_to_{name}"), move |cx| {
            donated(cx, name, piece)
        });
    }
}

fn donated(cx: &Cx, name: &str, piece: fn(&mut SegmentBuilder, ValueId) -> ValueId) -> Outcome {
    let step = |tokens| Action::Step(vec![(1, tokens)], Wanted::All);
    let mut unsupported = None;
    for interpret in [false, true] {
        for (life, called) in LIVES {
            let setup = Setup {
                interpret,
                ..Setup::default()
            };
            let script = vec![Action::Create(1), step(0..3), step(3..4)];
            let what = format!("{name} of {called}");
            match check(cx, &Check::new(what, living(life, piece), setup, script)) {
                Outcome::Passed => {}
                Outcome::Unsupported(said) => unsupported = Some(said),
                failed => return failed,
            }
        }
    }
    unsupported.map_or(Outcome::Passed, Outcome::Unsupported)
}

/// The piece on a value with this life.
fn living(life: Life, piece: fn(&mut SegmentBuilder, ValueId) -> ValueId) -> Built {
    let mut b = SegmentBuilder::default();
    let x = b.input("x", DType::F32, [Dim::T, 16.into()]);
    let read = |b: &mut SegmentBuilder, id| b.one("later", Op::Scale { factor: 3.0 }, &[id]);
    let value = |b: &mut SegmentBuilder| b.one("value", Op::Scale { factor: 0.75 }, &[x]);
    let view = |b: &mut SegmentBuilder, id| b.one("view", Op::Reshape { dims: vec![-1, 4, 4] }, &[id]);
    let outputs = match life {
        Life::Ends => {
            let h = value(&mut b);
            vec![piece(&mut b, h)]
        }
        Life::Returned => {
            let h = value(&mut b);
            vec![piece(&mut b, h), h]
        }
        Life::ReadLater => {
            let h = value(&mut b);
            vec![piece(&mut b, h), read(&mut b, h)]
        }
        Life::ViewReadLater => {
            let h = value(&mut b);
            let seen = view(&mut b, h);
            vec![piece(&mut b, h), read(&mut b, seen)]
        }
        Life::ReadUnderView => {
            let h = value(&mut b);
            let cut = view(&mut b, h);
            let flat = b.one("flat", Op::Reshape { dims: vec![-1, 16] }, &[cut]);
            vec![piece(&mut b, flat), read(&mut b, h)]
        }
        Life::Given => vec![piece(&mut b, x), read(&mut b, x)],
    };
    b.finish(&outputs, Slots::Shared)
}
