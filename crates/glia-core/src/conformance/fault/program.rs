//! A compiled segment with mistakes in its states and its memory, kept as plain lists of rows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::{FaultyBackend, StateFault, execute, like, list};
use crate::{
    BackendError, CompileOptions, DType, InputRole, Op, Program, ProgramState, Segment, SeqId, SeqRows, Sizes,
    StateOptions, Step, Tensor, ValueId, ValueKind, check_rows,
};

pub(super) struct FaultyProgram {
    segment: Segment,
    weights: Vec<Tensor>,
    backend: FaultyBackend,
    max_context: usize,
    kv_dtypes: [DType; 2],
}

impl FaultyProgram {
    pub fn new(
        segment: &Segment,
        options: &CompileOptions<'_>,
        backend: &FaultyBackend,
    ) -> Result<FaultyProgram, BackendError> {
        let ids = 0..options.consts.n_consts() as u32;
        let weights = ids
            .map(|id| options.consts.tensor(crate::ConstId(id)))
            .collect::<Result<_, _>>()?;
        Ok(FaultyProgram {
            segment: segment.clone(),
            weights,
            backend: backend.clone(),
            max_context: options.max_context,
            kv_dtypes: options.kv_dtypes,
        })
    }

    fn has(&self, fault: StateFault) -> bool {
        self.backend.state == Some(fault)
    }
}

impl Program for FaultyProgram {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(FaultyState {
            program: self,
            seqs: BTreeMap::new(),
            pending: Vec::new(),
            max_state_bytes: options.max_state_bytes,
        }))
    }
}

/// Rows of both parts of every state, each row its bytes; longer than the sequence after a rollback or truncate.
type Rows = Arc<Mutex<Vec<[Vec<Vec<u8>>; 2]>>>;

struct Sequence {
    len: usize,
    rows: Rows,
    /// Rows before this are never written again: what a mistake leaves behind.
    stuck: usize,
}

struct FaultyState {
    program: Arc<FaultyProgram>,
    seqs: BTreeMap<SeqId, Sequence>,
    pending: Vec<SeqRows>,
    max_state_bytes: usize,
}

type Values = Vec<Option<Tensor>>;

impl FaultyState {
    fn rows_of(&self, seq: SeqId) -> Result<Rows, BackendError> {
        Ok(self.seqs.get(&seq).ok_or(seq.unknown())?.rows.clone())
    }

    /// Writes rows behind the past and returns all of them.
    fn append(&mut self, rows: &SeqRows, state: usize, part: usize, new: &Tensor) -> Result<Tensor, BackendError> {
        let program = self.program.clone();
        let owner = if program.has(StateFault::OthersRows) {
            self.pending[0].seq
        } else {
            rows.seq
        };
        let state = if program.has(StateFault::OneStateForAll) {
            0
        } else {
            state
        };
        let store = self.rows_of(owner)?;
        let stuck = self.seqs.get(&rows.seq).map_or(0, |s| s.stuck);
        let mut store = store.lock().unwrap_or_else(|e| e.into_inner());
        let kept = &mut store[state][part];
        let new = match program.kv_dtypes[part] {
            DType::F16 => {
                let halves: Vec<f64> = list(new)
                    .unwrap_or_default()
                    .iter()
                    .map(|&v| half::f16::from_f64(v).to_f64())
                    .collect();
                like(new, &halves)
            }
            _ => new.clone(),
        };
        let n = new.shape()[0];
        let row_bytes = new.size_bytes().checked_div(n).unwrap_or(0);
        let later = self.pending.first().is_some_and(|first| first.seq != rows.seq);
        let n = if later && program.has(StateFault::LaterRowsNotKept) {
            0
        } else {
            n
        };
        let first = match rows.pos {
            pos if program.has(StateFault::AppendsEarly) => pos.saturating_sub(1),
            pos if pos > 0 && program.has(StateFault::AppendsLate) => pos + 1,
            pos => pos,
        };
        while kept.len() < first {
            kept.push(vec![0; row_bytes]);
        }
        for i in 0..n {
            let row = new.bytes()?[i * row_bytes..(i + 1) * row_bytes].to_vec();
            let at = first + i;
            let stale = at < stuck || (program.has(StateFault::StaleLastRow) && i + 1 == n);
            match kept.get_mut(at) {
                Some(_) if stale => {}
                Some(old) => *old = row,
                None => kept.push(row),
            }
        }
        let total = first + n;
        let bytes: Vec<u8> = kept.iter().take(total).flatten().copied().collect();
        Ok(Tensor::from_bytes(new.dtype(), new.shape().with_dim(0, total), &bytes)?)
    }

