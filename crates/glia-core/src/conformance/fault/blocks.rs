//! Mistakes in reading blocks of quantised weights.

use super::{Fault, shaped, with_input};
use crate::{DType, Op, Tensor};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        says: "the order of nibbles: byte i of a block holds elements i (low) and i + 16 (high), not 2i and 2i + 1",
        wrong: |op, inputs| decoded(op, inputs, DType::Q4_0, |block, i| q4_0(block, i % 2 * 16 + i / 2)),
    },
    Fault {
        says: "the nibbles of a block are exchanged: the low one is element i, the high one i + 16",
        wrong: |op, inputs| decoded(op, inputs, DType::Q4_0, |block, i| q4_0(block, (i + 16) % 32)),
    },
    Fault {
        says: "nibbles without their offset: an element is scale * (nibble - 8)",
        wrong: |op, inputs| decoded(op, inputs, DType::Q4_0, |block, i| q4_0(block, i) + 8.0 * scale(block)),
    },
    Fault {
        says: "bytes read as unsigned: elements of Q8_0 are signed",
        wrong: |op, inputs| {
            decoded(op, inputs, DType::Q8_0, |block, i| {
                scale(block) * f64::from(block[2 + i])
            })
        },
    },
    Fault {
        says: "the scale of the first block is used for all blocks of a row",
        wrong: |op, inputs| first_scale(op, inputs, false),
    },
    Fault {
        says: "the scale of the first block is used for all blocks of the weight",
        wrong: |op, inputs| first_scale(op, inputs, true),
    },
];

fn scale(block: &[u8]) -> f64 {
    half::f16::from_le_bytes([block[0], block[1]]).to_f64()
}

/// Element `i` of a block of Q4_0.
fn q4_0(block: &[u8], i: usize) -> f64 {
    let byte = block[2 + i % 16];
    let nibble = if i < 16 { byte & 15 } else { byte >> 4 };
    scale(block) * (f64::from(nibble) - 8.0)
}

/// Which input holds blocks.
fn weight_of(op: &Op) -> Option<usize> {
    match op {
        Op::MatMul | Op::TokenEmbed => Some(1),
        Op::Cast { .. } => Some(0),
        _ => None,
    }
}

/// The answer with another element `i` of each block.
fn decoded(op: &Op, inputs: &[Tensor], dtype: DType, element: fn(&[u8], usize) -> f64) -> Option<Vec<Tensor>> {
    let at = weight_of(op)?;
    let weight = inputs.get(at).filter(|t| t.dtype() == dtype)?;
    let blocks = weight.bytes().ok()?.chunks_exact(dtype.block_bytes());
    let all: Vec<f64> = blocks
        .flat_map(|block| (0..dtype.block_elems()).map(move |i| element(block, i)))
        .collect();
    with_input(op, inputs, at, shaped(DType::F32, weight.shape(), &all))
}

fn first_scale(op: &Op, inputs: &[Tensor], of_all: bool) -> Option<Vec<Tensor>> {
    let at = weight_of(op)?;
    // Formats whose blocks begin with their scale.
    let begins = [DType::Q4_0, DType::Q8_0, DType::Q5_0, DType::IQ4_NL];
    let weight = inputs.get(at).filter(|t| begins.contains(&t.dtype()))?;
    let dtype = weight.dtype();
    let elems = if of_all {
        weight.n_elems()
    } else {
        weight.shape().last_dim()
    };
    let n_blocks = (elems / dtype.block_elems()).max(1);
    let mut bytes = weight.bytes().ok()?.to_vec();
    for row in bytes.chunks_mut(n_blocks * dtype.block_bytes()) {
        let first = [row[0], row[1]];
        row.chunks_mut(dtype.block_bytes())
            .for_each(|block| block[..2].copy_from_slice(&first));
    }
    with_input(op, inputs, at, Tensor::from_bytes(dtype, *weight.shape(), &bytes).ok()?)
}
