//! Attention and RotaryEmbedding. Ours work on one sequence with tokens first, `[T, heads, dim]`: batches are cut and
//! joined around them, and whatever mask is no causal one or window of ours becomes an additive one.

use glia_core::{Op, Sdpa, Unary};
use glia_ir::Vid;

use super::{Family, Outputs};
use crate::array::Elem;
use crate::translate::{NodeCx, R, Translator, broken, form};

pub const FAMILY: Family = &[("Attention", attention), ("RotaryEmbedding", rotary)];

/// `[B, H, T, D]`, or `[B, T, H D]` with a number of heads, as `[B, T, H, D]`.
fn tokens_first(t: &mut Translator<'_>, cx: &NodeCx<'_>, i: usize, heads: &str) -> R<Vid> {
    let val = cx.input(i)?;
    let vid = t.float(cx, val)?;
    match val.shape[..] {
        [b, n, width] => {
            let heads = cx.int(heads, 1) as usize;
            t.reshape(vid, &[b, n, heads, width / heads.max(1)])
        }
        [_, _, _, _] => t.permute(vid, &[0, 2, 1, 3]),
        _ => form("neither of rank 3 nor of rank 4"),
    }
}

/// What a node says of attention, and its operands in `[B, T, heads, dim]`.
struct Attention {
    q: Vid,
    k: Vid,
    v: Vid,
    /// B, Tq, H, D.
    dims: [usize; 4],
    /// Hkv, and all keys, past and new.
    n_groups: usize,
    n_keys: usize,
    scale: f32,
    softcap: Option<f32>,
    causal: bool,
    /// How far back and ahead a query sees; negative is without end.
    window: [i64; 2],
    /// For each sequence: position of its first query, and keys that are no padding.
    offsets: Vec<i64>,
    valid: Vec<usize>,
    /// Additive, `[1 or B, 1 or H, Tq, at most n_keys]`.
    mask: Option<Vid>,
}

fn attention(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let a = Attention::read(t, cx)?;
    let [b, n_queries, n_heads, _] = a.dims;
    let elem = cx.input(0)?.elem;
    let mut parts = Vec::new();
    for seq in 0..b {
        let v = a.sequence(t, a.v, seq)?;
        parts.push(a.attend(t, seq, v)?);
    }
    let y = t.concat(&parts, 0)?;
    let dv = t.shape(y)?[3];
    let y = if cx.input(0)?.shape.len() == 3 {
        t.reshape(y, &[b, n_queries, n_heads * dv])?
    } else {
        t.permute(y, &[0, 2, 1, 3])?
    };
    let mut outputs = vec![(y, elem)];
    for (i, rows) in [(1, a.k), (2, a.v)] {
        if cx.n_outputs() > i {
            let present = t.permute(rows, &[0, 2, 1, 3])?;
            outputs.push((t.view(present)?, cx.input(i)?.elem));
        }
    }
    if cx.wants(3) {
        let scores = a.scores(t, cx.int("qk_matmul_output_mode", 0))?;
        outputs.push((scores, elem));
    }
    Ok(outputs)
}

