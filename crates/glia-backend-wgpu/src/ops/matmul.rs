//! Matrix products, in F32 whatever the precision. Dots of four signed bytes (`dot4I8Packed`) are not used: measured on
//! llvmpipe (576 columns, k 1536, Q8_0, time of the processor), a kernel that multiplies rows quantised per 32 takes 0.67
//! to 0.95 of the time of this one for one row, before those rows are quantised, and 1.17 to 1.19 of it for 64. Cooperative
//! matrices are not used either: they are experimental in wgpu.

use glia_core::{BackendError, DType, Instr, ValueId};

use super::GROUP;
use crate::program::{Bind, BufId, Lower, StepInfo};
use crate::shader::{Access, Call, KernelKey, Source};
use crate::weights::{Format, Part};

/// Sets the constants by which kernels find weights.
pub(super) fn weight_words(call: Call, format: &Format, k: usize, scales_at: usize) -> Call {
    // Words of a buffer of at most 4 GiB.
    call.word(8, format.code_words(k) as u32)
        .word(9, scales_at as u32)
        .word(10, format.scale_words(k) as u32)
        .word(11, format.low_words(k) as u32)
}

/// A product of one `x` with one or several weights below each other.
pub(super) struct Product<'a> {
    pub x: ValueId,
    pub weights: &'a [ValueId],
    pub bias: Option<BufId>,
    pub residual: Option<ValueId>,
    pub outputs: &'a [ValueId],
}

pub(super) fn lower(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    let bias = instr.inputs.get(2).map(|&id| cx.value(id)).transpose()?;
    let rank = cx.ty(instr.inputs[1]).rank();
    if rank > 2 || cx.const_of(instr.inputs[1]).is_none() {
        return dense(cx, instr, bias);
    }
    product(
        cx,
        &Product {
            x: instr.inputs[0],
            weights: &instr.inputs[1..2],
            bias,
            residual: None,
            outputs: &instr.outputs,
        },
    )
}

/// A product that is added to `other`.
pub(super) fn added(
    cx: &mut Lower<'_>,
    instr: &Instr,
    other: ValueId,
    outputs: &[ValueId],
) -> Result<(), BackendError> {
    let bias = instr.inputs.get(2).map(|&id| cx.value(id)).transpose()?;
    product(
        cx,
        &Product {
            x: instr.inputs[0],
            weights: &instr.inputs[1..2],
            bias,
            residual: Some(other),
            outputs,
        },
    )
}

/// Products of one value with several weights of one dtype.
pub(super) fn several(cx: &mut Lower<'_>, instrs: &[&Instr]) -> Result<(), BackendError> {
    let mut bias = Vec::new();
    for id in instrs.iter().filter_map(|i| i.inputs.get(2)) {
        if let Some(of) = cx.const_of(*id) {
            bias.extend(crate::weights::plain_words(&cx.weight(of)?)?);
        }
    }
    let bias = (!bias.is_empty()).then(|| cx.upload_words("bias", &bias)).transpose()?;
    let weights: Vec<ValueId> = instrs.iter().map(|i| i.inputs[1]).collect();
    let outputs: Vec<ValueId> = instrs.iter().map(|i| i.outputs[0]).collect();
    product(
        cx,
        &Product {
            x: instrs[0].inputs[0],
            weights: &weights,
            bias,
            residual: None,
            outputs: &outputs,
        },
    )
}

/// A kernel for some number of rows of x: a step runs one of those that a dispatch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    source: Source,
    /// Rows of x that a workgroup takes together.
    rows: u32,
    /// Columns that a workgroup takes together.
    columns: u32,
    /// Rows and columns of a thread.
    each: [u32; 2],
    /// Taken for up to so many rows in all.
    most: usize,
}

/// On devices where every thread works alone: vectors of eight.
const ALONE: [Form; 3] = [form(1, 4, 1), form(4, 2, 4), form(8, 2, usize::MAX)];

const fn form(rows: u32, columns: u32, most: usize) -> Form {
    Form {
        source: Source::MatMulAlone,
        rows,
        columns: 8 * columns,
        each: [rows, columns],
        most,
    }
}

/// Where workgroups share: few rows by threads that share k, many in tiles.
const TOGETHER: [Form; 5] = [
    shared(1, 1),
    shared(2, 2),
    shared(4, 8),
    tiled(2, 24),
    tiled(8, usize::MAX),
];

const fn shared(rows: u32, most: usize) -> Form {
    Form {
        source: Source::MatMul,
        rows,
        columns: 4,
        each: [rows, 4],
        most,
    }
}

const fn tiled(run: u32, most: usize) -> Form {
    Form {
        source: Source::MatMulTiled,
        rows: 8 * run,
        columns: 64,
        each: [run, 4],
        most,
    }
}

