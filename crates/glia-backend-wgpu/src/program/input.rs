//! What a step is given, as kernels take it: F32 and I32 words, indices checked against what they pick from.

use std::collections::HashMap;

use glia_core::{BackendError, DType, SeqRows, Step, Tensor, ValueId, read_indices, read_ints};

use super::compiled::Compiled;
use super::download;
use super::output::DeviceTensor;
use super::resources::Trig;

/// An input of the running step.
pub(super) enum Given {
    /// From the host, as words.
    Words(Vec<u32>),
    /// On this device already.
    Device(Tensor),
}

/// Every input by its value.
pub(super) fn on_host(program: &Compiled, step: &Step<'_>) -> Result<HashMap<ValueId, Given>, BackendError> {
    let mut given = HashMap::with_capacity(step.inputs.len());
    for (&id, tensor) in program.segment.inputs.iter().zip(step.inputs) {
        let stays = DeviceTensor::of(&program.gpu, tensor).is_some() && tensor.dtype() == DType::F32;
        given.insert(
            id,
            if stays {
                Given::Device(tensor.clone())
            } else {
                Given::Words(words(&download(&program.gpu, tensor)?)?)
            },
        );
    }
    Ok(given)
}

/// The elements of a host tensor as F32 or I32 words.
pub(super) fn words(tensor: &Tensor) -> Result<Vec<u32>, BackendError> {
    if tensor.dtype().is_int() {
        let name = "input";
        let narrow = |v: i64| {
            i32::try_from(v).map_err(|_| BackendError::InvalidInput {
                op: name.to_owned(),
                reason: format!("{v} does not fit in the 32 bits of an index"),
            })
        };
        let ints = read_ints(name, tensor)?;
        return ints.into_iter().map(|v| Ok(narrow(v)? as u32)).collect();
    }
    crate::weights::plain_words(tensor)
}

/// Checks the indices that inputs hold, as the host does for every backend.
pub(super) fn check_limits(program: &Compiled, given: &HashMap<ValueId, Given>) -> Result<(), BackendError> {
    for limit in &program.limits {
        if let Some(Given::Words(words)) = given.get(&limit.input) {
            let ints: Vec<i32> = words.iter().map(|&w| w as i32).collect();
            let tensor = Tensor::from_i32([ints.len()], &ints)?;
            read_indices(limit.op, &tensor, limit.limit, limit.what)?;
        }
    }
    Ok(())
}

impl Trig {
    /// Whether another table holds the same.
    pub fn is(&self, other: &Trig) -> bool {
        let same = |a: &Tensor, b: &Tensor| matches!((a.bytes(), b.bytes()), (Ok(a), Ok(b)) if a == b);
        self.positions == other.positions
            && self.long_from == other.long_from
            && self.scale.to_bits() == other.scale.to_bits()
            && self.freqs.len() == other.freqs.len()
            && self.freqs.iter().zip(&other.freqs).all(|(a, b)| same(a, b))
    }

    /// Bytes of the table for `n_rows` positions.
    pub fn size_bytes(&self, n_rows: usize) -> u64 {
        8 * (n_rows * self.freqs.first().map_or(0, Tensor::n_elems)) as u64
    }

    /// The cosines of all rows, then the sines. `rows` says which of them belong together.
    pub(super) fn words(&self, given: &HashMap<ValueId, Given>, rows: &[SeqRows]) -> Result<Vec<u32>, BackendError> {
        let Some(Given::Words(words)) = given.get(&self.positions) else {
            return Err(BackendError::InvalidInput {
                op: "rope".to_owned(),
                reason: "positions must come from the host".to_owned(),
            });
        };
        let positions: Vec<i32> = words.iter().map(|&w| w as i32).collect();
        let half = self.freqs.first().map_or(0, Tensor::n_elems);
        let mut out = vec![0; 2 * positions.len() * half];
        let (cos, sin) = out.split_at_mut(positions.len() * half);
        let all = [SeqRows {
            seq: glia_core::SeqId(0),
            first_row: 0,
            n_rows: positions.len(),
            pos: 0,
        }];
        let n_rows: usize = rows.iter().map(|r| r.n_rows).sum();
        // Positions that are not those of the step's rows belong together.
        let rows = if n_rows == positions.len() { rows } else { &all };
        for row in rows {
            let end = (row.first_row + row.n_rows).min(positions.len());
            let own = &positions[row.first_row.min(end)..end];
            let n_tokens = own.iter().map(|&p| i64::from(p) + 1).max().unwrap_or(0);
            let long = self.long_from.is_some_and(|from| n_tokens > from as i64);
            let table = self.freqs.get(usize::from(long)).or(self.freqs.first());
            let Some(freqs) = table else { continue };
            let freqs = freqs.as_f32()?;
            for (i, &position) in own.iter().enumerate() {
                let at = (row.first_row + i) * half;
                for (j, &freq) in freqs.iter().enumerate() {
                    // The angle itself is F32, as the models were trained.
                    let (s, c) = f64::from(position as f32 * freq).sin_cos();
                    cos[at + j] = ((c * f64::from(self.scale)) as f32).to_bits();
                    sin[at + j] = ((s * f64::from(self.scale)) as f32).to_bits();
                }
            }
        }
        Ok(out)
    }
}
