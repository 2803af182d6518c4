//! Products with packed weights: one `x` with one or several weights below each other.

use glia_core::{BackendError, Shape, ValueId, ValueType};

use super::coop::{self, Coop};
use super::form::{choose, forms};
use crate::program::{Bind, BufId, Lower, StepInfo};
use crate::shader::{Access, Call, KernelKey, Source};
use crate::weights::{Format, Part};

/// Sets the constants by which kernels find weights.
pub(in crate::ops) fn weight_words(call: Call, format: &Format, k: usize, scales_at: usize) -> Call {
    // Words of a buffer of at most 4 GiB.
    call.word(8, format.code_words(k) as u32)
        .word(9, scales_at as u32)
        .word(10, format.scale_words(k) as u32)
        .word(11, format.low_words(k) as u32)
}

/// What is multiplied, and where it goes.
pub(super) struct Product<'a> {
    pub x: ValueId,
    pub weights: &'a [ValueId],
    pub bias: Option<BufId>,
    pub residual: Option<ValueId>,
    pub outputs: &'a [ValueId],
}

/// Adds the dispatches of a product.
///
/// # Errors
/// As [`Lower::push`].
pub(super) fn product(cx: &mut Lower<'_>, product: &Product<'_>) -> Result<(), BackendError> {
    let mut ids = Vec::with_capacity(product.weights.len());
    for &id in product.weights {
        ids.extend(cx.const_of(id));
    }
    let matrix = cx.matrix(&ids)?;
    let plain = X::Plain(cx.value(product.x)?);
    let residual = product.residual.map(|id| cx.value(id)).transpose()?;
    let mut outputs = Vec::with_capacity(product.outputs.len());
    for &id in product.outputs {
        outputs.push(cx.value(id)?);
    }
    let width = |id: ValueId| cx.ty(id).dims.last().and_then(|d| d.as_fixed()).unwrap_or(0);
    let size = Size {
        x: cx.ty(product.x).clone(),
        widths: product.outputs.iter().map(|&id| width(id)).collect(),
        k: matrix.k,
        format: matrix.format,
    };
    let caps = cx.caps();
    let coop = match Coop::of(caps, cx.options.precision, &matrix) {
        Some(coop) => Some((coop, coop.operand(cx, product.x, size.k)?)),
        None => None,
    };
    let forms = forms(caps, size.k);
    for part in &matrix.parts {
        let bound = Bound {
            w: part.buf,
            bias: product.bias,
            residual,
            outputs: &outputs,
        };
        let part = *part;
        let keys: Vec<KernelKey> = forms
            .iter()
            .map(|form| form.define(bound.key(form.source, plain, &size.format), caps, size.k))
            .collect();
        let (own, has_coop) = (size.clone(), coop.is_some());
        cx.push_any(&keys, &bound.binds(plain), move |info| {
            let m = own.n_rows(info);
            if has_coop && Coop::takes(m) {
                return Call::new(0, &[]);
            }
            let chosen = choose(forms, m);
            own.call(&part, m, forms[chosen].rows, forms[chosen].columns)
                .variant(chosen)
        })?;
        if let Some((coop, x)) = coop {
            let key = || bound.key(Source::MatMulCoop, x, &size.format);
            let keys = coop::ROWS.map(|rows| coop.define(key(), rows, size.k));
            let own = size.clone();
            cx.push_any(&keys, &bound.binds(x), move |info| {
                let m = own.n_rows(info);
                if !Coop::takes(m) {
                    return Call::new(0, &[]);
                }
                let chosen = Coop::choose(m);
                own.call(&part, m, coop::ROWS[chosen], coop::COLUMNS).variant(chosen)
            })?;
        }
    }
    Ok(())
}

/// Rows of all batches.
pub(super) fn rows_of(shape: &Shape) -> usize {
    shape[..shape.rank() - 1].iter().product()
}

/// The sizes of a product.
#[derive(Clone)]
struct Size {
    /// Type of x.
    x: ValueType,
    /// Widths of the outputs.
    widths: Vec<usize>,
    k: usize,
    format: Format,
}

impl Size {
    fn n_rows(&self, info: &StepInfo<'_>) -> usize {
        rows_of(&info.shape(&self.x))
    }

    /// Constants of a product of `m` rows with a part, by workgroups of so many rows and columns.
    fn call(&self, part: &Part, m: usize, rows: u32, columns: u32) -> Call {
        let columns = part.n_rows.div_ceil(columns as usize);
        let groups = columns * m.div_ceil(rows as usize);
        let width = |i: usize| self.widths.get(i).copied().unwrap_or(0);
        let words = [
            part.n_rows,
            m,
            self.k,
            self.k.div_ceil(8),
            part.first,
            width(0),
            width(1),
            width(2),
        ];
        weight_words(Call::new(groups, &words), &self.format, self.k, part.scales_at)
            .word(12, columns as u32)
            .word(13, self.k.div_ceil(32) as u32)
    }
}

/// The rows of x as a kernel reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum X {
    /// F32.
    Plain(BufId),
    /// F16, and for each row the factor that takes its scale back.
    Halved { halves: BufId, unscale: BufId },
}

/// What a kernel binds beside x.
struct Bound<'a> {
    w: BufId,
    bias: Option<BufId>,
    residual: Option<BufId>,
    outputs: &'a [BufId],
}

impl Bound<'_> {
    /// What is read, in the order of the bindings.
    fn reads(&self, x: X) -> Vec<BufId> {
        let mut reads = vec![self.w];
        match x {
            X::Plain(x) => reads.push(x),
            X::Halved { halves, unscale } => reads.extend([halves, unscale]),
        }
        reads.extend(self.bias.iter().chain(&self.residual));
        reads
    }

    fn binds(&self, x: X) -> Vec<Bind> {
        let reads = self.reads(x);
        reads.iter().chain(self.outputs).map(|&b| b.into()).collect()
    }

    /// The kernel, with the definitions of what it binds and of the weights.
    fn key(&self, source: Source, x: X, format: &Format) -> KernelKey {
        // A handful.
        let reads = self.reads(x).len() as u32;
        let mut access = vec![Access::Read; reads as usize];
        access.resize(access.len() + self.outputs.len(), Access::Write);
        let has = |buf: Option<BufId>| u32::from(buf.is_some());
        let key = KernelKey::new(source, &access)
            .flag("BIAS", self.bias.is_some())
            .flag("RESIDUAL", self.residual.is_some())
            .flag("OUT2", self.outputs.len() > 1)
            .flag("OUT3", self.outputs.len() > 2)
            .int("BIAS_AT", reads - has(self.residual) - has(self.bias))
            .int("RESIDUAL_AT", reads - has(self.residual))
            .int("Y0", reads)
            .int("Y1", reads + 1)
            .int("Y2", reads + 2);
        format.define(key)
    }
}
