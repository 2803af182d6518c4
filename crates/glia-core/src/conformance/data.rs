//! Numbers and tensors of the cases: fixed seeds, blocks of every quantised dtype, inputs between guard bytes.

use std::sync::Arc;

use crate::storage::ALIGN_BYTES;
use crate::{ByteSource, DType, Tensor, quant};

/// SplitMix64 (Steele, Lea & Flood 2014).
pub(super) struct Random(u64);

impl Random {
    /// The stream of a name: every case has numbers of its own, the same ones in every run.
    pub fn of(name: &str) -> Random {
        // FNV-1a.
        let fold = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In -1..1, a multiple of 2^-23.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }

    pub fn floats(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| self.float() * size).collect()
    }
}

/// `values` as a plain dtype; integers are rounded.
pub(super) fn plain(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|&v| match dtype {
            DType::F32 => (v as f32).to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(v).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f64(v).to_le_bytes().to_vec(),
            DType::F64 => v.to_le_bytes().to_vec(),
            DType::I8 => (v as i8).to_le_bytes().to_vec(),
            DType::I16 => (v as i16).to_le_bytes().to_vec(),
            DType::I32 => (v as i32).to_le_bytes().to_vec(),
            DType::I64 => (v as i64).to_le_bytes().to_vec(),
            DType::U8 => vec![v as u8],
            _ => vec![u8::from(v != 0.0)],
        })
        .collect();
    built(dtype, shape, &bytes)
}

fn built(dtype: DType, shape: &[usize], bytes: &[u8]) -> Tensor {
    Tensor::from_bytes(dtype, shape, bytes).expect("the shape of a case fits its values")
}

/// Numbers of about `size` in any dtype. Formats without an encoder get random blocks whose values are ordinary.
pub(super) fn noise(dtype: DType, shape: &[usize], size: f32, random: &mut Random) -> Tensor {
    let n: usize = shape.iter().product();
    if dtype.is_int() || dtype == DType::Bool {
        let values: Vec<f64> = (0..n).map(|_| (random.next() % 100) as f64).collect();
        return plain(dtype, shape, &values);
    }
    let values = random.floats(n, size);
    if !dtype.is_quantized() {
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        return plain(dtype, shape, &values);
    }
    let mut bytes = vec![0u8; dtype.size_bytes(n).expect("whole blocks")];
    if quant::can_quantize(dtype) {
        quant::quantize(dtype, &values, &mut bytes).expect("finite values are encoded");
        return built(dtype, shape, &bytes);
    }
    let mut decoded = vec![0f32; dtype.block_elems()];
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        loop {
            for word in block.chunks_mut(8) {
                word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
            }
            quant::dequantize(dtype, block, &mut decoded).expect("one whole block");
            let most = decoded
                .iter()
                .fold(0f32, |m, v| if v.is_finite() { m.max(v.abs()) } else { f32::NAN });
            if most > size / 8.0 && most < size * 2.0 && decoded.iter().all(|v| v.is_finite()) {
                break;
            }
        }
    }
    built(dtype, shape, &bytes)
}

/// Bytes of a tensor in the middle of guard bytes.
#[derive(Debug)]
pub(super) struct Guarded {
    all: Vec<u8>,
    start: usize,
    len: usize,
}

/// Guard bytes on either side, at least.
const GUARD_BYTES: usize = 4 * ALIGN_BYTES;

impl ByteSource for Guarded {
    fn bytes(&self) -> &[u8] {
        &self.all
    }
}

impl Guarded {
    fn guard(i: usize) -> u8 {
        0xa5 ^ (i as u8).wrapping_mul(31)
    }

    /// A tensor of the same bytes between guard bytes, and the guard that later says whether all are as they were.
    pub fn tensor(tensor: &Tensor) -> (Tensor, Arc<Guarded>) {
        let data = tensor.bytes().expect("cases are made on the host");
        let mut all: Vec<u8> = (0..data.len() + 2 * GUARD_BYTES + ALIGN_BYTES)
            .map(Self::guard)
            .collect();
        let start = GUARD_BYTES + all.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        all[start..start + data.len()].copy_from_slice(data);
        let guarded = Arc::new(Guarded {
            all,
            start,
            len: data.len(),
        });
        let range = start..start + data.len();
        let shared = Tensor::shared(tensor.dtype(), *tensor.shape(), guarded.clone(), range);
        (shared.expect("the range was made for the tensor"), guarded)
    }

    /// What was written to that nobody may write to.
    pub fn damage(&self, original: &Tensor) -> Option<String> {
        let data = original.bytes().expect("cases are made on the host");
        let inside = self.start..self.start + self.len;
        for (i, &byte) in self.all.iter().enumerate() {
            let expected = if inside.contains(&i) {
                data[i - self.start]
            } else {
                Self::guard(i)
            };
            if byte == expected {
                continue;
            }
            return Some(if i < self.start {
                format!("wrote {} bytes before the input begins", self.start - i)
            } else if i >= inside.end {
                format!("wrote past the end of the input: byte {} after it", i - inside.end)
            } else {
                format!("changed byte {} of the input, which is not its own", i - self.start)
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_ordinary_numbers() {
        for &dtype in DType::ALL {
            let k = dtype.block_elems().max(4);
            let tensor = noise(dtype, &[2, k], 1.0, &mut Random::of(dtype.name()));
            let mut values = vec![0f32; 2 * k];
            quant::dequantize(dtype, tensor.bytes().unwrap(), &mut values).unwrap();
            assert!(
                values.iter().all(|v| v.abs() < 100.0) && values.iter().any(|v| *v != 0.0),
                "{dtype}"
            );
        }
    }

    #[test]
    fn guards_lie_around_aligned_bytes() {
        let original = Tensor::from_f32([3], &[1.0, 2.0, 3.0]).unwrap();
        let (tensor, guard) = Guarded::tensor(&original);
        assert_eq!(tensor.as_f32().unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(guard.damage(&original), None);
        let other = Tensor::from_f32([3], &[1.0, 2.0, 4.0]).unwrap();
        assert!(guard.damage(&other).unwrap().contains("changed byte 10"));
        let mut hurt = Guarded {
            all: guard.all.clone(),
            start: guard.start,
            len: guard.len,
        };
        hurt.all[guard.start + 12] ^= 1;
        assert!(hurt.damage(&original).unwrap().contains("past the end"));
    }
}
