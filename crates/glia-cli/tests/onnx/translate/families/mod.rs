//! The families of translations. An op of ONNX joins by a line in the table of its family, a family by a line here.

mod activations;
mod arithmetic;
mod attention;
mod casts;
mod compare;
mod loss;
mod matrix;
mod norms;
mod pick;
mod reduce;
pub mod shapes;
mod windows;

use glia_ir::Vid;

use super::{NodeCx, R, Translator};
use crate::array::Elem;

/// The outputs of a node, with the types that ONNX gives them.
pub type Outputs = R<Vec<(Vid, Elem)>>;

/// Adds the nodes that compute an ONNX node.
pub type Handler = fn(&mut Translator<'_>, &NodeCx<'_>) -> Outputs;

/// The ops of one family.
pub type Family = &'static [(&'static str, Handler)];

const FAMILIES: &[Family] = &[
    activations::FAMILY,
    arithmetic::FAMILY,
    attention::FAMILY,
    casts::FAMILY,
    compare::FAMILY,
    loss::FAMILY,
    matrix::FAMILY,
    norms::FAMILY,
    pick::FAMILY,
    reduce::FAMILY,
    shapes::FAMILY,
    windows::FAMILY,
];

/// The translation of an op of ONNX's own domain.
pub fn find(cx: &NodeCx<'_>) -> Option<Handler> {
    if !cx.domain().is_empty() {
        return None;
    }
    let all = FAMILIES.iter().flat_map(|f| f.iter());
    all.into_iter()
        .find(|(op, _)| *op == cx.op())
        .map(|(_, handler)| *handler)
}

/// One output of the type of input 0.
fn like_first(cx: &NodeCx<'_>, vid: Vid) -> Outputs {
    Ok(vec![(vid, cx.input(0)?.elem)])
}
