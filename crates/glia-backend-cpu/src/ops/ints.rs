//! Integers of any width out of running values: ids, positions, indices.

use glia_core::{BackendError, DType};

use crate::arena::Values;
use crate::error::{dtype, invalid};

/// Element `i` of an integer value.
///
/// # Errors
/// For other dtypes, or when there is no such element.
pub(crate) fn int(op: &str, values: &Values<'_>, id: u32, i: usize) -> Result<i64, BackendError> {
    let bytes = values.bytes(id)?;
    fn at<const N: usize>(bytes: &[u8], i: usize) -> Option<[u8; N]> {
        bytes.as_chunks::<N>().0.get(i).copied()
    }
    let kind = values.get(id)?.dtype;
    let value = match kind {
        DType::I32 => at(bytes, i).map(|b| i32::from_le_bytes(b).into()),
        DType::I64 => at(bytes, i).map(i64::from_le_bytes),
        DType::I16 => at(bytes, i).map(|b| i16::from_le_bytes(b).into()),
        DType::I8 => at(bytes, i).map(|b| i8::from_le_bytes(b).into()),
        DType::U8 => at(bytes, i).map(|[b]| b.into()),
        other => return Err(dtype(op, other)),
    };
    value.ok_or_else(|| invalid(op, format!("there is no element {i}")))
}

/// Element `i` as an index below `limit`, which `limit_is` describes.
///
/// # Errors
/// As [`int`]; [`BackendError::InvalidInput`] naming the element and the limit when it is out of range.
pub(crate) fn index(
    op: &str,
    values: &Values<'_>,
    id: u32,
    i: usize,
    limit: usize,
    limit_is: &str,
) -> Result<usize, BackendError> {
    let value = int(op, values, id, i)?;
    usize::try_from(value).ok().filter(|&v| v < limit).ok_or_else(|| {
        invalid(
            op,
            format!("element {i} is {value}, outside 0..{limit} ({limit_is} {limit})"),
        )
    })
}
