//! Dimensions that depend on the step: affine in its token, past, wanted-row, sequence and encoder counts.

use std::fmt;

use crate::{DType, Shape};

/// What a dimension can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// Rows (tokens) of the step.
    T,
    /// Tokens already in the sequence. Differs per sequence in a batched step.
    P,
    /// Rows whose outputs are wanted.
    R,
    /// Sequences in the step.
    N,
    /// Rows of an encoder.
    S,
}

const SYMBOLS: [(Symbol, &str); 5] = [
    (Symbol::T, "T"),
    (Symbol::P, "P"),
    (Symbol::R, "R"),
    (Symbol::N, "N"),
    (Symbol::S, "S"),
];

/// The values of the symbols in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // As the variants of `Symbol`.
pub struct Sizes {
    pub t: usize,
    pub p: usize,
    pub r: usize,
    pub n: usize,
    pub s: usize,
}

impl Sizes {
    fn get(&self, symbol: Symbol) -> usize {
        match symbol {
            Symbol::T => self.t,
            Symbol::P => self.p,
            Symbol::R => self.r,
            Symbol::N => self.n,
            Symbol::S => self.s,
        }
    }
}

/// One dimension: `base + t*T + p*P + r*R + n*N + s*S`, coefficients never negative except the base.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dim {
    base: i64,
    coef: [u32; 5],
}

impl Dim {
    /// `T`: a row per token of the step.
    pub const T: Dim = Dim {
        base: 0,
        coef: [1, 0, 0, 0, 0],
    };
    /// `P + T`: a row per token of the sequence so far.
    pub const PT: Dim = Dim {
        base: 0,
        coef: [1, 1, 0, 0, 0],
    };
    /// `R`: a row per wanted row.
    pub const R: Dim = Dim {
        base: 0,
        coef: [0, 0, 1, 0, 0],
    };

    /// A constant dimension.
    pub const fn fixed(size: usize) -> Dim {
        Dim {
            base: size as i64,
            coef: [0; 5],
        }
    }

    /// `symbol` itself.
    pub fn symbol(symbol: Symbol) -> Dim {
        let mut coef = [0; 5];
        coef[symbol as usize] = 1;
        Dim { base: 0, coef }
    }

    /// The size, if it does not depend on the step.
    pub fn as_fixed(&self) -> Option<usize> {
        (self.coef == [0; 5]).then(|| usize::try_from(self.base).ok()).flatten()
    }

    /// Whether the size depends on `symbol`.
    pub fn depends_on(&self, symbol: Symbol) -> bool {
        self.coef[symbol as usize] != 0
    }

    /// The size in a step, or `None` when it overflows or would be negative.
    pub fn eval(&self, sizes: &Sizes) -> Option<usize> {
        let mut total = i128::from(self.base);
        for (symbol, _) in SYMBOLS {
            let value = i128::try_from(sizes.get(symbol)).ok()?;
            total = total.checked_add(value.checked_mul(i128::from(self.coef[symbol as usize]))?)?;
        }
        usize::try_from(total).ok()
    }

    /// Sum of two dimensions.
    pub fn checked_add(&self, other: &Dim) -> Option<Dim> {
        let mut sum = Dim {
            base: self.base.checked_add(other.base)?,
            coef: self.coef,
        };
        for (a, b) in sum.coef.iter_mut().zip(other.coef) {
            *a = a.checked_add(b)?;
        }
        Some(sum)
    }

    /// This dimension less a constant.
    pub fn checked_sub(&self, n: usize) -> Option<Dim> {
        let base = self.base.checked_sub(i64::try_from(n).ok()?)?;
        if self.coef == [0; 5] && base < 0 {
            return None;
        }
        Some(Dim { base, coef: self.coef })
    }

    /// This dimension times a constant.
    pub fn checked_mul(&self, n: usize) -> Option<Dim> {
        let mut product = Dim {
            base: self.base.checked_mul(i64::try_from(n).ok()?)?,
            coef: self.coef,
        };
        for c in &mut product.coef {
            *c = c.checked_mul(u32::try_from(n).ok()?)?;
        }
        Some(product)
    }

