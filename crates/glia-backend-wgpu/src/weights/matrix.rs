//! A weight matrix on the device.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use glia_core::{BackendError, ConstId, Tensor};

use super::{Format, blocks, magnitude};
use crate::gpu::{NAME, Use};
use crate::program::{BufDef, BufId, Lower};

/// Rows `first..first + n_rows` of a matrix, in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub buf: BufId,
    pub first: usize,
    pub n_rows: usize,
    /// Where the scales begin, in words.
    pub scales_at: usize,
}

/// A matrix `[n, k]` in packed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub format: Format,
    pub n: usize,
    pub k: usize,
    pub parts: Vec<Part>,
    /// Whether no finite weight lies beyond the numbers of F16.
    pub fits_f16: bool,
}

/// The matrices of a program, each packed once however many nodes read it.
#[derive(Default)]
pub(crate) struct Matrices(HashMap<Vec<ConstId>, Arc<Matrix>>);

impl Matrices {
    pub fn get(&self, ids: &[ConstId]) -> Option<Arc<Matrix>> {
        self.0.get(ids).cloned()
    }

    pub fn put(&mut self, ids: &[ConstId], matrix: Matrix) -> Arc<Matrix> {
        let matrix = Arc::new(matrix);
        self.0.insert(ids.to_vec(), matrix.clone());
        matrix
    }
}

/// Bytes that are packed between two writes.
const STRETCH_BYTES: usize = 16 << 20;

impl Matrix {
    /// Packs tensors of one dtype and width below each other.
    ///
    /// # Errors
    /// When a tensor cannot be read, its dtype is not supported, or memory is out.
    pub fn upload(lower: &mut Lower<'_>, tensors: &[Tensor]) -> Result<Matrix, BackendError> {
        let first = tensors
            .first()
            .ok_or(BackendError::UnknownId { what: "weight", id: 0 })?;
        let k = first.shape().last_dim();
        let n: usize = tensors.iter().map(rows_of).sum();
        let unsupported = |dtype| BackendError::UnsupportedDtype {
            backend: NAME.to_owned(),
            op: "weight".to_owned(),
            dtype,
        };
        let format = Format::of(first.dtype()).ok_or_else(|| unsupported(first.dtype()))?;
        if let Some(other) = tensors.iter().find(|t| t.dtype() != first.dtype()) {
            return Err(unsupported(other.dtype()));
        }
        let (code_words, scale_words) = (format.code_words(k), format.scale_words(k));
        let row_bytes = 4 * (code_words + scale_words);
        let limit = usize::try_from(lower.caps().max_binding_bytes).unwrap_or(usize::MAX);
        let n_part = (limit / row_bytes.max(1)).min(n).max(1);
        let mut matrix = Matrix {
            format,
            n,
            k,
            parts: Vec::new(),
            fits_f16: true,
        };
        let mut at = 0;
        while at < n {
            let n_rows = n_part.min(n - at);
            let scales_at = n_rows * code_words;
            let bytes = 4 * (scales_at + n_rows * scale_words);
            let buffer = lower.gpu.buffer("weights", Use::Storage, bytes as u64)?;
            lower.count_weight(bytes);
            let rows_at_once = (STRETCH_BYTES / row_bytes.max(1)).max(1);
            let mut done = 0;
            while done < n_rows {
                let some = rows_at_once.min(n_rows - done);
                let (codes, scales) = pack_rows(&format, k, tensors, at + done..at + done + some)?;
                matrix.fits_f16 &= magnitude::fits_f16(&format, &codes, &scales);
                let write = |word: usize, words: &[u32]| {
                    lower
                        .gpu
                        .write(buffer.buffer(), 4 * word as u64, bytemuck::cast_slice(words))
                };
                write(done * code_words, &codes)?;
                if scale_words > 0 {
                    write(scales_at + done * scale_words, &scales)?;
                }
                done += some;
            }
            let buf = lower.add(BufDef::Weight(Arc::new(buffer)));
            matrix.parts.push(Part {
                buf,
                first: at,
                n_rows,
                scales_at,
            });
            at += n_rows;
        }
        Ok(matrix)
    }
}

fn rows_of(tensor: &Tensor) -> usize {
    let dims = tensor.shape().dims();
    dims[..dims.len().saturating_sub(1)].iter().product()
}

/// Codes and scales of these rows of the tensors, which lie below each other, by all cores.
fn pack_rows(
    format: &Format,
    k: usize,
    tensors: &[Tensor],
    rows: Range<usize>,
) -> Result<(Vec<u32>, Vec<u32>), BackendError> {
    let (code_words, scale_words) = (format.code_words(k), format.scale_words(k));
    let mut codes = vec![0; rows.len() * code_words];
    let mut scales = vec![0; rows.len() * scale_words];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Threads are worth starting for some hundred KiB each.
    let n_jobs = (codes.len() / 65_536).clamp(1, threads);
    let each = rows.len().div_ceil(n_jobs).max(1);
    let mut jobs = Vec::with_capacity(n_jobs);
    let (mut codes_left, mut scales_left) = (&mut codes[..], &mut scales[..]);
    for start in rows.clone().step_by(each) {
        let some = start..(start + each).min(rows.end);
        let (codes, codes_after) = codes_left.split_at_mut(some.len() * code_words);
        let (scales, scales_after) = scales_left.split_at_mut(some.len() * scale_words);
        (codes_left, scales_left) = (codes_after, scales_after);
        jobs.push(move || pack_some(format, k, tensors, some, codes, scales));
    }
    let last = jobs.pop();
    std::thread::scope(|scope| {
        let started: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let mut result = last.map_or(Ok(()), |job| job());
        for thread in started {
            let own = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(own);
        }
        result
    })?;
    Ok((codes, scales))
}

fn pack_some(
    format: &Format,
    k: usize,
    tensors: &[Tensor],
    rows: Range<usize>,
    codes: &mut [u32],
    scales: &mut [u32],
) -> Result<(), BackendError> {
    let (code_words, scale_words) = (format.code_words(k), format.scale_words(k));
    let (mut buffer, mut first, mut at) = (Vec::new(), 0, 0);
    for tensor in tensors {
        let n = rows_of(tensor);
        let (start, end) = (rows.start.max(first), rows.end.min(first + n));
        if start < end {
            let row_bytes = tensor.size_bytes() / n.max(1);
            let bytes = tensor.fetch((start - first) * row_bytes..(end - first) * row_bytes, &mut buffer)?;
            for row in 0..end - start {
                let bytes = &bytes[row * row_bytes..(row + 1) * row_bytes];
                let codes = &mut codes[at * code_words..(at + 1) * code_words];
                let scales = &mut scales[at * scale_words..(at + 1) * scale_words];
                blocks::pack_row(format, k, bytes, codes, scales)?;
                at += 1;
            }
        }
        first += n;
    }
    Ok(())
}