    /// Which rows are taken for those of which sequence.
    fn order(&self, step: &Step<'_>) -> Vec<SeqRows> {
        let mut rows = step.rows.to_vec();
        if self.program.has(StateFault::SortsSequences) {
            rows.sort_by_key(|r| r.seq);
            // The rows of the step stay cut as they are.
            for (row, cut) in rows.iter_mut().zip(step.rows) {
                (row.first_row, row.n_rows) = (cut.first_row, cut.n_rows);
            }
        }
        if self.program.has(StateFault::FirstRowIgnored) {
            rows.iter_mut().for_each(|r| r.first_row = 0);
        }
        if self.program.has(StateFault::AttendsAcross) && self.program.segment.states.is_empty() {
            let n_rows = step.n_rows();
            rows.truncate(1);
            rows.iter_mut().for_each(|r| r.n_rows = n_rows);
        }
        rows
    }

    fn walk(&mut self, step: &Step<'_>, rows: &SeqRows, s: usize) -> Result<Vec<Tensor>, BackendError> {
        let program = self.program.clone();
        let segment = &program.segment;
        let range = rows.first_row..rows.first_row + rows.n_rows;
        let mut wanted: Vec<i32> = step
            .wanted_rows
            .iter()
            .filter(|&&w| range.contains(&(w as usize)))
            .map(|&w| (w as usize - rows.first_row) as i32)
            .collect();
        if program.has(StateFault::WantedRowsIgnored) {
            wanted = (0..wanted.len() as i32).collect();
        }
        let sizes = Sizes {
            t: rows.n_rows,
            p: rows.pos,
            r: wanted.len(),
            n: 1,
            s,
        };
        let mut values: Values = vec![None; segment.values.len()];
        for (&id, tensor) in segment.inputs.iter().zip(step.inputs) {
            let ValueKind::Input(role) = &segment.value(id).kind else {
                continue;
            };
            let cut = |t: &Tensor| {
                if step.rows.len() > 1 {
                    t.slice_rows(range.clone())
                } else {
                    Ok(t.clone())
                }
            };
            values[id.index()] = Some(match role {
                InputRole::Pos => Tensor::from_i32([1], &[rows.pos as i32])?,
                InputRole::WantedRows => Tensor::from_i32([wanted.len()], &wanted)?,
                InputRole::Positions if program.has(StateFault::PositionsFromZero) => {
                    Tensor::from_i32([rows.n_rows], &(0..rows.n_rows as i32).collect::<Vec<_>>())?
                }
                _ => cut(tensor)?,
            });
        }
        for (i, instr) in segment.instrs.iter().enumerate() {
            if !program.has(StateFault::NeverCancelled) {
                step.check_cancelled()?;
            }
            let read = |id: ValueId, values: &Values| -> Result<Tensor, BackendError> {
                let def = segment.value(id);
                let tensor = match def.kind {
                    ValueKind::Const(c) => program.weights.get(c.index()).cloned(),
                    _ => values[id.index()].clone(),
                };
                tensor.ok_or_else(|| BackendError::invalid("plan", format!("`{}` is not there", def.name)))
            };
            let inputs: Vec<Tensor> = instr
                .inputs
                .iter()
                .map(|&id| read(id, &values))
                .collect::<Result<_, _>>()?;
            let outputs = match (&instr.op, instr.state) {
                (Op::KvCache, Some(state)) => vec![
                    self.append(rows, state.index(), 0, &inputs[0])?,
                    self.append(rows, state.index(), 1, &inputs[1])?,
                ],
                (Op::Reshape { .. }, _) => {
                    let shape = segment.value(instr.outputs[0]).ty.shape(&sizes);
                    let shape = shape.ok_or_else(|| BackendError::shape("reshape", "too large"))?;
                    vec![inputs[0].reshaped(shape)?]
                }
                (op, _) => execute(program.backend.fault.as_ref(), op, &inputs.iter().collect::<Vec<_>>())?,
            };
            let later = self.pending.first().is_some_and(|first| first.seq != rows.seq);
            let skipped = later && matches!(instr.op, Op::Sdpa(_)) && program.has(StateFault::LaterRowsSkipped);
            let kept = |t: Tensor| match skipped {
                true => like(&t, &vec![0.0; t.n_elems()]),
                false => t,
            };
            let outputs: Vec<Tensor> = outputs.into_iter().map(kept).collect();
            self.reuse(&mut values, i, &outputs);
            for (&id, tensor) in instr.outputs.iter().zip(outputs) {
                if let ValueKind::Temp(slot) = segment.value(id).kind {
                    self.damage(&mut values, id, slot.0, &tensor, i);
                }
                values[id.index()] = Some(tensor);
            }
        }
        let output = |&id: &ValueId| match segment.value(id).kind {
            ValueKind::Const(c) => Ok(program.weights[c.index()].clone()),
            _ => values[id.index()]
                .clone()
                .ok_or_else(|| BackendError::invalid("plan", "an output is missing")),
        };
        segment.outputs.iter().map(output).collect()
    }