impl Attention {
    fn read(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> R<Attention> {
        let q = tokens_first(t, cx, 0, "q_num_heads")?;
        let mut k = tokens_first(t, cx, 1, "kv_num_heads")?;
        let mut v = tokens_first(t, cx, 2, "kv_num_heads")?;
        let mut n_past = 0;
        if cx.optional(4).is_some() {
            let (past_k, past_v) = (tokens_first(t, cx, 4, "")?, tokens_first(t, cx, 5, "")?);
            n_past = t.shape(past_k)?[1];
            (k, v) = (t.concat(&[past_k, k], 1)?, t.concat(&[past_v, v], 1)?);
        }
        let [b, n_queries, n_heads, d] = t.shape(q)?[..] else {
            return broken("Attention: queries");
        };
        let [_, n_keys, n_groups, _] = t.shape(k)?[..] else {
            return broken("Attention: keys");
        };
        let (offsets, valid) = match cx.optional(6) {
            Some(_) => {
                let lens = cx.known(6)?.to_ints();
                let offsets = lens.iter().map(|n| n - n_queries as i64).collect();
                (offsets, lens.iter().map(|&n| (n.max(0) as usize).min(n_keys)).collect())
            }
            None => (vec![n_past as i64; b], vec![n_keys; b]),
        };
        let softcap = cx.float("softcap", 0.0);
        Ok(Attention {
            q,
            k,
            v,
            dims: [b, n_queries, n_heads, d],
            n_groups,
            n_keys,
            scale: cx.float("scale", (1.0 / (d as f64).sqrt()) as f32),
            softcap: (softcap > 0.0).then_some(softcap),
            causal: cx.flag("is_causal"),
            window: [cx.int("left_window_size", -1), cx.int("right_window_size", -1)],
            offsets,
            valid,
            mask: additive(t, cx)?,
        })
    }

    /// One sequence of `[B, T, heads, dim]`.
    fn sequence(&self, t: &mut Translator<'_>, x: Vid, seq: usize) -> R<Vid> {
        let cut = t.slice(x, 0, seq, seq + 1)?;
        let shape = t.shape(cut)?;
        t.reshape(cut, &shape[1..])
    }

    /// Whether a query may see a key, by position alone.
    fn sees(&self, seq: usize, query: usize, key: usize) -> bool {
        let behind = query as i64 + self.offsets[seq] - key as i64;
        let [back, ahead] = self.window;
        key < self.valid[seq]
            && (!self.causal || behind >= 0)
            && (back < 0 || behind <= back)
            && (ahead < 0 || -behind <= ahead)
    }

    /// Sdpa of one sequence over values `[Tk, Hkv, Dv]` -> `[1, Tq, H, Dv]`.
    fn attend(&self, t: &mut Translator<'_>, seq: usize, v: Vid) -> R<Vid> {
        let n_queries = self.dims[1];
        let (q, mut k, mut v) = (self.sequence(t, self.q, seq)?, self.sequence(t, self.k, seq)?, v);
        let mut mask = self.mask_of(t, seq)?;
        // Keys that no query sees are left out.
        let mut n_keys = self.valid[seq];
        if let Some(mask) = mask {
            n_keys = n_keys.min(*t.shape(mask)?.last().unwrap_or(&0));
        }
        let end = self.offsets[seq] + n_queries as i64;
        if self.causal && end > 0 && (end as usize) < n_keys {
            n_keys = end as usize;
        }
        // Ours aligns the last query with the last key, and wants a key for each query.
        let [back, ahead] = self.window;
        let aligned = end == n_keys as i64 && n_keys >= n_queries && ahead < 0;
        let ours = aligned || (!self.causal && back < 0 && ahead < 0);
        (k, v) = (t.slice(k, 0, 0, n_keys)?, t.slice(v, 0, 0, n_keys)?);
        if let Some(wide) = mask {
            let axis = t.shape(wide)?.len() - 1;
            mask = Some(t.slice(wide, axis, 0, n_keys)?);
        }
        if !ours {
            let known = self.by_position(t, seq, n_keys)?;
            mask = Some(match mask {
                Some(given) => t.add(given, known)?,
                None => known,
            });
        }
        let sdpa = Sdpa {
            scale: self.scale,
            causal: ours && self.causal,
            window: (ours && back >= 0).then(|| back as usize + 1),
            softcap: self.softcap,
            mask: mask.is_some(),
            sinks: false,
        };
        let inputs: Vec<Vid> = [q, k, v].into_iter().chain(mask).collect();
        let y = t.op(Op::Sdpa(sdpa), &inputs)?;
        let shape = t.shape(y)?;
        t.reshape(y, &[&[1], shape.as_slice()].concat())
    }

    /// Zero where a query sees a key by position, else -inf: `[Tq, n_keys]`.
    fn by_position(&self, t: &mut Translator<'_>, seq: usize, n_keys: usize) -> R<Vid> {
        let n_queries = self.dims[1];
        let cell = |i: usize| {
            let seen = self.sees(seq, i / n_keys, i % n_keys);
            if seen { 0.0 } else { f64::NEG_INFINITY }
        };
        t.floats(&[n_queries, n_keys], (0..n_queries * n_keys).map(cell).collect())
    }

    /// The given mask of one sequence: `[Tq, n]` or `[H, Tq, n]`.
    fn mask_of(&self, t: &mut Translator<'_>, seq: usize) -> R<Option<Vid>> {
        let Some(mask) = self.mask else { return Ok(None) };
        let [_, n_queries, n_heads, _] = self.dims;
        let [batch, heads, _, n] = t.shape(mask)?[..] else {
            return broken("Attention: mask");
        };
        let seq = if batch == 1 { 0 } else { seq };
        let mask = t.slice(mask, 0, seq, seq + 1)?;
        let mask = t.expand(mask, &[1, heads, n_queries, n])?;
        if heads == 1 {
            return t.reshape(mask, &[n_queries, n]).map(Some);
        }
        t.reshape(mask, &[n_heads, n_queries, n]).map(Some)
    }

    /// The second result `[B, H, Tq, Tk]`: raw scores, soft-capped, masked, or probabilities.
    fn scores(&self, t: &mut Translator<'_>, mode: i64) -> R<Vid> {
        let [b, n_queries, n_heads, _] = self.dims;
        if mode == 3 {
            return self.probabilities(t);
        }
        let q = t.permute(self.q, &[0, 2, 1, 3])?;
        let k = t.permute(self.k, &[0, 2, 1, 3])?;
        let n = n_heads / self.n_groups;
        let k = if n > 1 {
            t.op(Op::Repeat { axis: 1, n }, &[k])?
        } else {
            k
        };
        let y = t.op(Op::MatMul, &[q, k])?;
        let mut y = t.scale(y, self.scale)?;
        if let Some(cap) = self.softcap.filter(|_| mode >= 1) {
            y = t.scale(y, 1.0 / cap)?;
            y = t.unary(Unary::Tanh, y)?;
            y = t.scale(y, cap)?;
        }
        if mode < 2 {
            return Ok(y);
        }
        let mut rows = Vec::new();
        for seq in 0..b {
            let known = self.by_position(t, seq, self.n_keys)?;
            rows.push(t.reshape(known, &[1, 1, n_queries, self.n_keys])?);
        }
        let known = t.concat(&rows, 0)?;
        y = t.add(y, known)?;
        match self.mask {
            Some(mask) if t.shape(mask)?.last() == Some(&self.n_keys) => t.add(y, mask),
            Some(_) => form("a mask shorter than the keys, shown"),
            None => Ok(y),
        }
    }

    /// Attention over the unit matrix as values gives its own weights.
    fn probabilities(&self, t: &mut Translator<'_>) -> R<Vid> {
        let n = self.n_keys;
        let cell = |i: usize| f64::from(u8::from(i / (n * self.n_groups) == i % n));
        let mut parts = Vec::new();
        for seq in 0..self.dims[0] {
            let unit = t.floats(&[n, self.n_groups, n], (0..n * self.n_groups * n).map(cell).collect())?;
            parts.push(self.attend(t, seq, unit)?);
        }
        let y = t.concat(&parts, 0)?;
        t.permute(y, &[0, 2, 1, 3])
    }
}

/// The mask in rank 4 and F32; of a boolean one `(m - 1) / m`: 0 where true, -inf where false.
fn additive(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> R<Option<Vid>> {
    let Some(val) = cx.optional(3) else { return Ok(None) };
    let mut mask = t.f32(val)?;
    if val.elem == Elem::BOOL {
        let less = t.add_scalar(mask, -1.0)?;
        mask = t.div(less, mask)?;
    }
    let mut shape = val.shape.clone();
    while shape.len() < 4 {
        shape.insert(0, 1);
    }
    t.reshape(mask, &shape).map(Some)
}

/// Cosines and sines come as tables that need not be those of any frequencies: the rotation is spelt out.
fn rotary(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = tokens_first(t, cx, 0, "num_heads")?;
    let shape = t.shape(x)?;
    let [b, n, h, d] = shape[..] else {
        return broken("RotaryEmbedding: input");
    };
    let rot = match cx.int("rotary_embedding_dim", 0) as usize {
        0 => d,
        rot => rot,
    };
    let half = rot / 2;
    let mut tables = [x; 2];
    for (i, table) in tables.iter_mut().enumerate() {
        let mut vid = t.f32(cx.input(i + 1)?)?;
        if let Some(ids) = cx.optional(3) {
            let ids = t.vid(ids)?;
            let ids = t.reshape(ids, &[b * n])?;
            vid = t.gather(vid, 0, ids)?;
        }
        *table = t.reshape(vid, &[b, n, 1, half])?;
    }
    let [cos, sin] = tables;
    let turned = t.slice(x, 3, 0, rot)?;
    let interleaved = cx.flag("interleaved");
    let (first, second) = if interleaved {
        let pairs = t.reshape(turned, &[b, n, h, half, 2])?;
        let mut cut = |i: usize| -> R<Vid> {
            let part = t.slice(pairs, 4, i, i + 1)?;
            t.reshape(part, &[b, n, h, half])
        };
        (cut(0)?, cut(1)?)
    } else {
        (t.slice(turned, 3, 0, half)?, t.slice(turned, 3, half, rot)?)
    };
    let (fc, ss) = (t.mul(first, cos)?, t.mul(second, sin)?);
    let real = t.sub(fc, ss)?;
    let (fs, sc) = (t.mul(first, sin)?, t.mul(second, cos)?);
    let imaginary = t.add(fs, sc)?;
    let mut y = if interleaved {
        let column = [b, n, h, half, 1];
        let (real, imaginary) = (t.reshape(real, &column)?, t.reshape(imaginary, &column)?);
        let pairs = t.concat(&[real, imaginary], 4)?;
        t.reshape(pairs, &[b, n, h, rot])?
    } else {
        t.concat(&[real, imaginary], 3)?
    };
    if rot < d {
        let rest = t.slice(x, 3, rot, d)?;
        y = t.concat(&[y, rest], 3)?;
    }
    let y = if cx.input(0)?.shape.len() == 3 {
        t.reshape(y, &[b, n, h * d])?
    } else {
        t.permute(y, &[0, 2, 1, 3])?
    };
    Ok(vec![(y, cx.input(0)?.elem)])
}
