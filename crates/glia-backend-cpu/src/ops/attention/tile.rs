//! The arithmetic of attention: one query row against one tile of keys and values, and the merging of splits.

use crate::math::{exp, tanh};
use crate::simd::{leveled, madd};
use crate::state::{BLOCK_TOKENS, LANES};

/// Running results of query rows: for each the largest score, the sum of weights and the weighted sum of values.
pub(crate) struct Rows<'a> {
    data: &'a mut [f32],
    width: usize,
}

impl<'a> Rows<'a> {
    /// Over `data` of `n_rows * (v_dim + 2)`.
    pub fn new(data: &'a mut [f32], n_rows: usize, v_dim: usize) -> Rows<'a> {
        debug_assert_eq!(data.len(), n_rows * (v_dim + 2));
        Rows { data, width: v_dim + 2 }
    }

    pub fn clear(&mut self) {
        self.data.fill(0.0);
        self.data
            .iter_mut()
            .step_by(self.width)
            .for_each(|m| *m = f32::NEG_INFINITY);
    }

    /// The weighted sums from row `i` on, and how far apart those of two rows are.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn sums(&mut self, i: usize) -> (&mut [f32], usize) {
        (&mut self.data[i * self.width + 2..], self.width)
    }

    /// All of the rows from row `i` on, and how far apart two are.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn from(&mut self, i: usize) -> (&mut [f32], usize) {
        (&mut self.data[i * self.width..], self.width)
    }

    pub fn row(&mut self, i: usize) -> &mut [f32] {
        &mut self.data[i * self.width..(i + 1) * self.width]
    }
}

/// Keys of a tile that a row sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visible {
    pub from: usize,
    pub to: usize,
}

leveled! {
    /// Adds a tile to a row's running result. `mask` covers the visible keys.
    pub(crate) fn add_tile(
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        scale_and_cap: (f32, Option<f32>),
        mask: Option<&[f32]>,
        visible: Visible,
        scores: &mut [f32],
        row: &mut [f32],
    ) {
        let scores: &mut [f32; BLOCK_TOKENS] = match scores.try_into() { Ok(s) => s, Err(_) => return };
        let Visible { from, to } = visible;
        let mut sums = [[0f32; LANES]; BLOCK_TOKENS / LANES];
        let stride = query.len() * LANES;
        let (k0, rest) = keys.split_at(stride);
        let (k1, rest) = rest.split_at(stride);
        let (k2, k3) = rest.split_at(stride);
        let (k0, k1, k2, k3) = (k0.as_chunks::<LANES>().0, k1.as_chunks::<LANES>().0, k2.as_chunks::<LANES>().0, k3.as_chunks::<LANES>().0);
        for ((((&x, k0), k1), k2), k3) in query.iter().zip(k0).zip(k1).zip(k2).zip(k3) {
            for (sum, key) in sums.iter_mut().zip([k0, k1, k2, k3]) {
                for lane in 0..LANES {
                    sum[lane] = madd::<FMA>(x, key[lane], sum[lane]);
                }
            }
        }
        for (s, sum) in scores.as_chunks_mut::<LANES>().0.iter_mut().zip(&sums) {
            *s = *sum;
        }
        let Some(keep) = weigh(scale_and_cap, mask, visible, scores, row) else { return };
        let acc = &mut row[2..];
        let width = acc.len();
        let blocks = width / 64 * 64;
        for first in (0..blocks).step_by(64) {
            let mut sum = [0f32; 64];
            let target = &mut acc[first..first + 64];
            for (s, a) in sum.iter_mut().zip(target.iter()) {
                *s = a * keep;
            }
            for j in from..to {
                let (p, v) = (scores[j], &values[j * width + first..j * width + first + 64]);
                for (s, &v) in sum.iter_mut().zip(v) {
                    *s = madd::<FMA>(p, v, *s);
                }
            }
            target.copy_from_slice(&sum);
        }
        let target = &mut acc[blocks..];
        target.iter_mut().for_each(|a| *a *= keep);
        for j in from..to {
            let p = scores[j];
            for (a, &v) in target.iter_mut().zip(&values[j * width + blocks..(j + 1) * width]) {
                *a = madd::<FMA>(p, v, *a);
            }
        }
    }
}

