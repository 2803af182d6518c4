//! Whether a tensor is near enough to the oracle's: dtype, shape, places of NaN and infinity, then the errors.

use super::limits::{Element, Limit};
use crate::{DType, Tensor, read_ints};

/// How two tensors differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mismatch {
    /// What is wrong, in words and numbers.
    pub what: String,
    /// First element that differs, if elements do.
    pub index: Option<usize>,
}

/// Elements as f64; the values of quantised blocks.
pub(super) fn values(tensor: &Tensor) -> Result<Vec<f64>, String> {
    let bytes = tensor.bytes().map_err(|e| e.to_string())?;
    Ok(match tensor.dtype() {
        DType::F64 => bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        dtype if dtype.is_int() => {
            let ints = read_ints("comparison", tensor).map_err(|e| e.to_string())?;
            ints.into_iter().map(|v| v as f64).collect()
        }
        dtype => {
            let mut out = vec![0f32; tensor.n_elems()];
            crate::quant::dequantize(dtype, bytes, &mut out).map_err(|e| e.to_string())?;
            out.into_iter().map(f64::from).collect()
        }
    })
}

/// Whether an element is near enough to what it should be.
fn near(a: f64, b: f64, limit: &Limit, peak: f64) -> bool {
    if a.is_nan() || b.is_nan() {
        a.is_nan() && b.is_nan()
    } else if a.is_infinite() || b.is_infinite() {
        a == b
    } else {
        (a - b).abs() <= limit.element.allowed(b, peak)
    }
}

/// The largest finite element, or the typical size of one.
fn peak(values: &[f64], limit: &Limit) -> f64 {
    values
        .iter()
        .filter(|v| v.is_finite())
        .fold(limit.typical, |m, v| m.max(v.abs()))
}

/// Whether a known wrong answer explains `got`: `Some(true)` when `got` is `wrong` wherever it is not `want`,
/// `Some(false)` when `got` is right, `None` when the wrong answer explains nothing.
pub(super) fn explains(got: &Tensor, want: &Tensor, wrong: &Tensor, limit: &Limit) -> Option<bool> {
    if compare(got, want, limit).is_ok() {
        return Some(false);
    }
    if compare(wrong, want, limit).is_ok() {
        return None;
    }
    if compare(got, wrong, limit).is_ok() {
        return Some(true);
    }
    let kind = |t: &Tensor| (t.dtype(), *t.shape());
    if kind(got) != kind(want) || kind(got) != kind(wrong) {
        return None;
    }
    let [a, b, c] = [values(got).ok()?, values(want).ok()?, values(wrong).ok()?];
    let (of_want, of_wrong) = (peak(&b, limit), peak(&c, limit));
    let mut n_explained = 0usize;
    for i in 0..a.len() {
        if near(a[i], b[i], limit, of_want) {
            continue;
        }
        if !near(a[i], c[i], limit, of_wrong) {
            return None;
        }
        n_explained += 1;
    }
    (n_explained > 0).then_some(true)
}

/// Elements that are not near enough to what they should be, of tensors of one type.
pub(super) fn wrong_elems(got: &Tensor, want: &Tensor, limit: &Limit) -> Vec<usize> {
    let (Ok(a), Ok(b)) = (values(got), values(want)) else {
        return Vec::new();
    };
    if a.len() != b.len() {
        return Vec::new();
    }
    let of = peak(&b, limit);
    (0..a.len()).filter(|&i| !near(a[i], b[i], limit, of)).collect()
}

/// Fewest wrong elements that a guess is made from, unless all are.
pub(super) const ENOUGH: usize = 3;

/// What the places of the wrong elements say, rows being the last dimension.
pub(super) fn pattern(got: &Tensor, want: &Tensor, limit: &Limit) -> Option<String> {
    let (n, width) = (want.n_elems(), want.shape().last_dim().max(1));
    let wrong = wrong_elems(got, want, limit);
    if n / width < 2 || wrong.len() < 2 {
        return None;
    }
    let (first, last) = (
        wrong.iter().map(|i| i % width).min()?,
        wrong.iter().map(|i| i % width).max()?,
    );
    let (top, bottom) = (wrong.first()? / width, wrong.last()? / width);
    let n_rows = n / width;
    if width > 1 && last == 0 && top > 0 {
        return Some(
            "a write past the end, it seems: only the first element of rows behind the first is wrong".to_owned(),
        );
    }
    if wrong.len() < ENOUGH {
        return None;
    }
    // A tail is the smaller part of a row.
    if 2 * first >= width && last + 1 == width {
        return Some(format!(
            "only columns from {first} on are wrong, of {width}: a tail that the vector loop leaves out?"
        ));
    }
    if top > 0 && bottom + 1 == n_rows {
        return Some(format!(
            "only rows from {top} on are wrong, of {n_rows}: rows beyond the first tile or the first row?"
        ));
    }
    None
}

