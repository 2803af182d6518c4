//! Tensors of a case on the host: element types of ONNX, values in f64, and the bytes that a backend is given.

use glia_core::{DType, Shape, Tensor};

use crate::proto;

/// Element types by their number in onnx.proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elem(pub i32);

impl Elem {
    pub const F32: Elem = Elem(1);
    pub const U8: Elem = Elem(2);
    pub const I8: Elem = Elem(3);
    pub const I16: Elem = Elem(5);
    pub const I32: Elem = Elem(6);
    pub const I64: Elem = Elem(7);
    pub const BOOL: Elem = Elem(9);
    pub const F16: Elem = Elem(10);
    pub const F64: Elem = Elem(11);
    pub const BF16: Elem = Elem(16);

    /// The dtype of glia, when there is one.
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            Elem::F32 => DType::F32,
            Elem::U8 => DType::U8,
            Elem::I8 => DType::I8,
            Elem::I16 => DType::I16,
            Elem::I32 => DType::I32,
            Elem::I64 => DType::I64,
            Elem::BOOL => DType::Bool,
            Elem::F16 => DType::F16,
            Elem::F64 => DType::F64,
            Elem::BF16 => DType::BF16,
            _ => return None,
        })
    }

    pub fn is_float(self) -> bool {
        self.dtype().is_some_and(DType::is_float)
    }

    /// The name in onnx.proto, in small letters.
    pub fn name(self) -> String {
        let name = match self.0 {
            1 => "float",
            2 => "uint8",
            3 => "int8",
            4 => "uint16",
            5 => "int16",
            6 => "int32",
            7 => "int64",
            8 => "string",
            9 => "bool",
            10 => "float16",
            11 => "double",
            12 => "uint32",
            13 => "uint64",
            14 => "complex64",
            15 => "complex128",
            16 => "bfloat16",
            17..=20 => "float8",
            21 => "uint4",
            22 => "int4",
            23 => "float4",
            24 => "float8e8m0",
            25 => "uint2",
            26 => "int2",
            other => return format!("type {other}"),
        };
        name.to_owned()
    }
}

/// A shape and its values; integers above 2^53 lose digits here, not in [`Array::tensor`].
#[derive(Clone, Debug)]
pub struct Array {
    pub elem: Elem,
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

/// What a file says of a tensor.
pub struct Read {
    /// Values.
    pub array: Array,
    /// The same, as a backend takes it.
    pub tensor: Tensor,
}

impl Array {
    pub fn new(elem: Elem, shape: &[usize], data: Vec<f64>) -> Array {
        Array {
            elem,
            shape: shape.to_vec(),
            data,
        }
    }

    pub fn ints(values: &[i64]) -> Array {
        Array::new(Elem::I64, &[values.len()], values.iter().map(|&v| v as f64).collect())
    }

    pub fn to_ints(&self) -> Vec<i64> {
        self.data.iter().map(|&v| v as i64).collect()
    }

    /// In the dtype of the element type.
    pub fn tensor(&self) -> Result<Tensor, String> {
        let dtype = self
            .elem
            .dtype()
            .ok_or_else(|| format!("no dtype for {}", self.elem.name()))?;
        let mut bytes = Vec::with_capacity(self.data.len() * dtype.block_bytes());
        for &v in &self.data {
            match dtype {
                DType::F32 => bytes.extend((v as f32).to_le_bytes()),
                DType::F64 => bytes.extend(v.to_le_bytes()),
                DType::F16 => bytes.extend(half::f16::from_f64(v).to_le_bytes()),
                DType::BF16 => bytes.extend(half::bf16::from_f64(v).to_le_bytes()),
                DType::I8 => bytes.extend((v as i8).to_le_bytes()),
                DType::I16 => bytes.extend((v as i16).to_le_bytes()),
                DType::I32 => bytes.extend((v as i32).to_le_bytes()),
                DType::I64 => bytes.extend((v as i64).to_le_bytes()),
                DType::U8 => bytes.push(v as u8),
                _ => bytes.push(u8::from(v != 0.0)),
            }
        }
        from_bytes(dtype, &self.shape, &bytes)
    }

    /// The values of a tensor of a plain dtype.
    pub fn from_tensor(tensor: &Tensor) -> Result<Array, String> {
        let elem = (0..32)
            .map(Elem)
            .find(|e| e.dtype() == Some(tensor.dtype()))
            .ok_or_else(|| format!("no element type for {}", tensor.dtype()))?;
        let bytes = tensor.bytes().map_err(|e| e.to_string())?;
        Ok(Array {
            elem,
            shape: tensor.shape().dims().to_vec(),
            data: values(tensor.dtype(), bytes),
        })
    }
}

fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor, String> {
    let shape = Shape::try_new(shape).ok_or("the rank is too high")?;
    Tensor::from_bytes(dtype, shape, bytes).map_err(|e| e.to_string())
}

fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&b| read(b)).collect()
    }
    match dtype {
        DType::F32 => each(bytes, |b| f32::from_le_bytes(b).into()),
        DType::F64 => each(bytes, f64::from_le_bytes),
        DType::F16 => each(bytes, |b| half::f16::from_le_bytes(b).into()),
        DType::BF16 => each(bytes, |b| half::bf16::from_le_bytes(b).into()),
        DType::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
        DType::I16 => each(bytes, |b| i16::from_le_bytes(b).into()),
        DType::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
        DType::I64 => each(bytes, |b| i64::from_le_bytes(b) as f64),
        _ => each(bytes, |[b]| b.into()),
    }
}

/// Reads a tensor; `Err` is a fault of the file, `Ok(Err)` a type that glia has no dtype for.
pub fn read(tensor: &proto::Tensor) -> Result<Result<Read, Elem>, String> {
    let elem = Elem(tensor.data_type);
    let Some(dtype) = elem.dtype() else {
        return Ok(Err(elem));
    };
    let shape = tensor
        .dims
        .iter()
        .map(|&d| usize::try_from(d).map_err(|_| format!("a dimension is {d}")))
        .collect::<Result<Vec<_>, _>>()?;
    let packed: Vec<u8>;
    let bytes: &[u8] = if !tensor.raw_data.is_empty() {
        &tensor.raw_data
    } else {
        packed = typed_bytes(dtype, tensor);
        &packed
    };
    let array = Array {
        elem,
        shape: shape.clone(),
        data: values(dtype, bytes),
    };
    let tensor = from_bytes(dtype, &shape, bytes)?;
    Ok(Ok(Read { array, tensor }))
}

/// The bytes of a tensor whose values are in the typed fields.
fn typed_bytes(dtype: DType, tensor: &proto::Tensor) -> Vec<u8> {
    match dtype {
        DType::F32 => tensor.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F64 => tensor.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I64 => tensor.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I32 => tensor.int32_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F16 | DType::BF16 | DType::I16 => tensor
            .int32_data
            .iter()
            .flat_map(|&v| (v as u16).to_le_bytes())
            .collect(),
        _ => tensor.int32_data.iter().map(|&v| v as u8).collect(),
    }
}