    /// What writing the first output over an input does to it and to its views.
    fn reuse(&self, values: &mut Values, at: usize, outputs: &[Tensor]) {
        let (segment, program) = (&self.program.segment, &self.program);
        let instr = &segment.instrs[at];
        let Some(made) = outputs.first().filter(|t| t.dtype() == DType::F32) else {
            return;
        };
        if instr.op.is_view() || instr.op.is_stateful() {
            return;
        }
        for (n, &id) in instr.inputs.iter().enumerate() {
            let read_again = || {
                let later = segment.instrs[at + 1..].iter().flat_map(|i| &i.inputs);
                later.chain(&segment.outputs).any(|other| *other == id)
            };
            let root = segment.resolve(id);
            let mine = matches!(segment.value(root).kind, ValueKind::Temp(_) | ValueKind::Dynamic);
            let fits = values[id.index()]
                .as_ref()
                .is_some_and(|t| t.dtype() == DType::F32 && t.n_elems() == made.n_elems());
            let reused = (n == 0 && program.has(StateFault::ReusesInputs))
                || (n == 1 && program.has(StateFault::ReusesSecondInputs))
                || (mine && program.has(StateFault::ReusesUnderViews) && !read_again());
            if !reused || !fits {
                continue;
            }
            let all = list(made).unwrap_or_default();
            for (other, value) in values.iter_mut().enumerate() {
                if segment.resolve(ValueId(other as u32)) == root
                    && let Some(old) = value
                {
                    *old = like(old, &all);
                }
            }
        }
    }

    /// What writing `made` into its slot does to other values.
    fn damage(&self, values: &mut Values, made: ValueId, slot: u32, tensor: &Tensor, instr: usize) {
        let segment = &self.program.segment;
        let change = |values: &mut Values, id: usize| {
            let Some(old) = values[id]
                .as_ref()
                .filter(|t| t.dtype() == DType::F32 && t.n_elems() > 0)
            else {
                return;
            };
            let mut all = list(old).unwrap_or_default();
            all[0] = list(tensor).unwrap_or_default().last().map_or(1e3, |v| v * 3.0 + 1.0);
            values[id] = Some(like(old, &all));
        };
        for id in 0..segment.values.len() {
            let ValueKind::Temp(other) = segment.values[id].kind else {
                continue;
            };
            let behind = other.0 == slot + 1 && self.program.has(StateFault::WritesPastEnd);
            // Freed when it is read for the first time, and written to by the next instruction.
            let read = segment.instrs[..instr]
                .iter()
                .any(|i| i.inputs.contains(&ValueId(id as u32)));
            let reused = read && self.program.has(StateFault::ReusesLiveSlot);
            if ValueId(id as u32) != made && (behind || reused) {
                change(values, id);
            }
        }
    }
}