/// Compares `got` with `want`.
pub(super) fn compare(got: &Tensor, want: &Tensor, limit: &Limit) -> Result<(), Mismatch> {
    let whole = |what: String| Mismatch { what, index: None };
    if (got.dtype(), got.shape()) != (want.dtype(), want.shape()) {
        let (a, b) = ((got.dtype(), got.shape()), (want.dtype(), want.shape()));
        return Err(whole(format!(
            "the output is {} {} instead of {} {}",
            a.0, a.1, b.0, b.1
        )));
    }
    if got.bytes().map_err(|e| whole(e.to_string()))? == want.bytes().map_err(|e| whole(e.to_string()))? {
        return Ok(());
    }
    let (a, b) = (values(got).map_err(whole)?, values(want).map_err(whole)?);
    let peak = b
        .iter()
        .filter(|v| v.is_finite())
        .fold(limit.typical, |m, v| m.max(v.abs()));
    let (mut error, mut size, mut first, mut n_bad) = (0f64, 0f64, None, 0usize);
    for (i, (&a, &b)) in a.iter().zip(&b).enumerate() {
        if a.is_finite() && b.is_finite() {
            error += (a - b) * (a - b);
            size += b * b;
        }
        let fits = near(a, b, limit, peak);
        if !fits {
            n_bad += 1;
            first = first.or(Some(i));
        }
    }
    let at = |i: usize| {
        let place = coordinates(i, want.shape());
        format!("element {i} ({place}) is {:?}, not {:?}", a[i] as f32, b[i] as f32)
    };
    if let Some(i) = first {
        let share = format!("{n_bad} of {} elements differ", a.len());
        let what = format!("{}; {share}; allowed: {}", at(i), limit.element);
        return Err(Mismatch { what, index: Some(i) });
    }
    let size = size.max(limit.typical * limit.typical * a.len() as f64);
    let nmse = if error == 0.0 {
        0.0
    } else {
        error / size.max(f64::MIN_POSITIVE)
    };
    if limit.element != Element::Exact && nmse > limit.nmse {
        let worst = (0..a.len()).max_by(|&i, &j| (a[i] - b[i]).abs().total_cmp(&(a[j] - b[j]).abs()));
        let worst = worst.unwrap_or(0);
        let what = format!(
            "normalised error {nmse:.2e}, allowed {:.0e}; worst: {}",
            limit.nmse,
            at(worst)
        );
        return Err(Mismatch {
            what,
            index: Some(worst),
        });
    }
    Ok(())
}

fn coordinates(mut index: usize, shape: &[usize]) -> String {
    let mut at = vec![0; shape.len()];
    for (c, &size) in at.iter_mut().zip(shape).rev() {
        *c = index % size.max(1);
        index /= size.max(1);
    }
    format!("{at:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(got: &[f32], want: &[f32], element: Element, nmse: f64) -> String {
        let limit = Limit {
            nmse,
            element,
            typical: 0.0,
            why: "",
        };
        let [got, want] = [got, want].map(|v| Tensor::from_f32([v.len()], v).unwrap());
        compare(&got, &want, &limit).map_or_else(|m| m.what, |()| String::new())
    }

    #[test]
    fn limits_are_kept() {
        let relative = Element::Relative(1e-3);
        assert_eq!(said(&[1.0, 0.0], &[1.0, -0.0], Element::Exact, 0.0), "");
        assert_eq!(said(&[1.0001, 1e-39], &[1.0, 0.0], relative, 1e-6), "");
        assert!(said(&[1.0, 2.1], &[1.0, 2.0], relative, 1.0).contains("element 1 ([1]) is 2.1, not 2.0"));
        assert!(said(&[1.0009; 4], &[1.0; 4], relative, 1e-9).contains("normalised error 8.1"));
        assert!(said(&[f32::NAN], &[1.0], relative, 1.0).contains("is NaN, not 1"));
        assert!(said(&[1.0], &[f32::NAN], relative, 1.0).contains("is 1.0, not NaN"));
        assert_eq!(
            said(
                &[f32::NAN, f32::INFINITY],
                &[f32::NAN, f32::INFINITY],
                Element::Exact,
                0.0
            ),
            ""
        );
        assert!(said(&[f32::NEG_INFINITY], &[f32::INFINITY], relative, 1.0).contains("-inf"));
        assert_eq!(said(&[1.0, 100.0], &[1.05, 100.0], Element::Peak(1e-3), 1.0), "");
    }

    #[test]
    fn types_are_compared_first() {
        let a = Tensor::from_f32([2], &[1.0, 2.0]).unwrap();
        let b = Tensor::from_i32([1, 2], &[1, 2]).unwrap();
        let err = compare(&a, &b, &Limit::EXACT).unwrap_err();
        assert_eq!(err.what, "the output is f32 [2] instead of i32 [1, 2]");
    }
}
