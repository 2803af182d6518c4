//! How far two tensors are apart.

use glia_core::{DType, Tensor, quant, read_ints};

/// The distance of values from reference values, gathered over any number of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Sum of squared differences.
    diff: f64,
    /// Sum of squares of the reference.
    reference: f64,
    max_abs: f64,
    n: usize,
    /// Elements that are finite on one side only, or shapes that differ.
    n_broken: usize,
}

impl Difference {
    /// Adds a tensor and its reference, elementwise; other shapes and dtypes are broken.
    pub fn add(&mut self, reference: &Tensor, tensor: &Tensor) {
        if reference.shape() != tensor.shape() || reference.dtype() != tensor.dtype() {
            self.n_broken += 1;
            return;
        }
        match (values(reference), values(tensor)) {
            (Some(a), Some(b)) => a.iter().zip(&b).for_each(|(&a, &b)| self.add_one(a, b)),
            _ => self.n_broken += 1,
        }
    }

    fn add_one(&mut self, a: f64, b: f64) {
        self.n += 1;
        // Equal infinities are equal, and so are two NaNs.
        if a == b || (a.is_nan() && b.is_nan()) {
            self.reference += if a.is_finite() { a * a } else { 0.0 };
            return;
        }
        if !(a.is_finite() && b.is_finite()) {
            self.n_broken += 1;
            return;
        }
        self.diff += (b - a) * (b - a);
        self.reference += a * a;
        self.max_abs = self.max_abs.max((b - a).abs());
    }

    /// The normalised error, `‖b - a‖ / ‖a‖` over all elements: 0 when equal, infinite when a reference of zeros is
    /// missed, or an element is finite on one side only.
    pub fn error(&self) -> f64 {
        if self.n_broken > 0 {
            return f64::INFINITY;
        }
        if self.diff == 0.0 {
            return 0.0;
        }
        (self.diff / self.reference).sqrt()
    }

    /// The largest difference of one element.
    pub fn max_abs(&self) -> f64 {
        if self.n_broken > 0 { f64::INFINITY } else { self.max_abs }
    }

    /// Elements compared.
    pub fn n_elems(&self) -> usize {
        self.n
    }
}

/// The elements of a tensor of any dtype; `None` when it cannot be read here.
fn values(tensor: &Tensor) -> Option<Vec<f64>> {
    if tensor.dtype().is_int() {
        return Some(
            read_ints("compare", tensor)
                .ok()?
                .into_iter()
                .map(|v| v as f64)
                .collect(),
        );
    }
    let bytes = tensor.bytes().ok()?;
    if tensor.dtype() == DType::F64 {
        return Some(bytes.as_chunks().0.iter().map(|&c| f64::from_le_bytes(c)).collect());
    }
    let mut values = vec![0f32; tensor.n_elems()];
    quant::dequantize(tensor.dtype(), bytes, &mut values).ok()?;
    Some(values.into_iter().map(f64::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(a: &[f32], b: &[f32]) -> f64 {
        let mut all = Difference::default();
        let tensor = |v: &[f32]| Tensor::from_f32([v.len()], v).unwrap();
        all.add(&tensor(a), &tensor(b));
        all.error()
    }

    #[test]
    fn errors_are_normalised() {
        assert_eq!(error(&[], &[]), 0.0);
        assert_eq!(error(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(error(&[3.0, 4.0], &[3.0, 9.0]), 1.0);
        assert_eq!(error(&[0.0], &[1e-9]), f64::INFINITY);
        assert_eq!(error(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY]), 0.0);
        assert_eq!(error(&[1.0], &[f32::NAN]), f64::INFINITY);
        assert_eq!(error(&[f32::NEG_INFINITY], &[f32::INFINITY]), f64::INFINITY);
    }

    #[test]
    fn halves_integers_and_shapes_count() {
        let mut all = Difference::default();
        let halves = |v: u16| Tensor::from_bytes(DType::F16, [1], &v.to_le_bytes()).unwrap();
        all.add(&halves(0x4000), &halves(0x4200));
        assert_eq!((all.error(), all.max_abs(), all.n_elems()), (0.5, 1.0, 1));
        let ints = |v: i32| Tensor::from_i32([1], &[v]).unwrap();
        all.add(&ints(7), &ints(7));
        assert_eq!(all.n_elems(), 2);
        all.add(&ints(7), &halves(0x4700));
        assert_eq!(all.error(), f64::INFINITY);
    }
}
