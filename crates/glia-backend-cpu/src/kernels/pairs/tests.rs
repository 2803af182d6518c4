//! The model against the definitions, and the instructions against the model where the machine has them.

use half::bf16;

use super::model::{dot, nearest};
use super::{PAIR_BYTES, n_pairs, round, tiles};
use crate::isa::Isa;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// Any bits, or a number of ordinary size, or one whose products are around the smallest normal number.
    fn bf16(&mut self) -> u16 {
        let bits = self.next();
        let any = bits as u16;
        let exponent = match bits >> 30 {
            0 => return any,
            1 => 0x1f80 + (bits >> 16 & 7 << 7) as u16,
            _ => 0x3e00 + (bits >> 16 & 7 << 7) as u16,
        };
        any & 0x807f | exponent
    }
}

fn pair(upper: f32, lower: f32) -> u32 {
    upper.to_bits() & 0xffff_0000 | lower.to_bits() >> 16
}

/// Both instruction sets that run here.
fn isas() -> Vec<Isa> {
    Isa::all_available().into_iter().filter(|isa| isa.has_bf16()).collect()
}

#[test]
fn the_larger_k_is_added_first_and_each_product_is_rounded() {
    let half_ulp = 2f32.powi(-24);
    // 1 + 2^-24 is a tie and becomes 1; so does 1 again. In the other order, or in one rounding, it would not.
    assert_eq!(dot(1.0, pair(half_ulp, half_ulp), pair(1.0, 1.0)), 1.0);
    assert_eq!(dot(0.0, pair(1.0, half_ulp), pair(1.0, 1.0)), 1.0);
    assert_eq!(dot(half_ulp, pair(half_ulp, 1.0), pair(1.0, 1.0)), 1.0 + f32::EPSILON);
    assert_eq!(dot(half_ulp, pair(1.0, half_ulp), pair(1.0, 1.0)), 1.0);
}

#[test]
fn products_are_not_rounded_before_they_are_added() {
    // 2^128 is no F32.
    let large = 2f32.powi(127);
    assert_eq!(dot(-large, pair(large, 0.0), pair(2.0, 0.0)), large);
    assert_eq!(dot(0.0, pair(large, 0.0), pair(2.0, 0.0)), f32::INFINITY);
}

#[test]
fn subnormal_numbers_are_zeros() {
    let least = f32::MIN_POSITIVE;
    let sub = least / 2.0;
    assert_eq!(dot(0.0, pair(sub, sub), pair(2f32.powi(100), 1.0)), 0.0);
    assert_eq!(dot(sub, 0, 0), 0.0);
    assert_eq!(dot(0.0, pair(least, 0.0), pair(0.5, 0.0)), 0.0);
    assert_eq!(dot(0.0, pair(least, 0.0), pair(1.0, 0.0)), least);
    let negative = dot(-0.0, pair(-least, 0.0), pair(0.5, -1.0));
    assert_eq!(negative.to_bits(), (-0f32).to_bits());
    // What rounds up to the smallest normal number is not subnormal.
    assert_eq!(dot(least, pair(-least, 0.0), pair(2f32.powi(-26), 0.0)), least);
    assert_eq!(dot(least, pair(-least, 0.0), pair(2f32.powi(-25), 0.0)), least);
    assert_eq!(dot(least, pair(-least, 0.0), pair(2f32.powi(-24), 0.0)), 0.0);
}

#[test]
fn what_is_not_finite_stays() {
    let infinity = f32::INFINITY;
    assert_eq!(dot(1.0, pair(infinity, 1.0), pair(2.0, 1.0)), infinity);
    assert_eq!(dot(1.0, pair(1.0, infinity), pair(1.0, -2.0)), -infinity);
    assert!(dot(1.0, pair(infinity, 1.0), pair(0.0, 1.0)).is_nan());
    assert!(dot(-infinity, pair(infinity, 1.0), pair(1.0, 1.0)).is_nan());
    assert!(dot(1.0, pair(1.0, 1.0), pair(f32::NAN, 1.0)).is_nan());
    assert!(dot(1.0, pair(1.0, f32::NAN), pair(1.0, 1.0)).is_nan());
    assert!(dot(f32::NAN, 0, 0).is_nan());
}

/// Where nothing is subnormal, it is two fused multiply-adds.
#[test]
fn sums_are_those_of_fused_multiply_adds() {
    let mut rng = Random(1);
    let mut compared = 0;
    for _ in 0..200_000 {
        let [a, b] = [0, 1].map(|_| u32::from(rng.bf16()) << 16 | u32::from(rng.bf16()));
        let c = f32::from_bits(rng.next());
        let number = |pair: u32, shift: u32| f32::from_bits(pair << shift & 0xffff_0000);
        let first = number(a, 0).mul_add(number(b, 0), c);
        let second = number(a, 16).mul_add(number(b, 16), first);
        let parts = [
            number(a, 0),
            number(b, 0),
            number(a, 16),
            number(b, 16),
            c,
            first,
            second,
        ];
        if parts.iter().all(|v| !v.is_subnormal() && *v != 0.0) {
            let got = dot(c, a, b);
            assert!(
                got.to_bits() == second.to_bits() || got.is_nan() && second.is_nan(),
                "{c:e} and {a:#x} by {b:#x}: {got:e}, not {second:e}"
            );
            compared += 1;
        }
    }
    assert!(compared > 50_000, "{compared}");
}

