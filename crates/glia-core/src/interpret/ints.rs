//! Reading integer tensors of any width: ids, positions, indices.

use crate::{BackendError, DType, Tensor};

/// The elements of an integer tensor (I8 to I64, U8) as `i64`, whatever their width and alignment.
///
/// # Errors
/// [`BackendError::InvalidInput`] for other dtypes, naming `what`; device tensors are refused.
pub fn read_ints(what: &str, tensor: &Tensor) -> Result<Vec<i64>, BackendError> {
    let bytes = tensor.bytes()?;
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> i64) -> Vec<i64> {
        bytes.as_chunks::<N>().0.iter().map(|&c| read(c)).collect()
    }
    Ok(match tensor.dtype() {
        DType::I32 => each(bytes, |c| i32::from_le_bytes(c).into()),
        DType::I64 => each(bytes, i64::from_le_bytes),
        DType::I16 => each(bytes, |c| i16::from_le_bytes(c).into()),
        DType::I8 => each(bytes, |c| i8::from_le_bytes(c).into()),
        DType::U8 => each(bytes, |[b]| b.into()),
        other => return Err(BackendError::invalid(what, format!("integers expected, not {other}"))),
    })
}

/// Integers as indices below `limit`.
///
/// # Errors
/// [`BackendError::InvalidInput`] naming the first element out of range and `limit`, which `limit_is` describes.
pub fn read_indices(what: &str, tensor: &Tensor, limit: usize, limit_is: &str) -> Result<Vec<usize>, BackendError> {
    let out_of_range = |i: usize, v: i64| {
        BackendError::invalid(
            what,
            format!("element {i} is {v}, outside 0..{limit} ({limit_is} {limit})"),
        )
    };
    read_ints(what, tensor)?
        .into_iter()
        .enumerate()
        .map(|(i, v)| {
            usize::try_from(v)
                .ok()
                .filter(|&v| v < limit)
                .ok_or_else(|| out_of_range(i, v))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_reads() {
        for (dtype, bytes) in [
            (DType::I8, vec![7u8, 255]),
            (DType::I16, vec![7, 0, 255, 255]),
            (DType::I32, vec![7, 0, 0, 0, 255, 255, 255, 255]),
            (DType::I64, [7i64, -1].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ] {
            let tensor = Tensor::from_bytes(dtype, [2], &bytes).unwrap();
            assert_eq!(read_ints("ids", &tensor).unwrap(), [7, -1], "{dtype}");
        }
        let tensor = Tensor::from_bytes(DType::U8, [1], &[200]).unwrap();
        assert_eq!(read_ints("ids", &tensor).unwrap(), [200]);
    }

    #[test]
    fn errors_name_the_element_and_the_limit() {
        let ids = Tensor::from_i32([3], &[0, 300, 1]).unwrap();
        let err = read_indices("token_embed", &ids, 256, "vocabulary size")
            .unwrap_err()
            .to_string();
        assert_eq!(
            err,
            "token_embed: element 1 is 300, outside 0..256 (vocabulary size 256)"
        );
        let floats = Tensor::from_f32([1], &[1.0]).unwrap();
        assert!(read_ints("ids", &floats).unwrap_err().to_string().contains("f32"));
    }
}