    /// This dimension divided by a constant, when that leaves no remainder for any step.
    pub fn checked_div(&self, n: usize) -> Option<Dim> {
        let (n64, n32) = (i64::try_from(n).ok()?, u32::try_from(n).ok());
        if n64 == 0 || self.base % n64 != 0 {
            return None;
        }
        let mut quotient = Dim {
            base: self.base / n64,
            coef: self.coef,
        };
        for c in &mut quotient.coef {
            if *c != 0 {
                let n32 = n32?;
                if *c % n32 != 0 {
                    return None;
                }
                *c /= n32;
            }
        }
        Some(quotient)
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Dim {
        Dim::fixed(size)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        // Past before step rows: the old tokens come first, as they do in memory.
        for symbol in [Symbol::P, Symbol::T, Symbol::R, Symbol::N, Symbol::S] {
            let c = self.coef[symbol as usize];
            if c == 0 {
                continue;
            }
            if !first {
                f.write_str("+")?;
            }
            first = false;
            if c != 1 {
                write!(f, "{c}*")?;
            }
            f.write_str(SYMBOLS[symbol as usize].1)?;
        }
        match (first, self.base) {
            (true, base) => write!(f, "{base}"),
            (false, 0) => Ok(()),
            (false, base) => write!(f, "{base:+}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Dim {
    type Err = String;

    /// Reads what `Display` writes: `P+T`, `2*T-1`, `64`.
    fn from_str(text: &str) -> Result<Dim, String> {
        let bad = || format!("`{text}` is no dimension such as `64`, `T`, `P+T` or `2*T-1`");
        let mut dim = Dim::fixed(0);
        let spaced = text.replace('-', "+-");
        for term in spaced.split('+').filter(|t| !t.is_empty()) {
            let (factor, name) = match term.split_once('*') {
                Some((factor, name)) => (factor.parse::<u32>().map_err(|_| bad())?, name),
                None => (1, term),
            };
            if let Some((symbol, _)) = SYMBOLS.iter().find(|(_, n)| *n == name) {
                let c = &mut dim.coef[*symbol as usize];
                *c = c.checked_add(factor).ok_or_else(bad)?;
            } else if factor == 1 && !term.contains('*') {
                let n = name.parse::<i64>().map_err(|_| bad())?;
                dim.base = dim.base.checked_add(n).ok_or_else(bad)?;
            } else {
                return Err(bad());
            }
        }
        if text.is_empty() || (dim.coef == [0; 5] && dim.base < 0) {
            return Err(bad());
        }
        Ok(dim)
    }
}

/// Dtype and (possibly step-dependent) dimensions of a value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ValueType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub dims: Vec<Dim>,
}

impl ValueType {
    /// A type of these dimensions.
    pub fn new(dtype: DType, dims: impl Into<Vec<Dim>>) -> ValueType {
        ValueType {
            dtype,
            dims: dims.into(),
        }
    }

    /// The type of a concrete tensor.
    pub fn fixed(dtype: DType, shape: &[usize]) -> ValueType {
        ValueType {
            dtype,
            dims: shape.iter().map(|&d| Dim::fixed(d)).collect(),
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Whether any dimension depends on `symbol`.
    pub fn depends_on(&self, symbol: Symbol) -> bool {
        self.dims.iter().any(|d| d.depends_on(symbol))
    }

    /// Whether it has a row of fixed size per token or per wanted row, and nothing else.
    pub fn is_by_rows(&self) -> bool {
        self.dims.split_first().is_some_and(|(first, rest)| {
            (*first == Dim::T || *first == Dim::R) && rest.iter().all(|d| d.as_fixed().is_some())
        })
    }

    /// The shape, if no dimension depends on the step.
    pub fn as_fixed(&self) -> Option<Shape> {
        let dims: Option<Vec<usize>> = self.dims.iter().map(Dim::as_fixed).collect();
        Shape::try_new(&dims?)
    }

    /// The shape in a step; `None` on overflow or a rank above [`MAX_RANK`](crate::MAX_RANK).
    pub fn shape(&self, sizes: &Sizes) -> Option<Shape> {
        let dims: Option<Vec<usize>> = self.dims.iter().map(|d| d.eval(sizes)).collect();
        Shape::try_new(&dims?)
    }

    /// Bytes in a step; `None` on overflow or partial blocks.
    pub fn size_bytes(&self, sizes: &Sizes) -> Option<usize> {
        crate::tensor_bytes(self.dtype, &self.shape(sizes)?).ok()
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.dims.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_print_and_parse() {
        let two_t_less_one = Dim::T.checked_mul(2).unwrap().checked_sub(1).unwrap();
        for (dim, text) in [(Dim::PT, "P+T"), (Dim::fixed(64), "64"), (two_t_less_one, "2*T-1")] {
            assert_eq!(dim.to_string(), text);
            assert_eq!(text.parse::<Dim>(), Ok(dim));
        }
        for bad in ["", "Q", "3*4", "x*T", "-1", "T*2"] {
            assert!(bad.parse::<Dim>().is_err(), "{bad}");
        }
    }

    #[test]
    fn division_must_leave_nothing() {
        let dim = Dim::T.checked_mul(6).unwrap();
        assert_eq!(dim.checked_div(6), Some(Dim::T));
        assert_eq!(dim.checked_div(4), None);
        assert_eq!(dim.checked_div(0), None);
    }

    #[test]
    fn eval_is_checked() {
        let sizes = Sizes {
            t: usize::MAX,
            p: 1,
            ..Sizes::default()
        };
        assert_eq!(Dim::PT.eval(&sizes), None);
        assert_eq!(Dim::T.checked_sub(4).unwrap().eval(&Sizes { t: 3, ..sizes }), None);
    }
}
