//! Conversion between plain dtypes, and from quantised ones.

use glia_core::{BackendError, DType, quant};
use half::{bf16, f16};

use crate::arena::Chunk;
use crate::error::{dtype, invalid};
use crate::kernel::{Kernel, Scratch, StepCx, Work, grown};

pub(crate) struct Cast {
    pub x: u32,
    pub out: u32,
}

/// An element on its way: integers keep all their bits.
#[derive(Clone, Copy)]
enum Number {
    Float(f64),
    Int(i64),
}

impl Kernel for Cast {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let x = cx.values.get(self.x)?;
        let n = x.shape.n_elems() / x.dtype.block_elems();
        Ok(Work::split(n, 4 * x.dtype.block_elems(), cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let from = cx.values.get(self.x)?.dtype;
        let to = cx.values.get(self.out)?.dtype;
        let (elems, block_bytes) = from.block();
        let items = chunk.items();
        let source = &cx.values.bytes(self.x)?[items.start * block_bytes..items.end * block_bytes];
        let size = to.block_bytes();
        let target: &mut [u8] = cx.values.write(chunk, self.out, elems * size)?;
        if from.is_quantized() {
            let decoded = grown(&mut scratch.floats, items.len() * elems);
            quant::dequantize(from, source, decoded).map_err(|e| invalid("cast", e.to_string()))?;
            for (&v, target) in decoded.iter().zip(target.chunks_exact_mut(size)) {
                write(to, Number::Float(v.into()), target)?;
            }
            return Ok(());
        }
        for (source, target) in source.chunks_exact(block_bytes).zip(target.chunks_exact_mut(size)) {
            write(to, read(from, source)?, target)?;
        }
        Ok(())
    }
}

fn read(from: DType, bytes: &[u8]) -> Result<Number, BackendError> {
    fn raw<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    Ok(match from {
        DType::F32 => Number::Float(f32::from_le_bytes(raw(bytes)).into()),
        DType::F16 => Number::Float(f16::from_le_bytes(raw(bytes)).to_f64()),
        DType::BF16 => Number::Float(bf16::from_le_bytes(raw(bytes)).to_f64()),
        DType::F64 => Number::Float(f64::from_le_bytes(raw(bytes))),
        DType::I8 => Number::Int(i8::from_le_bytes(raw(bytes)).into()),
        DType::I16 => Number::Int(i16::from_le_bytes(raw(bytes)).into()),
        DType::I32 => Number::Int(i32::from_le_bytes(raw(bytes)).into()),
        DType::I64 => Number::Int(i64::from_le_bytes(raw(bytes))),
        DType::U8 => Number::Int(raw::<1>(bytes)[0].into()),
        DType::Bool => Number::Int((raw::<1>(bytes)[0] != 0).into()),
        other => return Err(dtype("cast", other)),
    })
}

fn write(to: DType, number: Number, target: &mut [u8]) -> Result<(), BackendError> {
    let float = match number {
        Number::Float(v) => v,
        Number::Int(v) => v as f64,
    };
    // Float to integer conversions saturate, and make NaN 0.
    let int = match number {
        Number::Float(v) => v.round_ties_even() as i64,
        Number::Int(v) => v,
    };
    match to {
        DType::F32 => match number {
            Number::Float(v) => target.copy_from_slice(&(v as f32).to_le_bytes()),
            Number::Int(v) => target.copy_from_slice(&(v as f32).to_le_bytes()),
        },
        DType::F16 => target.copy_from_slice(&f16::from_f64(float).to_le_bytes()),
        DType::BF16 => target.copy_from_slice(&bf16::from_f64(float).to_le_bytes()),
        DType::F64 => target.copy_from_slice(&float.to_le_bytes()),
        DType::I8 => target.copy_from_slice(&(int.clamp(i8::MIN.into(), i8::MAX.into()) as i8).to_le_bytes()),
        DType::I16 => target.copy_from_slice(&(int.clamp(i16::MIN.into(), i16::MAX.into()) as i16).to_le_bytes()),
        DType::I32 => target.copy_from_slice(&(int.clamp(i32::MIN.into(), i32::MAX.into()) as i32).to_le_bytes()),
        DType::I64 => target.copy_from_slice(&int.to_le_bytes()),
        DType::U8 => target.copy_from_slice(&[int.clamp(0, 255) as u8]),
        DType::Bool => target.copy_from_slice(&[u8::from(float != 0.0)]),
        other => return Err(dtype("cast", other)),
    }
    Ok(())
}
