//! A small decoder layer with a cache: the bits of a row depend on nothing but its sequence.

use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::{
    Backend, BackendError, Binary, CancelToken, CompileOptions, ConstId, ConstSource, DType, Dim, Gate, InputRole,
    Instr, Op, Precision, ProfileSink, ProgramState, Rope, RopePairing, Sdpa, Segment, SeqId, SeqRows, Slot, SlotId,
    StateDef, StateId, StateOptions, Step, Tensor, ValueDef, ValueId, ValueKind, ValueType, quant,
};

const VOCAB: usize = 40;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 32;

struct Weights(Vec<Tensor>);

impl ConstSource for Weights {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        self.0.get(id.index()).cloned().ok_or(BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        })
    }
    fn n_consts(&self) -> usize {
        self.0.len()
    }
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

#[derive(Default)]
struct Net {
    segment: Segment,
    weights: Vec<Tensor>,
}

impl Net {
    fn value(&mut self, ty: ValueType, kind: ValueKind) -> ValueId {
        let id = ValueId(self.segment.values.len() as u32);
        self.segment.values.push(ValueDef {
            name: format!("v{}", id.0),
            ty,
            kind,
        });
        id
    }

    fn input(&mut self, role: InputRole, dim: Dim) -> ValueId {
        let id = self.value(ValueType::new(DType::I32, [dim]), ValueKind::Input(role));
        self.segment.inputs.push(id);
        id
    }

    fn weight(&mut self, dtype: DType, shape: &[usize]) -> ValueId {
        let n = shape.iter().product();
        let mut bytes = vec![0u8; dtype.size_bytes(n).unwrap()];
        let values: Vec<f32> = noise(n, self.weights.len() as u32 + 7)
            .iter()
            .map(|v| v * 0.2)
            .collect();
        quant::quantize(dtype, &values, &mut bytes).unwrap();
        self.weights.push(Tensor::from_bytes(dtype, shape, &bytes).unwrap());
        let c = ConstId(self.weights.len() as u32 - 1);
        self.value(ValueType::fixed(dtype, shape), ValueKind::Const(c))
    }

    fn node(&mut self, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let types = self.segment.types(inputs);
        let state = op.state(&types).map(|spec| {
            self.segment.states.push(StateDef {
                node: "cache".into(),
                spec,
            });
            StateId(self.segment.states.len() as u32 - 1)
        });
        let mut outputs = Vec::new();
        for (part, ty) in op.infer(&types).unwrap().into_iter().enumerate() {
            let kind = match state {
                Some(state) => ValueKind::State(state, part),
                None if op.is_view() => ValueKind::Alias(inputs[0]),
                None => {
                    self.segment.slots.push(Slot {
                        users: vec![ty.clone()],
                    });
                    ValueKind::Temp(SlotId(self.segment.slots.len() as u32 - 1))
                }
            };
            outputs.push(self.value(ty, kind));
        }
        let node = format!("n{}", self.segment.instrs.len());
        self.segment.instrs.push(Instr {
            node,
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            frees: vec![],
            state,
        });
        outputs
    }

    fn one(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        self.node(op, inputs)[0]
    }

    fn layer(dtype: DType) -> Net {
        let mut net = Net::default();
        let ids = net.input(InputRole::Named("input_ids".into()), Dim::T);
        let positions = net.input(InputRole::Positions, Dim::T);
        let wanted = net.input(InputRole::WantedRows, Dim::R);
        let table = net.weight(dtype, &[VOCAB, WIDTH]);
        let freqs = net.weight(DType::F32, &[DIM / 2]);
        let h = net.one(Op::TokenEmbed, &[ids, table]);
        let gain = net.weight(DType::F32, &[WIDTH]);
        let norm = Op::RmsNorm {
            eps: 1e-5,
            plus_one: true,
        };
        let x = net.one(norm.clone(), &[h, gain]);
        let mut heads = Vec::new();
        for n in [HEADS, KV_HEADS, KV_HEADS] {
            let w = net.weight(dtype, &[n * DIM, WIDTH]);
            let y = net.one(Op::MatMul, &[x, w]);
            heads.push(net.one(
                Op::Reshape {
                    dims: vec![-1, n as i64, DIM as i64],
                },
                &[y],
            ));
        }
        let rope = Op::Rope(Rope {
            pairing: RopePairing::NeoX,
            scale: 1.0,
            long_from: None,
        });
        let q = net.one(rope.clone(), &[heads[0], positions, freqs]);
        let k = net.one(rope, &[heads[1], positions, freqs]);
        let cache = net.node(Op::KvCache, &[k, heads[2]]);
        let sdpa = Sdpa {
            scale: 0.3,
            causal: true,
            window: Some(600),
            softcap: None,
            mask: false,
            sinks: false,
        };
        let o = net.one(Op::Sdpa(sdpa), &[q, cache[0], cache[1]]);
        let o = net.one(
            Op::Reshape {
                dims: vec![-1, (HEADS * DIM) as i64],
            },
            &[o],
        );
        let w = net.weight(dtype, &[WIDTH, HEADS * DIM]);
        let o = net.one(Op::MatMul, &[o, w]);
        let h = net.one(Op::Binary(Binary::Add), &[h, o]);
        let x = net.one(norm, &[h, gain]);
        let (gate, up) = (net.weight(dtype, &[96, WIDTH]), net.weight(dtype, &[96, WIDTH]));
        let (gate, up) = (net.one(Op::MatMul, &[x, gate]), net.one(Op::MatMul, &[x, up]));
        let x = net.one(Op::Gated(Gate::Silu), &[gate, up]);
        let down = net.weight(dtype, &[WIDTH, 96]);
        let x = net.one(Op::MatMul, &[x, down]);
        let h = net.one(Op::Binary(Binary::Add), &[h, x]);
        let h = net.one(Op::Gather { axis: 0 }, &[h, wanted]);
        let logits = net.one(Op::MatMul, &[h, table]);
        net.segment.outputs = vec![logits];
        net
    }

