//! Products with packed weights: one `x` with one or several weights below each other.

use glia_core::{BackendError, Gate, Shape, ValueId, ValueType};

use super::way::{Tile, Way, X};
use super::{coop, dots, float};
use crate::ops::elementwise::gate_function;
use crate::program::{Bind, BufId, Lower, StepInfo};
use crate::shader::{Access, Call, KernelKey};
use crate::weights::{Format, Matrix, Part};

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
    /// The first half of the columns gates the second.
    pub gate: Option<Gate>,
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
        halves: product.gate.is_some(),
    };
    for way in ways(cx, product.x, &matrix)? {
        let bound = Bound {
            x: way.x,
            bias: product.bias,
            residual,
            gate: product.gate,
            outputs: &outputs,
        };
        let keys: Vec<KernelKey> = way
            .tiles
            .iter()
            .map(|tile| bound.complete(tile, &size.format))
            .collect();
        for part in matrix.parts.clone() {
            let (own, way) = (size.clone(), way.clone());
            cx.push_any(&keys, &bound.binds(part.buf), move |info| {
                let m = own.n_rows(info);
                match way.choose(m) {
                    Some(chosen) => own.call(&part, m, &way.tiles[chosen]).variant(chosen),
                    None => Call::new(0, &[]),
                }
            })?;
        }
    }
    Ok(())
}

/// The ways in which a product is computed, of which each number of rows takes one: in bytes where there are few, by
/// cooperative matrices where there are many, and else in F32.
fn ways(cx: &mut Lower<'_>, x: ValueId, matrix: &Matrix) -> Result<Vec<Way>, BackendError> {
    let dots = dots::way(cx, x, matrix)?;
    let mut coop = coop::way(cx, x, matrix)?;
    let least = dots.as_ref().map_or(0, |way| way.takes.end().saturating_add(1));
    if let Some(coop) = &mut coop {
        coop.takes = (*coop.takes.start()).max(least)..=usize::MAX;
    }
    let most = coop.as_ref().map_or(usize::MAX, |way| way.takes.start() - 1);
    let float = Way {
        x: X::Plain(cx.value(x)?),
        takes: least..=most,
        tiles: float::tiles(cx.caps(), matrix.k),
    };
    Ok(dots
        .into_iter()
        .chain([float])
        .chain(coop)
        .filter(|way| !way.takes.is_empty())
        .collect())
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
    /// A result takes a column of the first half and one of the second.
    halves: bool,
}

impl Size {
    fn n_rows(&self, info: &StepInfo<'_>) -> usize {
        rows_of(&info.shape(&self.x))
    }

    /// Constants of a product of `m` rows with a part.
    fn call(&self, part: &Part, m: usize, tile: &Tile) -> Call {
        let n = if self.halves { part.n_rows / 2 } else { part.n_rows };
        let columns = n.div_ceil(tile.results(self.halves) as usize);
        let groups = columns * m.div_ceil(tile.rows as usize);
        let width = |i: usize| self.widths.get(i).copied().unwrap_or(0);
        let words = [
            n,
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

/// What a kernel binds beside the weights.
struct Bound<'a> {
    x: X,
    bias: Option<BufId>,
    residual: Option<BufId>,
    gate: Option<Gate>,
    outputs: &'a [BufId],
}

impl Bound<'_> {
    /// What is read after the weights, in the order of the bindings.
    fn reads(&self) -> impl Iterator<Item = BufId> {
        let (first, second) = match self.x {
            X::Plain(x) => (x, None),
            X::Packed { rows, scales } => (rows, Some(scales)),
        };
        std::iter::once(first)
            .chain(second)
            .chain(self.bias)
            .chain(self.residual)
    }

    fn binds(&self, w: BufId) -> Vec<Bind> {
        let all = std::iter::once(w)
            .chain(self.reads())
            .chain(self.outputs.iter().copied());
        all.map(Bind::from).collect()
    }

    /// A kernel with the definitions of what it binds and of the weights.
    fn complete(&self, tile: &Tile, format: &Format) -> KernelKey {
        let mut key = tile.key.clone();
        let outs = if self.gate.is_some() { tile.each / 2 } else { tile.each };
        // A handful.
        let reads = 1 + self.reads().count() as u32;
        key.buffers = vec![Access::Read; reads as usize];
        key.buffers
            .resize(key.buffers.len() + self.outputs.len(), Access::Write);
        let has = |buf: Option<BufId>| u32::from(buf.is_some());
        let key = key
            .flag("BIAS", self.bias.is_some())
            .flag("RESIDUAL", self.residual.is_some())
            .flag("GATED", self.gate.is_some())
            .text("FN", self.gate.map_or("none", gate_function))
            .int("N", tile.each)
            .int("OUTS", outs)
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
