//! Concrete tensor shapes: up to eight dimensions, held inline.

use std::fmt;
use std::ops::Deref;

/// Highest rank of a tensor.
pub const MAX_RANK: usize = 8;

/// Dimensions of a tensor, outermost first, rows contiguous in memory. Reads as a `[usize]` slice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// A shape of these dimensions; an empty slice is a scalar.
    ///
    /// # Panics
    /// If there are more than [`MAX_RANK`] dimensions: use [`Shape::try_new`] for what comes from outside.
    pub fn new(dims: &[usize]) -> Shape {
        Self::try_new(dims).expect("a rank within MAX_RANK is the caller's duty")
    }

    /// A shape of these dimensions, or `None` when there are more than [`MAX_RANK`].
    pub fn try_new(dims: &[usize]) -> Option<Shape> {
        let mut all = [1; MAX_RANK];
        all.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(Shape {
            dims: all,
            rank: dims.len() as u8,
        })
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }

    /// Product of the dimensions (1 for a scalar), or `None` when it does not fit in `usize`.
    pub fn checked_elems(&self) -> Option<usize> {
        self.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }

    /// Product of the dimensions (1 for a scalar).
    ///
    /// # Panics
    /// On overflow; the constructors of [`Tensor`](crate::Tensor) have checked it for theirs.
    pub fn n_elems(&self) -> usize {
        self.checked_elems()
            .expect("element count of a checked shape fits in usize")
    }

    /// Last dimension, 1 for a scalar.
    pub fn last_dim(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// This shape with dimension `axis` replaced.
    pub fn with_dim(mut self, axis: usize, size: usize) -> Shape {
        assert!(axis < self.rank(), "axis within the rank");
        self.dims[axis] = size;
        self
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        self.dims()
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape::new(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape::new(&dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.dims().iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
