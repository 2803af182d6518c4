//! Sliding windows: pooling and convolution. Each output position picks its window's elements from the flattened
//! image by known indices; what is padding picks a constant.

use glia_core::{DType, Op};
use glia_ir::Vid;

use super::{Family, Outputs, like_first};
use crate::array::Elem;
use crate::translate::{NodeCx, R, Translator, broken, form};

pub const FAMILY: Family = &[
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("Conv", conv),
    ("ConvInteger", conv_integer),
    ("QLinearConv", qlinear_conv),
];

/// Where the windows lie over an image.
struct Windows {
    /// Spatial dimensions of the input and of the output.
    image: Vec<usize>,
    out: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    before: Vec<i64>,
    after: Vec<i64>,
}

impl Windows {
    fn read(cx: &NodeCx<'_>, image: &[usize], kernel: &[usize]) -> R<Windows> {
        let n = image.len();
        let sizes = |name: &str| match cx.ints(name) {
            Some(list) => list.iter().map(|&v| v as usize).collect(),
            None => vec![1; n],
        };
        let (strides, dilations): (Vec<usize>, Vec<usize>) = (sizes("strides"), sizes("dilations"));
        if strides.len() != n || dilations.len() != n || kernel.len() != n {
            return broken(format!("{}: lists of different lengths", cx.op()));
        }
        let pads = cx.ints("pads").unwrap_or_else(|| vec![0; 2 * n]);
        let (mut before, mut after) = (pads[..n].to_vec(), pads[n..].to_vec());
        let mut out = Vec::new();
        for i in 0..n {
            let (size, stride) = (image[i] as i64, strides[i] as i64);
            let reach = (dilations[i] * (kernel[i] - 1) + 1) as i64;
            match cx.text("auto_pad", "NOTSET").as_str() {
                "NOTSET" => {}
                "VALID" => (before[i], after[i]) = (0, 0),
                same => {
                    let wanted = (size + stride - 1) / stride;
                    let total = ((wanted - 1) * stride + reach - size).max(0);
                    // The odd one goes to the end for SAME_UPPER, to the start for SAME_LOWER.
                    let less = total / 2;
                    before[i] = if same == "SAME_LOWER" { total - less } else { less };
                    after[i] = total - before[i];
                }
            }
            let room = size + before[i] + after[i] - reach;
            let mut steps = room / stride + 1;
            if cx.flag("ceil_mode") && room % stride != 0 && steps * stride < size + before[i] {
                // One more window, if it begins on the image or the padding in front of it.
                steps += 1;
            }
            out.push(steps.max(0) as usize);
        }
        Ok(Windows {
            image: image.to_vec(),
            out,
            kernel: kernel.to_vec(),
            strides,
            dilations,
            before,
            after,
        })
    }

    fn n_taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// For each output position and each tap of the kernel: the element of the flattened image, `None` in the padding,
    /// and whether the place is padding that was asked for (a window that is one too many reaches beyond).
    fn taps(&self) -> Vec<(Option<usize>, bool)> {
        let n_out: usize = self.out.iter().product();
        let mut taps = Vec::with_capacity(n_out * self.n_taps());
        for position in 0..n_out {
            for tap in 0..self.n_taps() {
                let (mut p, mut k) = (position, tap);
                let (mut flat, mut step) = (0, 1);
                let (mut inside, mut padded) = (true, true);
                for i in (0..self.image.len()).rev() {
                    let at = (p % self.out[i] * self.strides[i] + k % self.kernel[i] * self.dilations[i]) as i64;
                    let at = at - self.before[i];
                    (p, k) = (p / self.out[i], k / self.kernel[i]);
                    let size = self.image[i] as i64;
                    inside &= (0..size).contains(&at);
                    padded &= at < size + self.after[i];
                    flat += at.clamp(0, size - 1) as usize * step;
                    step *= self.image[i];
                }
                taps.push((inside.then_some(flat), padded));
            }
        }
        taps
    }

    /// `[N, C, ..image]` -> `[N, C, n_out, n_taps]`, with `fill` for the padding.
    fn pick(&self, t: &mut Translator<'_>, x: Vid, fill: f64) -> R<Vid> {
        let shape = t.shape(x)?;
        let (n, c) = (shape[0], shape[1]);
        let size: usize = self.image.iter().product();
        let flat = t.reshape(x, &[n, c, size])?;
        let edge = t.floats(&[n, c, 1], vec![fill; n * c])?;
        let table = t.concat(&[flat, edge], 2)?;
        let at: Vec<usize> = self.taps().into_iter().map(|(at, _)| at.unwrap_or(size)).collect();
        let at = t.indices(&at)?;
        let picked = t.gather(table, 2, at)?;
        t.reshape(picked, &[n, c, self.out.iter().product(), self.n_taps()])
    }
}

fn pooled(cx: &NodeCx<'_>) -> R<(Windows, Vec<usize>)> {
    let shape = &cx.input(0)?.shape;
    let kernel: Vec<usize> = cx
        .ints("kernel_shape")
        .unwrap_or_default()
        .iter()
        .map(|&k| k as usize)
        .collect();
    let windows = Windows::read(cx, &shape[2..], &kernel)?;
    let out = [&shape[..2], &windows.out].concat();
    Ok((windows, out))
}