leveled! {
    /// Inner products of a tile become weights: see [`weigh`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) fn weigh_row(
        scale_and_cap: (f32, Option<f32>),
        mask: Option<&[f32]>,
        visible: Visible,
        scores: &mut [f32],
        row: &mut [f32],
    ) -> Option<f32> {
        weigh(scale_and_cap, mask, visible, scores.try_into().ok()?, row)
    }
}

/// Inner products of a tile become weights, and the row's largest score and sum go on. Returns the factor of what the row
/// has so far, or `None` when it sees nothing here.
#[inline(always)]
fn weigh(
    scale_and_cap: (f32, Option<f32>),
    mask: Option<&[f32]>,
    Visible { from, to }: Visible,
    scores: &mut [f32; BLOCK_TOKENS],
    row: &mut [f32],
) -> Option<f32> {
    let (scale, cap) = scale_and_cap;
    for s in scores.iter_mut() {
        *s *= scale;
    }
    if let Some(cap) = cap {
        for s in scores.iter_mut() {
            *s = cap * tanh(*s / cap);
        }
    }
    if let Some(mask) = mask {
        for (s, m) in scores[from..to].iter_mut().zip(mask) {
            *s += m;
        }
    }
    scores[..from].fill(f32::NEG_INFINITY);
    scores[to..].fill(f32::NEG_INFINITY);
    let mut most = [f32::NEG_INFINITY; LANES];
    for s in scores.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            most[lane] = if s[lane] > most[lane] { s[lane] } else { most[lane] };
        }
    }
    let (old, new) = (row[0], most.iter().fold(row[0], |m, &s| if s > m { s } else { m }));
    let new = if new == f32::NEG_INFINITY && scores[from..to].iter().any(|s| s.is_nan()) {
        f32::NAN
    } else {
        new
    };
    if new == f32::NEG_INFINITY {
        return None;
    }
    let mut total = [0f32; LANES];
    for s in scores.as_chunks_mut::<LANES>().0 {
        for lane in 0..LANES {
            s[lane] = exp(s[lane] - new);
            total[lane] += s[lane];
        }
    }
    // Once the largest is NaN it stays: the comparison above never replaces it.
    let keep = exp(old - new);
    row[0] = new;
    row[1] = row[1] * keep + sum16(&total);
    Some(keep)
}