#[test]
fn rounding_is_to_nearest_even() {
    for upper in 0..=u16::MAX {
        for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let x = f32::from_bits(u32::from(upper) << 16 | lower);
            let want = bf16::from_f32(if x.is_subnormal() { 0f32.copysign(x) } else { x });
            let got = bf16::from_bits(nearest(x));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{x:e}"
            );
        }
    }
}

#[test]
fn every_instruction_set_rounds_alike() {
    let mut rng = Random(2);
    for k in [1, 2, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 128, 131] {
        let x: Vec<f32> = (0..3 * k)
            .map(|i| match i % 5 {
                0 => f32::from_bits(rng.next()),
                1 => f32::from_bits(rng.next() & 0x807f_ffff),
                _ => rng.next() as f32 / 1e9 - 2.0,
            })
            .collect();
        let rounded = |isa| {
            let mut out = vec![0xa5; 3 * n_pairs(k) * PAIR_BYTES];
            round(isa, &x, k, &mut out);
            out
        };
        let want = rounded(Isa::PortableBf16);
        if k % 2 == 1 {
            assert_eq!(want[k * 2..][..2], [0, 0]);
        }
        for isa in isas() {
            assert_eq!(rounded(isa), want, "{k} numbers, {}", isa.name());
        }
    }
}

/// Tiles and rows of any bits: the sums are those of [`dot`] pair after pair, on every instruction set, whatever the
/// rows and tiles beside them.
#[test]
fn sums_are_those_of_pairs_one_by_one() {
    let mut rng = Random(3);
    for isa in isas() {
        for (k, n_tiles) in [(1, 1), (2, 3), (3, 2), (37, 1), (64, 2), (255, 3), (256, 5)] {
            let n = n_pairs(k);
            // Every other matrix is of any bits: most sums over many of those are NaN.
            let any = n_tiles % 2 == 1;
            let mut number = || {
                let bits = rng.bf16();
                if any || bits & 0x7f80 < 0x4100 {
                    bits
                } else {
                    bits & 0x807f | 0x3f00
                }
            };
            let mut bytes = |n: usize| (0..n).flat_map(|_| number().to_le_bytes()).collect::<Vec<u8>>();
            let packed = bytes(n_tiles * n * 32);
            let acts = bytes(19 * n * 2);
            let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at * 4..][..4].try_into().unwrap());
            for m in [0, 1, 2, 3, 4, 7, 8, 9, 16, 19] {
                let mut seen = vec![false; m * n_tiles];
                tiles(
                    isa,
                    &packed,
                    k,
                    &acts[..m * n * PAIR_BYTES],
                    m,
                    &mut |row, tile, values| {
                        seen[row * n_tiles + tile] = true;
                        for (lane, got) in values.iter().enumerate() {
                            let want = (0..n).fold(0f32, |sum, i| {
                                let w = word(&packed, (tile * n + i) * 16 + lane);
                                dot(sum, w, word(&acts, row * n + i))
                            });
                            assert!(
                                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                                "{} k {k}, {m} rows: row {row} of tile {tile}: {got:e}, not {want:e}",
                                isa.name()
                            );
                        }
                    },
                );
                assert!(seen.iter().all(|s| *s), "{} k {k}, {m} rows", isa.name());
            }
        }
    }
}

/// The instruction itself, each lane with numbers of its own.
#[test]
fn the_instruction_gives_what_its_model_gives() {
    let Some(isa) = isas().into_iter().find(|isa| *isa != Isa::PortableBf16) else {
        println!("SKIP: no BF16 instructions on this machine");
        return;
    };
    let mut rng = Random(4);
    let mut finite = 0;
    for _ in 0..20_000 {
        let mut bytes = |n: usize| (0..n).flat_map(|_| rng.bf16().to_le_bytes()).collect::<Vec<u8>>();
        let (packed, acts) = (bytes(64), bytes(4));
        let sums = |isa| {
            let mut sums = [0f32; 16];
            tiles(isa, &packed, 4, &acts, 1, &mut |_, _, values| sums = *values);
            sums
        };
        for (got, want) in sums(isa).iter().zip(sums(Isa::PortableBf16)) {
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{got:e}, not {want:e}: {packed:x?} by {acts:x?}"
            );
            finite += usize::from(want.is_finite());
        }
    }
    assert!(finite > 100_000, "{finite}");
}