/// The forms for a device.
fn forms(cx: &Lower<'_>, k: usize) -> &'static [Form] {
    if cx.caps().alone(k.div_ceil(32)) {
        &ALONE
    } else {
        &TOGETHER
    }
}

/// The form for `m` rows, by its place.
fn choose(forms: &[Form], m: usize) -> usize {
    forms.iter().position(|form| m <= form.most).unwrap_or(0)
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
    let x = cx.value(product.x)?;
    let residual = product.residual.map(|id| cx.value(id)).transpose()?;
    let mut outputs = Vec::with_capacity(product.outputs.len());
    for &id in product.outputs {
        outputs.push(cx.value(id)?);
    }
    let widths: Vec<usize> = product
        .outputs
        .iter()
        .map(|&id| cx.ty(id).dims.last().and_then(|d| d.as_fixed()).unwrap_or(0))
        .collect();
    let ty = cx.ty(product.x).clone();
    let (k, format) = (matrix.k, matrix.format);
    for part in matrix.parts.clone() {
        let job = Job {
            w: part.buf,
            x,
            bias: product.bias,
            residual,
            outputs: &outputs,
            k,
        };
        let (ty, widths, forms) = (ty.clone(), widths.clone(), forms(cx, k));
        job.push(cx, &format, move |info| {
            let m = rows_of(&info.shape(&ty));
            let chosen = choose(forms, m);
            constants(&forms[chosen], &part, &widths, k, m, &format).variant(chosen)
        })?;
    }
    Ok(())
}

fn rows_of(shape: &glia_core::Shape) -> usize {
    shape[..shape.rank() - 1].iter().product()
}

/// Constants of a product of `m` rows.
fn constants(form: &Form, part: &Part, widths: &[usize], k: usize, m: usize, format: &Format) -> Call {
    let columns = part.n_rows.div_ceil(form.columns as usize);
    let groups = columns * m.div_ceil(form.rows as usize);
    let width = |i: usize| widths.get(i).copied().unwrap_or(0);
    let words = [
        part.n_rows,
        m,
        k,
        k.div_ceil(8),
        part.first,
        width(0),
        width(1),
        width(2),
    ];
    let call = Call::new(groups, &words);
    weight_words(call, format, k, part.scales_at)
        .word(12, columns as u32)
        .word(13, k.div_ceil(32) as u32)
}

/// What a kernel binds.
struct Job<'a> {
    w: BufId,
    x: BufId,
    bias: Option<BufId>,
    residual: Option<BufId>,
    outputs: &'a [BufId],
    /// Width of x.
    k: usize,
}

impl Job<'_> {
    fn push(
        &self,
        cx: &mut Lower<'_>,
        format: &Format,
        call: impl Fn(&StepInfo<'_>) -> Call + Send + Sync + 'static,
    ) -> Result<(), BackendError> {
        // What is not there is bound to something that is, and not read.
        let mut binds: Vec<Bind> = vec![self.w.into(), self.x.into(), self.bias.unwrap_or(self.x).into()];
        binds.extend(self.residual.map(Bind::from));
        let mut access = vec![Access::Read; binds.len()];
        binds.extend(self.outputs.iter().map(|&b| Bind::from(b)));
        access.resize(binds.len(), Access::Write);
        let broadcast = cx.caps().subgroup8;
        let key = |form: &Form| {
            let alone = form.source == Source::MatMulAlone;
            let unit = if alone { 32 } else { 8 };
            let [rows, columns] = form.each;
            let key = KernelKey::new(form.source, &access)
                .flag("X4", self.k.is_multiple_of(4))
                .flag("TAIL", !self.k.is_multiple_of(unit))
                .flag("VEC4", alone)
                .flag("BROADCAST", alone && broadcast)
                .flag("BIAS", self.bias.is_some())
                .flag("RESIDUAL", self.residual.is_some())
                .flag("OUT2", self.outputs.len() > 1)
                .flag("OUT3", self.outputs.len() > 2)
                .int("M", rows)
                .int("N", columns)
                .int("RUN", rows)
                .int("SUMS", rows * columns)
                .int("TWO", 2)
                .int("FOUR", 4)
                .int("EIGHT", 8);
            format.define(key)
        };
        let keys: Vec<KernelKey> = forms(cx, self.k).iter().map(key).collect();
        cx.push_any(&keys, &binds, call)
    }
}

/// Both operands are computed: batch by batch.
fn dense(cx: &mut Lower<'_>, instr: &Instr, bias: Option<BufId>) -> Result<(), BackendError> {
    let (x, w) = (cx.value(instr.inputs[0])?, cx.value(instr.inputs[1])?);
    let y = cx.value(instr.outputs[0])?;
    let types = [instr.inputs[0], instr.inputs[1]].map(|id| cx.ty(id).clone());
    debug_assert_eq!(types[0].dtype, DType::F32);
    let has_bias = bias.is_some();
    let key = |access: &[_]| KernelKey::new(Source::Batched, access).flag("BIAS", has_bias);
    cx.kernel(key, &[w, x, bias.unwrap_or(x)], &[y], move |info| {
        let [x, w] = types.each_ref().map(|ty| info.shape(ty));
        let (k, n) = (x.last_dim(), w[w.rank() - 2]);
        let m = rows_of(&x);
        let batches: usize = w[..w.rank() - 2].iter().product();
        Call::new((m * n).div_ceil(GROUP), &[m, n, k, m.checked_div(batches).unwrap_or(0)])
    })
}