/// Sum of 16 lanes, always in this order.
#[inline(always)]
fn sum16(lanes: &[f32; LANES]) -> f32 {
    let mut eight = [0f32; 8];
    for i in 0..8 {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    let four = [
        eight[0] + eight[4],
        eight[1] + eight[5],
        eight[2] + eight[6],
        eight[3] + eight[7],
    ];
    (four[0] + four[2]) + (four[1] + four[3])
}

leveled! {
    /// Adds the result of a split to the total of the splits before it.
    pub(crate) fn merge(total: &mut [f32], part: &[f32]) {
        if part[0] == f32::NEG_INFINITY {
            return;
        }
        if total[0] == f32::NEG_INFINITY {
            total.copy_from_slice(part);
            return;
        }
        let most = if part[0] > total[0] { part[0] } else { total[0] };
        let (a, b) = (exp(total[0] - most), exp(part[0] - most));
        total[0] = most;
        for (t, &p) in total[1..].iter_mut().zip(&part[1..]) {
            *t = madd::<FMA>(p, b, *t * a);
        }
    }
}

/// The weighted mean of the values; zeros for a row that sees no key.
pub(crate) fn finish(row: &[f32], sink: Option<f32>, out: &mut [f32]) {
    let (mut sum, mut factor) = (row[1], 1.0);
    if let Some(sink) = sink {
        let most = if sink > row[0] { sink } else { row[0] };
        factor = exp(row[0] - most);
        sum = sum * factor + exp(sink - most);
    }
    if row[0] == f32::NEG_INFINITY {
        out.fill(0.0);
        return;
    }
    let inverse = factor / sum;
    for (o, &a) in out.iter_mut().zip(&row[2..]) {
        *o = a * inverse;
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::kernels::avx512::attention::{self, Ahead};
    use crate::simd::Level;

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) as f32 / (1u64 << 30) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn weights_of_rows_together_have_the_bits_of_each_row_alone() {
        if !Isa::Avx512Vnni.is_available() {
            println!("SKIP: no AVX-512 on this machine");
            return;
        }
        const R: usize = 4;
        for (spread, seed) in [(1.0, 1), (40.0, 2), (300.0, 3)] {
            for (from, to) in [(0, 64), (0, 1), (5, 40), (63, 64), (17, 48)] {
                let scores: Vec<f32> = numbers(R * BLOCK_TOKENS, seed).iter().map(|s| s * spread).collect();
                let (mut one, mut all) = (scores.clone(), scores);
                let mut rows: Vec<f32> = numbers(R * 2, seed + 9).iter().map(|x| x.abs() * spread).collect();
                rows[0] = f32::NEG_INFINITY;
                let mut together = rows.clone();
                let visible = Visible { from, to };
                let factors: [f32; R] = std::array::from_fn(|r| {
                    let scores = &mut one[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS];
                    weigh_row(
                        Level::Avx512,
                        (0.7, None),
                        None,
                        visible,
                        scores,
                        &mut rows[r * 2..r * 2 + 2],
                    )
                    .unwrap()
                });
                // SAFETY: the machine has AVX-512.
                let got = unsafe { attention::weigh::<R>(0.7, (from, to), &mut all, &mut together, 2) };
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&got.unwrap()), bits(&factors), "{spread} {from}..{to}");
                assert_eq!(
                    (bits(&one), bits(&rows)),
                    (bits(&all), bits(&together)),
                    "{spread} {from}..{to}"
                );
            }
        }
    }

    #[test]
    fn rows_together_have_the_bits_of_each_row_alone() {
        if !Isa::Avx512Vnni.is_available() {
            println!("SKIP: no AVX-512 on this machine");
            return;
        }
        const R: usize = 3;
        for (dim, v_dim) in [(64, 64), (80, 80), (128, 96), (33, 16), (256, 256)] {
            let (queries, keys) = (numbers(R * dim, 1), numbers(BLOCK_TOKENS * dim, 2));
            let values = numbers(BLOCK_TOKENS * v_dim, 3);
            for (from, to) in [(0, 64), (0, 1), (5, 40), (63, 64)] {
                let visible = Visible { from, to };
                let (mut one, mut all) = (numbers(R * (v_dim + 2), 4), numbers(R * (v_dim + 2), 4));
                // What no kernel writes is not read either.
                let mut scores = vec![f32::NAN; R * BLOCK_TOKENS];
                let mut one = Rows::new(&mut one, R, v_dim);
                for r in 0..R {
                    let query = &queries[r * dim..(r + 1) * dim];
                    let scores = &mut scores[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS];
                    let row = one.row(r);
                    add_tile(
                        Level::Avx512,
                        query,
                        &keys,
                        &values,
                        (0.3, Some(20.0)),
                        None,
                        visible,
                        scores,
                        row,
                    );
                }
                let mut rows = Rows::new(&mut all, R, v_dim);
                scores.fill(f32::NAN);
                // SAFETY: the machine has AVX-512; keys and values are whole tiles.
                unsafe {
                    let keys = keys.as_ptr().cast();
                    attention::scores::<R, false>(&queries, dim, keys, (from, to), &mut scores, Ahead::NONE);
                }
                let keep = std::array::from_fn(|r| {
                    let scores = &mut scores[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS];
                    weigh_row(Level::Avx512, (0.3, Some(20.0)), None, visible, scores, rows.row(r)).unwrap()
                });
                let (acc, stride) = rows.sums(0);
                // SAFETY: as above.
                unsafe {
                    let values = values.as_ptr().cast();
                    attention::values::<R, false>(&scores, (from, to), values, v_dim, &keep, acc, stride, Ahead::NONE);
                }
                for r in 0..R {
                    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(one.row(r)), bits(rows.row(r)), "{dim} x {v_dim}, {from}..{to}");
                }
            }
        }
    }
}