    fn open(&self, threads: usize, kv: DType, max_state_bytes: usize) -> Box<dyn ProgramState> {
        let backend = CpuBackend::with_options(CpuOptions {
            threads,
            ..CpuOptions::default()
        })
        .unwrap();
        let weights = Weights(self.weights.clone());
        let mut options = CompileOptions::new(&weights, Precision::Fast);
        options.kv_dtypes = [kv; 2];
        let program = backend.compile(&self.segment, &options).unwrap().expect("compiles");
        let mut state = StateOptions::default();
        state.max_state_bytes = max_state_bytes;
        program.open(&state).unwrap()
    }
}

fn tokens(n: usize, seed: usize) -> Vec<i32> {
    (0..n).map(|i| ((i * 31 + seed * 17 + i * i) % VOCAB) as i32).collect()
}

/// One step over `(sequence, past, tokens)`; all rows wanted.
fn try_step(
    state: &mut dyn ProgramState,
    parts: &[(u64, usize, &[i32])],
    cancel: Option<&CancelToken>,
) -> Result<Vec<f32>, BackendError> {
    let (mut rows, mut ids, mut positions) = (Vec::new(), Vec::new(), Vec::new());
    for &(seq, pos, tokens) in parts {
        rows.push(SeqRows {
            seq: SeqId(seq),
            first_row: ids.len(),
            n_rows: tokens.len(),
            pos,
        });
        positions.extend((0..tokens.len()).map(|i| (pos + i) as i32));
        ids.extend_from_slice(tokens);
    }
    let wanted: Vec<u32> = (0..ids.len() as u32).collect();
    let wanted_i: Vec<i32> = (0..ids.len() as i32).collect();
    let n = ids.len();
    let inputs = [ids, positions, wanted_i].map(|v| Tensor::from_i32([n], &v).unwrap());
    let mut step = Step::new(&rows, &inputs, &wanted);
    step.cancel = cancel;
    match state.run(&step) {
        Ok(outputs) => {
            state.commit();
            Ok(outputs[0].as_f32().unwrap().to_vec())
        }
        Err(e) => {
            state.rollback();
            Err(e)
        }
    }
}