impl ProgramState for FaultyState {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let program = self.program.clone();
        check_rows(step.rows, program.max_context, |seq| self.seqs.get(&seq).map(|s| s.len))?;
        let sizes = step.check_inputs(&program.segment)?;
        let behind_a_few = step.rows.iter().any(|r| r.pos > 3);
        assert!(!(behind_a_few && program.has(StateFault::Panics)), "planted");
        self.pending = step.rows.to_vec();
        if self.max_state_bytes > 0 {
            let limit_bytes = self.max_state_bytes;
            let row: usize = program
                .segment
                .states
                .iter()
                .flat_map(|s| &s.spec.parts)
                .filter_map(|p| p.size_bytes(&sizes))
                .sum();
            let rows: usize = self.seqs.values().map(|s| s.len).sum::<usize>() + step.n_rows();
            let needed_bytes = rows * row;
            if needed_bytes > limit_bytes {
                let what = "rows".to_owned();
                return Err(BackendError::OutOfMemory {
                    what,
                    needed_bytes,
                    limit_bytes,
                });
            }
        }
        let mut parts = Vec::new();
        for rows in self.order(step) {
            parts.push(self.walk(step, &rows, sizes.s)?);
        }
        (0..program.segment.outputs.len())
            .map(|i| {
                let pieces: Vec<&Tensor> = parts.iter().map(|p| &p[i]).collect();
                match pieces[..] {
                    [one] => Ok(one.clone()),
                    _ => Ok(crate::reference::execute(&Op::Concat { axis: 0 }, &pieces)?.remove(0)),
                }
            })
            .collect()
    }

    fn commit(&mut self) {
        for row in std::mem::take(&mut self.pending) {
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.len += row.n_rows;
                if self.program.has(StateFault::StaleOnce) {
                    seq.stuck = 0;
                }
            }
        }
    }

    fn rollback(&mut self) {
        let keep = self.program.has(StateFault::RollbackKeepsRows);
        for row in std::mem::take(&mut self.pending) {
            if let Some(seq) = self.seqs.get_mut(&row.seq).filter(|_| keep) {
                seq.stuck = seq.stuck.max(row.pos + row.n_rows);
            }
        }
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        if self.seqs.contains_key(&seq) {
            return Err(seq.taken());
        }
        let states = self.program.segment.states.len();
        let rows = Arc::new(Mutex::new(vec![Default::default(); states]));
        let (len, stuck) = (0, 0);
        self.seqs.insert(seq, Sequence { len, rows, stuck });
        Ok(())
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        if self.seqs.contains_key(&to) {
            return Err(to.taken());
        }
        let asked = len;
        let (rows, len) = (self.rows_of(from)?, self.seqs.get(&from).map_or(0, |s| s.len.min(len)));
        let copy = || Arc::new(Mutex::new(rows.lock().unwrap_or_else(|e| e.into_inner()).clone()));
        let rows = if self.program.has(StateFault::ForkSharesRows) {
            rows.clone()
        } else {
            copy()
        };
        let old = self.seqs.get(&from).map_or(0, |s| s.len);
        let stuck = if self.program.has(StateFault::StaleRows) {
            old
        } else {
            0
        };
        self.seqs.insert(to, Sequence { len, rows, stuck });
        Ok(if self.program.has(StateFault::ForkSaysLen) {
            asked
        } else {
            len
        })
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let stale = self.program.has(StateFault::StaleRows) || self.program.has(StateFault::StaleOnce);
        let ignored = self.program.has(StateFault::TruncateIgnored);
        let Some(seq) = self.seqs.get_mut(&seq) else { return 0 };
        if stale {
            seq.stuck = seq.stuck.max(seq.len);
        }
        if !ignored {
            seq.len = seq.len.min(len);
        }
        seq.len
    }

    fn free(&mut self, seq: SeqId) {
        self.seqs.remove(&seq);
    }

    fn state_bytes(&self) -> usize {
        if self.program.has(StateFault::CountsNoBytes) {
            return 0;
        }
        let rows = |s: &Sequence| {
            let kept = s.rows.lock().unwrap_or_else(|e| e.into_inner());
            let rows = kept.iter().flatten().flat_map(|part| part.iter().take(s.len));
            rows.map(Vec::len).sum::<usize>()
        };
        self.seqs.values().map(rows).sum()
    }
}
