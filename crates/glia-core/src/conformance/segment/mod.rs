//! Whole small segments, run through what the backend compiles or through the interpreter, against the oracle.

mod blame;
mod blocks;
mod builder;
mod compare;
mod mixed;
mod script;
mod speed;
mod views;

pub(super) use blocks::{attention_layer, walk};
pub(super) use builder::{Built, SegmentBuilder, Slots};
pub(super) use compare::{Check, Given, check, given};
pub(super) use mixed::MixedBackend;
pub(super) use script::{Action, Bad, Event, Rig, Setup, Wanted, support, takes};
pub(super) use speed::{StepCase, add_speed};

use super::case::List;
use crate::{DType, Precision};

/// A family of segments: a name, and what builds it with matrices of a dtype. A new model family adds a line.
pub(super) type Family = (&'static str, fn(DType) -> Built);

pub(super) const FAMILIES: &[Family] = &[
    ("attention", blocks::attention),
    ("attention_window", blocks::attention_window),
    ("attention_softcap", blocks::attention_softcap),
    ("attention_long_rope", blocks::attention_long_rope),
    ("gated_mlp", blocks::gated_mlp),
    ("encoder", blocks::encoder),
    ("tied_head", blocks::tied_head),
    ("decoder", blocks::decoder),
    ("views", views::views),
    ("slices", views::slices),
    ("same_operand", views::same_operand),
    ("weights_as_views", views::weights_as_views),
    ("many_outputs", views::many_outputs),
];

/// Dtypes of matrices, with the precision and the dtype of caches that go with them.
const KINDS: [(&str, DType, Precision, DType); 5] = [
    ("f32", DType::F32, Precision::Exact, DType::F32),
    ("f32_fast", DType::F32, Precision::Fast, DType::F16),
    ("q8_0", DType::Q8_0, Precision::Exact, DType::F32),
    ("q8_0_fast", DType::Q8_0, Precision::Fast, DType::F16),
    ("q4_k_fast", DType::Q4_K, Precision::Fast, DType::F16),
];

pub(super) fn add(list: &mut List) {
    for &(family, build) in FAMILIES {
        for (kind, dtype, precision, kv) in KINDS {
            list.check("segment", format!("{family}_{kind}"), move |cx| {
                let setup = Setup {
                    precision,
                    kv,
                    ..Setup::default()
                };
                check(
                    cx,
                    &Check::new(family, build(dtype), setup, walk(family)).weights(dtype),
                )
            });
        }
    }
}