fn feed(state: &mut dyn ProgramState, seq: u64, mut pos: usize, tokens: &[i32], chunk: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for piece in tokens.chunks(chunk) {
        all.extend(try_step(state, &[(seq, pos, piece)], None).unwrap());
        pos += piece.len();
    }
    all
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn whole(net: &Net, kv: DType, tokens: &[i32]) -> Vec<f32> {
    let mut state = net.open(1, kv, 0);
    state.create(SeqId(1)).unwrap();
    feed(&mut *state, 1, 0, tokens, tokens.len())
}

#[test]
fn threads_and_chunks_change_no_bit() {
    let ids = tokens(700, 1);
    for (dtype, kv) in [
        (DType::Q4_0, DType::F16),
        (DType::F32, DType::F32),
        (DType::Q8_0, DType::Q8_0),
    ] {
        let net = Net::layer(dtype);
        let expected = whole(&net, kv, &ids[..512]);
        assert!(expected.iter().all(|v| v.is_finite()) && expected.iter().any(|v| v.abs() > 0.01));
        for threads in [1, 2, 3] {
            for chunk in [1, 7, 32, 512] {
                let mut state = net.open(threads, kv, 0);
                state.create(SeqId(5)).unwrap();
                let n = if chunk == 1 && threads > 1 { 150 } else { 512 };
                let got = feed(&mut *state, 5, 0, &ids[..n], chunk);
                assert_eq!(
                    bits(&got),
                    bits(&expected[..n * VOCAB]),
                    "{dtype} {kv} {threads} threads, chunks of {chunk}"
                );
            }
        }
    }
}

#[test]
fn neighbours_forks_and_rewinds_change_no_bit() {
    let net = Net::layer(DType::Q8_0);
    let (a, b) = (tokens(720, 1), tokens(130, 2));
    let (only_a, only_b) = (whole(&net, DType::F16, &a), whole(&net, DType::F16, &b));
    let mut state = net.open(2, DType::F16, 0);
    state.create(SeqId(1)).unwrap();
    state.create(SeqId(2)).unwrap();
    feed(&mut *state, 1, 0, &a[..600], 512);
    let both = try_step(&mut *state, &[(2, 0, &b[..70]), (1, 600, &a[600..610])], None).unwrap();
    assert_eq!(bits(&both[..70 * VOCAB]), bits(&only_b[..70 * VOCAB]));
    assert_eq!(bits(&both[70 * VOCAB..]), bits(&only_a[600 * VOCAB..610 * VOCAB]));
    assert_eq!(state.fork(SeqId(1), SeqId(3), 100).unwrap(), 100);
    let forked = feed(&mut *state, 3, 100, &a[100..120], 7);
    assert_eq!(bits(&forked), bits(&only_a[100 * VOCAB..120 * VOCAB]));
    feed(&mut *state, 3, 120, &b[..30], 30);
    assert_eq!(state.truncate(SeqId(3), 110), 110);
    let again = feed(&mut *state, 3, 110, &a[110..300], 64);
    assert_eq!(bits(&again), bits(&only_a[110 * VOCAB..300 * VOCAB]));
    let untouched = feed(&mut *state, 1, 610, &a[610..720], 33);
    assert_eq!(bits(&untouched), bits(&only_a[610 * VOCAB..]));
    let last = feed(&mut *state, 2, 70, &b[70..], 1);
    assert_eq!(bits(&last), bits(&only_b[70 * VOCAB..]));
}

#[test]
fn failed_steps_leave_everything_as_it_was() {
    let net = Net::layer(DType::Q4_1);
    let ids = tokens(100, 3);
    let expected = whole(&net, DType::F32, &ids);
    let mut state = net.open(3, DType::F32, 0);
    state.create(SeqId(1)).unwrap();
    feed(&mut *state, 1, 0, &ids[..50], 50);
    let held = state.state_bytes();
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let err = try_step(&mut *state, &[(1, 50, &ids[..40])], Some(&cancelled)).unwrap_err();
    assert!(matches!(err, BackendError::Cancelled));
    let err = try_step(&mut *state, &[(1, 50, &[3, 40])], None)
        .unwrap_err()
        .to_string();
    assert!(
        err.contains("element 1 is 40") && err.contains("vocabulary size is 40"),
        "{err}"
    );
    for bad in [
        &[(1u64, 51usize, &ids[..1])][..],
        &[(9, 0, &ids[..1])],
        &[(1, 50, &ids[..1]), (1, 51, &ids[..1])],
    ] {
        assert!(try_step(&mut *state, bad, None).is_err());
    }
    assert_eq!(state.state_bytes(), held);
    let rest = feed(&mut *state, 1, 50, &ids[50..], 50);
    assert_eq!(bits(&rest), bits(&expected[50 * VOCAB..]));
    state.free(SeqId(1));
    assert_eq!(state.state_bytes(), 0);
}

#[test]
fn state_memory_is_bounded_and_profiles_are_per_instruction() {
    let net = Net::layer(DType::F32);
    let block = 2 * 64 * KV_HEADS * DIM * 4;
    let mut state = net.open(2, DType::F32, block);
    state.create(SeqId(1)).unwrap();
    let ids = tokens(65, 1);
    let err = try_step(&mut *state, &[(1, 0, &ids)], None).unwrap_err();
    assert!(matches!(err, BackendError::OutOfMemory { .. }), "{err}");
    feed(&mut *state, 1, 0, &ids[..64], 64);

    let sink = ProfileSink::default();
    let rows = [SeqRows {
        seq: SeqId(2),
        first_row: 0,
        n_rows: 1,
        pos: 0,
    }];
    state.free(SeqId(1));
    state.create(SeqId(2)).unwrap();
    let inputs: Vec<Tensor> = (0..3).map(|_| Tensor::from_i32([1], &[0]).unwrap()).collect();
    let mut step = Step::new(&rows, &inputs, &[0]);
    step.profile = Some(&sink);
    state.run(&step).unwrap();
    state.commit();
    let times = sink.take();
    assert!(times.iter().any(|t| t.instr + 1 == net.segment.instrs.len()));
    // One after the other, within the step.
    for pair in times.windows(2) {
        assert!(pair[0].start + pair[0].time <= pair[1].start, "{pair:?}");
    }
    assert!(times.last().unwrap().start < sink.began().elapsed());
}
