//! Heads from projections to the cache: norms per head, rotation, and attention over what was written, against the
//! f64 oracle.

mod parts;

use glia_core::{DType, Dim, Op, Rope, RopePairing, Sdpa, SeqRows, Tensor, ValueId, ValueType};
use parts::{Act, Build, compare, devices, random};

#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    groups: usize,
    d: usize,
    dv: usize,
    /// Epsilon and whether one is added to the gain.
    norm: Option<(f32, bool)>,
    /// Pairing and rotated pairs.
    rope: Option<(RopePairing, usize)>,
}

impl Case {
    fn head(&self, build: &mut Build, name: &str, heads: usize, positions: ValueId) -> ValueId {
        let ty = ValueType::new(DType::F32, [Dim::T, Dim::fixed(heads * self.d)]);
        let flat = build.input(name, ty);
        let scaled = build.op(Op::Scale { factor: 1.5 }, &[flat])[0];
        let dims = vec![-1, heads as i64, self.d as i64];
        let mut x = build.op(Op::Reshape { dims }, &[scaled])[0];
        if let Some((eps, plus_one)) = self.norm {
            let gain = build.weight(&format!("{name} gain"), random(&[self.d], heads as u32));
            x = build.op(Op::RmsNorm { eps, plus_one }, &[x, gain])[0];
        }
        if let Some((pairing, half)) = self.rope {
            let freqs: Vec<f32> = (0..half).map(|i| 100f32.powf(-(i as f32) / half as f32)).collect();
            let freqs = build.weight("freqs", Tensor::from_f32([half], &freqs).unwrap());
            let rope = Op::Rope(Rope {
                pairing,
                scale: 1.0,
                long_from: None,
            });
            x = build.op(rope, &[x, positions, freqs])[0];
        }
        x
    }

    fn build(&self) -> Build {
        let mut build = Build::default();
        let positions = build.input("positions", ValueType::new(DType::I32, [Dim::T]));
        let q = self.head(&mut build, "q", self.heads, positions);
        let k = self.head(&mut build, "k", self.groups, positions);
        let dims = [Dim::T, Dim::fixed(self.groups), Dim::fixed(self.dv)];
        let v = build.input("v", ValueType::new(DType::F32, dims));
        let kv = build.op(Op::KvCache, &[k, v]);
        let sdpa = Sdpa {
            scale: 0.1,
            causal: true,
            window: None,
            softcap: None,
            mask: false,
            sinks: false,
        };
        build.segment.outputs = build.op(Op::Sdpa(sdpa), &[q, kv[0], kv[1]]);
        build
    }
}

#[test]
fn heads_agree_with_the_oracle() {
    let case = Case {
        heads: 6,
        groups: 2,
        d: 64,
        dv: 64,
        norm: None,
        rope: Some((RopePairing::NeoX, 32)),
    };
    let cases = [
        case,
        Case {
            norm: Some((1e-5, false)),
            ..case
        },
        Case {
            norm: Some((1e-6, true)),
            rope: Some((RopePairing::Interleaved, 24)),
            dv: 32,
            ..case
        },
        Case {
            norm: Some((1e-6, true)),
            rope: None,
            ..case
        },
        Case {
            d: 96,
            rope: Some((RopePairing::NeoX, 20)),
            ..case
        },
    ];
    let acts = [
        Act::Create(0),
        Act::Create(1),
        Act::Run(vec![(0, 40, 0), (1, 3, 0)]),
        Act::Run(vec![(1, 1, 3), (0, 1, 40)]),
        Act::Run(vec![(0, 17, 41)]),
    ];
    for (device, gpu) in devices() {
        for case in cases {
            let inputs = |i: usize, rows: &[SeqRows]| {
                let n = rows.iter().map(|r| r.n_rows).sum();
                let positions = rows.iter().flat_map(|r| (r.pos..r.pos + r.n_rows).map(|p| p as i32));
                let positions: Vec<i32> = positions.collect();
                vec![
                    Tensor::from_i32([n], &positions).unwrap(),
                    random(&[n, case.heads * case.d], i as u32),
                    random(&[n, case.groups * case.d], 20 + i as u32),
                    random(&[n, case.groups, case.dv], 40 + i as u32),
                ]
            };
            let dtypes: &[DType] = match case.norm {
                Some((_, false)) => &[DType::F32, DType::F16, DType::BF16, DType::Q8_0],
                _ => &[DType::F16],
            };
            for &kv in dtypes {
                // Where a key lies between two cached numbers, one rounds it up and the other down.
                let bound = match kv {
                    DType::F32 => 1e-5,
                    DType::F16 => 2e-4,
                    _ => 2e-3,
                };
                let fault = compare(&gpu, &case.build(), kv, &acts, &inputs, bound);
                assert_eq!(fault, None, "{device}: {kv} {case:?}");
            }
        }
    }
}
