//! Rotary embedding and attention on plain tensors; caches are the business of segments.

use super::{Input, ids, size_name, values, w, x};
use crate::conformance::case::List;
use crate::{DType, Op, Rope, RopePairing, Sdpa};

pub(super) fn add(list: &mut List) {
    rope(list);
    sdpa(list);
    special(list);
}

fn pairings() -> [(&'static str, RopePairing); 2] {
    [("neox", RopePairing::NeoX), ("interleaved", RopePairing::Interleaved)]
}

/// Inverse frequencies of base 100: several turns over a few hundred positions.
fn freqs(half: usize) -> Input {
    let list: Vec<f64> = (0..half).map(|i| 100f64.powf(-(i as f64) / half as f64)).collect();
    Input {
        is_weight: true,
        ..values(DType::F32, &[half], &list)
    }
}

fn rope(list: &mut List) {
    for (name, pairing) in pairings() {
        let op = |scale, long_from| {
            Op::Rope(Rope {
                pairing,
                scale,
                long_from,
            })
        };
        // (tokens, heads, head size, pairs).
        for [t, h, d, half] in [
            [1, 1, 2, 1],
            [3, 2, 16, 8],
            [5, 3, 22, 9],
            [2, 4, 64, 32],
            [4, 1, 10, 1],
            [40, 8, 128, 64],
        ] {
            let positions: Vec<i32> = (0..t as i32).map(|i| i * 3 + 1).collect();
            let inputs = vec![x(DType::F32, &[t, h, d]), ids(DType::I32, &positions), freqs(half)];
            list.op(
                format!("{name}_f32_{}_{half}_pairs", size_name(&[t, h, d])),
                op(1.0, None),
                inputs,
            );
        }
        for dtype in [DType::F16, DType::BF16] {
            let inputs = vec![x(dtype, &[3, 2, 16]), ids(DType::I32, &[0, 1, 7]), freqs(8)];
            list.op(format!("{name}_{dtype}"), op(1.0, None), inputs);
        }
        for dtype in [DType::I64, DType::I16] {
            let inputs = vec![x(DType::F32, &[3, 2, 16]), ids(dtype, &[0, 1, 7]), freqs(8)];
            list.op(format!("{name}_positions_{dtype}"), op(1.0, None), inputs);
        }
        // Of the first, the low 32 bits are 1: an angle of four, not of nothing. Slow pairs keep f32 exact enough.
        let beyond = values(DType::I64, &[3], &[4_294_967_297.0, 0.0, 1.0]);
        let slow = Input {
            is_weight: true,
            ..values(DType::F32, &[4], &[1e-9, 5e-10, -2e-10, 1e-10])
        };
        let inputs = vec![x(DType::F32, &[3, 2, 16]), beyond, slow];
        let far = format!("{name}_positions_beyond_32_bits");
        list.right_or_refused(far, op(1.0, None), inputs, "4294967297");
        let far = vec![x(DType::F32, &[3, 2, 16]), ids(DType::I32, &[4095, 17, 1000]), freqs(8)];
        list.op(format!("{name}_f32_far"), op(1.0, None), far);
        let zero = vec![x(DType::F32, &[2, 3, 8]), ids(DType::I32, &[0, 0]), freqs(4)];
        list.op(format!("{name}_f32_at_zero"), op(1.0, None), zero);
        let scaled = vec![x(DType::F32, &[3, 2, 12]), ids(DType::I32, &[2, 5, 9]), freqs(4)];
        list.op(format!("{name}_f32_scaled"), op(1.25, None), scaled);
        // One token before the long table counts, and at the step that reaches it.
        for (when, positions) in [("short", [6, 7]), ("long", [7, 8])] {
            let long = freqs(4);
            let tables = [
                freqs(4),
                Input {
                    fill: super::Fill::Noise(1.0),
                    ..long
                },
            ];
            let inputs = [x(DType::F32, &[2, 2, 8]), ids(DType::I32, &positions)]
                .into_iter()
                .chain(tables)
                .collect();
            list.op(format!("{name}_f32_long_from_{when}"), op(1.0, Some(8)), inputs);
        }
        let none = vec![x(DType::F32, &[0, 2, 8]), ids(DType::I32, &[]), freqs(4)];
        list.op(format!("{name}_f32_no_tokens"), op(1.0, None), none);
    }
}

/// What a case of attention changes.
#[derive(Clone, Copy, Default)]
struct With {
    causal: bool,
    window: Option<usize>,
    softcap: Option<f32>,
    mask: Option<usize>,
    sinks: bool,
}

/// Queries, keys, query heads, K/V heads, head size, value size.
type Sizes = [usize; 6];

fn attend(list: &mut List, name: &str, dtype: DType, with: With, sizes: Sizes) {
    let [tq, tk, h, hkv, d, dv] = sizes;
    let op = Op::Sdpa(Sdpa {
        scale: 1.0 / (d as f32).sqrt(),
        causal: with.causal,
        window: with.window,
        softcap: with.softcap,
        mask: with.mask.is_some(),
        sinks: with.sinks,
    });
    let mut inputs = vec![x(dtype, &[tq, h, d]), x(dtype, &[tk, hkv, d]), x(dtype, &[tk, hkv, dv])];
    match with.mask {
        Some(3) => inputs.push(x(dtype, &[h, tq, tk])),
        Some(_) => inputs.push(x(dtype, &[tq, tk])),
        None => {}
    }
    if with.sinks {
        inputs.push(w(DType::F32, &[h]));
    }
    let name = format!("{name}_{dtype}_{}", size_name(&sizes));
    list.op(name, op, inputs);
}

fn sdpa(list: &mut List) {
    let none = With::default();
    let causal = With { causal: true, ..none };
    let window = |w| With {
        window: Some(w),
        ..causal
    };
    let all = [
        ("full", none),
        ("causal", causal),
        ("window3", window(3)),
        ("window1", window(1)),
        ("window65", window(65)),
        (
            "window_both_ways",
            With {
                window: Some(4),
                ..none
            },
        ),
        (
            "softcap",
            With {
                softcap: Some(2.0),
                ..causal
            },
        ),
        ("mask", With { mask: Some(2), ..none }),
        (
            "mask_per_head",
            With {
                mask: Some(3),
                ..causal
            },
        ),
        ("sinks", With { sinks: true, ..causal }),
        (
            "everything",
            With {
                softcap: Some(1.5),
                mask: Some(2),
                sinks: true,
                ..window(5)
            },
        ),
    ];
    // The first query alone, a chunk behind a past, a whole prompt; grouped heads and not; odd sizes.
    let sizes: [Sizes; 7] = [
        [1, 1, 1, 1, 8, 8],
        [5, 5, 4, 2, 16, 16],
        [3, 17, 6, 2, 20, 12],
        [1, 70, 4, 1, 32, 32],
        [9, 130, 4, 4, 24, 24],
        [70, 70, 2, 1, 64, 64],
        [2, 5, 8, 4, 7, 9],
    ];
    for (name, with) in all {
        for size in sizes {
            attend(list, name, DType::F32, with, size);
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        attend(list, "causal", dtype, causal, [3, 17, 4, 2, 16, 16]);
    }
    attend(list, "causal_long", DType::F32, causal, [2, 700, 4, 2, 65, 66]);
    attend(list, "no_queries", DType::F32, causal, [0, 4, 2, 1, 8, 8]);
    attend(list, "large_heads", DType::F32, causal, [3, 9, 2, 1, 256, 128]);
}

/// A token, and a prompt, behind a past of a thousand.
pub(super) fn add_speed(list: &mut List) {
    let causal = With {
        causal: true,
        ..With::default()
    };
    attend(list, "speed_token", DType::F32, causal, [1, 2048, 32, 8, 128, 128]);
    attend(list, "speed_prompt", DType::F32, causal, [128, 1024, 16, 4, 128, 128]);
}

fn special(list: &mut List) {
    let f32 = DType::F32;
    let op = |mask, scale| {
        Op::Sdpa(Sdpa {
            scale,
            causal: false,
            window: None,
            softcap: None,
            mask,
            sinks: false,
        })
    };
    let inf = f64::NEG_INFINITY;
    // The second query sees nothing: zeros, not NaN.
    let mask = values(f32, &[2, 3], &[0.0, inf, 0.0, inf, inf, inf]);
    let hidden = vec![x(f32, &[2, 2, 8]), x(f32, &[3, 1, 8]), x(f32, &[3, 1, 8]), mask.clone()];
    list.op("all_masked_f32", op(true, 0.4), hidden);
    // What a query does not see by its position does not count, be it no number: the rows of a later token, or of none.
    let late = |n: usize| {
        let list: Vec<f64> = (0..24 * n)
            .map(|i| if i < 16 * n { i as f64 / 9.0 } else { f64::NAN })
            .collect();
        values(f32, &[3, 1, 8 * n], &list)
    };
    let causal = Op::Sdpa(Sdpa {
        scale: 0.1,
        causal: true,
        window: None,
        softcap: None,
        mask: false,
        sinks: false,
    });
    list.op(
        "later_nan_f32",
        causal.clone(),
        vec![x(f32, &[3, 2, 8]), x(f32, &[3, 1, 8]), late(1)],
    );
    list.op(
        "later_nan_keys_f32",
        causal,
        vec![x(f32, &[3, 2, 8]), late(1), x(f32, &[3, 1, 8])],
    );
    // Scores of thousands: the largest is taken off before the exponential.
    let large = vec![
        x(f32, &[3, 2, 8]).sized(100.0),
        x(f32, &[6, 2, 8]).sized(100.0),
        x(f32, &[6, 2, 8]),
    ];
    list.op("large_scores_f32", op(false, 1.0), large);
    let same = values(f32, &[5, 1, 8], &[0.5]);
    list.op(
        "equal_scores_f32",
        op(false, 0.3),
        vec![x(f32, &[2, 2, 8]), same, x(f32, &[5, 1, 8])],
    );
}