fn max_pool(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    if cx.wants(1) {
        return form("MaxPool: with indices");
    }
    let (windows, out) = pooled(cx)?;
    let x = super::arithmetic::operand(t, cx, 0)?;
    let picked = windows.pick(t, x, f64::NEG_INFINITY)?;
    let y = t.max_last(picked)?;
    let y = t.reshape(y, &out)?;
    like_first(cx, y)
}

/// The sum over a window by how many places count: those of the image, or those of the padding too.
fn average_pool(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (windows, out) = pooled(cx)?;
    let x = t.float(cx, cx.input(0)?)?;
    let picked = windows.pick(t, x, 0.0)?;
    let sums = t.op(Op::Sum { axis: 3, keep: false }, &[picked])?;
    let with_padding = cx.flag("count_include_pad");
    let taps = windows.taps();
    let counts = taps.chunks(windows.n_taps().max(1)).map(|window| {
        let counted = window
            .iter()
            .filter(|(at, padded)| at.is_some() || (with_padding && *padded));
        counted.count() as f64
    });
    let counts: Vec<f64> = counts.collect();
    let counts = t.floats(&[1, 1, counts.len()], counts)?;
    let y = t.div(sums, counts)?;
    let y = t.reshape(y, &out)?;
    like_first(cx, y)
}

/// `x [N, C, ..]` and `w [M, C / groups, ..]`: for each group a product of its windows and its filters.
fn convolve(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid, w: Vid) -> R<Vid> {
    let (sx, sw) = (t.shape(x)?, t.shape(w)?);
    let groups = cx.int("group", 1) as usize;
    let (n, c, m) = (sx[0], sx[1], sw[0]);
    if groups == 0 || c != sw[1] * groups || m % groups != 0 {
        return broken("Conv: channels and groups");
    }
    let windows = Windows::read(cx, &sx[2..], &sw[2..])?;
    let (n_out, n_taps) = (windows.out.iter().product(), windows.n_taps());
    let picked = windows.pick(t, x, 0.0)?;
    let rows = t.permute(picked, &[0, 2, 1, 3])?;
    let (per_group, filters) = (c / groups, m / groups);
    let mut parts = Vec::new();
    for g in 0..groups {
        let rows = t.slice(rows, 2, g * per_group, (g + 1) * per_group)?;
        let rows = t.reshape(rows, &[n * n_out, per_group * n_taps])?;
        let w = t.slice(w, 0, g * filters, (g + 1) * filters)?;
        let w = t.reshape(w, &[filters, per_group * n_taps])?;
        parts.push(t.op(Op::MatMul, &[rows, w])?);
    }
    let y = t.concat(&parts, 1)?;
    let y = t.reshape(y, &[n, n_out, m])?;
    let y = t.permute(y, &[0, 2, 1])?;
    t.reshape(y, &[&[n, m], windows.out.as_slice()].concat())
}

/// A value per channel over `[N, M, ..]`.
fn per_channel(t: &mut Translator<'_>, vid: Vid, rank: usize) -> R<Vid> {
    let n = t.shape(vid)?.iter().product();
    let mut shape = vec![1; rank];
    shape[1] = n;
    t.reshape(vid, &shape)
}

fn conv(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, w) = (t.float(cx, cx.input(0)?)?, t.float(cx, cx.input(1)?)?);
    let mut y = convolve(t, cx, x, w)?;
    if let Some(bias) = cx.optional(2) {
        let bias = t.f32(bias)?;
        let bias = per_channel(t, bias, cx.input(0)?.shape.len())?;
        y = t.add(y, bias)?;
    }
    like_first(cx, y)
}

/// Integers less their zero point, which is one for all or one per filter.
fn shifted(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: usize, zero: usize) -> R<Vid> {
    let vid = t.f32(cx.input(x)?)?;
    let Some(z) = cx.optional(zero) else { return Ok(vid) };
    let mut shape = vec![1; cx.input(x)?.shape.len()];
    shape[0] = z.shape.iter().product();
    let zero = t.f32(z)?;
    let zero = t.reshape(zero, &shape)?;
    t.sub(vid, zero)
}

fn conv_integer(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, w) = (shifted(t, cx, 0, 2)?, shifted(t, cx, 1, 3)?);
    let y = convolve(t, cx, x, w)?;
    Ok(vec![(t.cast(y, DType::I32)?, Elem::I32)])
}

fn qlinear_conv(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    if cx.optional(8).is_some() {
        return form("QLinearConv: with a bias");
    }
    let (x, w) = (shifted(t, cx, 0, 2)?, shifted(t, cx, 3, 5)?);
    let rank = cx.input(0)?.shape.len();
    let mut y = convolve(t, cx, x, w)?;
    for (i, divide) in [(1, false), (4, false), (6, true)] {
        let scale = t.f32(cx.input(i)?)?;
        let scale = per_channel(t, scale, rank)?;
        y = if divide { t.div(y, scale)? } else { t.mul(y, scale)? };
    }
    let y = t.round_even(y)?;
    let zero = t.f32(cx.input(7)?)?;
    let zero = per_channel(t, zero, rank)?;
    let y = t.add(y, zero)?;
    let to = cx.input(7)?.elem;
    match to.dtype() {
        Some(dtype) => Ok(vec![(t.cast(y, dtype)?, to)]),
        None => form("an output type without a dtype"),
    }
}
