//! One step of an interpreted program: the instructions in order, for one sequence after the other, each output
//! checked against its planned type.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::InterpretedProgram;
use super::own::{self, Route};
use super::state::Pool;
use crate::backend::check_type;
use crate::{BackendError, InputRole, NodeCx, NodeView, SeqRows, Sizes, Step, Tensor, ValueId, ValueKind};

/// A value of the running step: on the host, in the backend's memory, or both.
#[derive(Clone, Default)]
struct Held {
    host: Option<Tensor>,
    device: Option<Tensor>,
}

/// Runs a step whose rows have been checked.
pub(super) fn run(pool: &mut Pool, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
    let program = pool.program.clone();
    let sizes = step.check_inputs(&program.segment)?;
    let mut parts: Vec<Vec<Held>> = Vec::with_capacity(step.rows.len());
    for rows in step.rows {
        let mut walk = Walk {
            program: &program,
            step,
            rows,
            wanted: wanted_of(step, rows),
            sizes,
            values: vec![Held::default(); program.segment.values.len()],
        };
        walk.sizes = Sizes {
            t: rows.n_rows,
            p: rows.pos,
            r: walk.wanted.len(),
            n: 1,
            s: sizes.s,
        };
        parts.push(walk.run(pool)?);
    }
    let mut outputs = Vec::with_capacity(program.segment.outputs.len());
    for (i, &id) in program.segment.outputs.iter().enumerate() {
        let pieces: Vec<Held> = parts.iter().map(|p| p[i].clone()).collect();
        let to_host = program.outputs_to_host.get(i) == Some(&true);
        outputs.push(program.join(id, pieces, to_host)?);
    }
    Ok(outputs)
}

/// The wanted rows that lie in these rows, counted from the first of them.
fn wanted_of(step: &Step<'_>, rows: &SeqRows) -> Vec<i32> {
    let range = rows.first_row..rows.first_row + rows.n_rows;
    let within = step.wanted_rows.iter().filter(|&&w| range.contains(&(w as usize)));
    within.map(|&w| (w as usize - rows.first_row) as i32).collect()
}

struct Walk<'a> {
    program: &'a InterpretedProgram,
    step: &'a Step<'a>,
    rows: &'a SeqRows,
    wanted: Vec<i32>,
    sizes: Sizes,
    values: Vec<Held>,
}

impl Walk<'_> {
    fn run(&mut self, pool: &mut Pool) -> Result<Vec<Held>, BackendError> {
        self.place_inputs()?;
        let segment = &self.program.segment;
        for (i, instr) in segment.instrs.iter().enumerate() {
            self.step.check_cancelled()?;
            let started = self.step.profile.map(|_| Instant::now());
            self.instr(pool, i)
                .map_err(|e| e.at(self.program.backend.name(), &instr.node, instr.op.kind()))?;
            if let (Some(sink), Some(started)) = (self.step.profile, started) {
                sink.add_since(i, started);
            }
            for &id in &instr.frees {
                self.values[id.index()] = Held::default();
            }
        }
        segment.outputs.iter().map(|&id| self.held(id)).collect()
    }

    fn place_inputs(&mut self) -> Result<(), BackendError> {
        let segment = &self.program.segment;
        for (&id, tensor) in segment.inputs.iter().zip(self.step.inputs) {
            let def = segment.value(id);
            let ValueKind::Input(role) = &def.kind else { continue };
            let held = match role {
                InputRole::Pos => Held::on_host(Tensor::from_i32([1], &[position(self.rows.pos)?])?),
                InputRole::WantedRows => Held::on_host(Tensor::from_i32([self.wanted.len()], &self.wanted)?),
                _ if self.step.rows.len() == 1 => self.program.hold(tensor.clone()),
                _ => {
                    let host = self.program.on_the_host(&self.program.hold(tensor.clone()))?;
                    let range = self.rows.first_row..self.rows.first_row + self.rows.n_rows;
                    Held::on_host(host.slice_rows(range)?)
                }
            };
            self.values[id.index()] = held;
        }
        Ok(())
    }

    fn held(&self, id: ValueId) -> Result<Held, BackendError> {
        let def = self.program.segment.value(id);
        let held = match def.kind {
            ValueKind::Const(id) => {
                let weight = self.program.consts.get(id.index()).cloned().unwrap_or_default();
                Held {
                    host: weight.host,
                    device: weight.device,
                }
            }
            _ => self.values[id.index()].clone(),
        };
        if held.host.is_none() && held.device.is_none() {
            return Err(BackendError::invalid(
                "plan",
                format!("`{}` is read before it is made or after it is freed", def.name),
            ));
        }
        Ok(held)
    }

    /// The value on the host. A copy from the device is kept: whoever reads it next finds it.
    fn host(&mut self, id: ValueId) -> Result<Tensor, BackendError> {
        let held = self.held(id)?;
        let tensor = self.program.on_the_host(&held)?;
        if held.host.is_none() {
            self.values[id.index()].host = Some(tensor.clone());
        }
        Ok(tensor)
    }

    /// The value in the backend's memory. A copy to the device is kept, so that positions, which every layer reads,
    /// go there once.
    fn in_its_space(&mut self, id: ValueId) -> Result<Tensor, BackendError> {
        let held = self.held(id)?;
        let tensor = self.program.in_its_space(&held)?;
        if !self.program.on_host && held.device.is_none() {
            self.values[id.index()].device = Some(tensor.clone());
        }
        Ok(tensor)
    }

    fn instr(&mut self, pool: &mut Pool, i: usize) -> Result<(), BackendError> {
        let program = self.program;
        let (instr, prepared) = (&program.segment.instrs[i], &program.instrs[i]);
        let outputs: Vec<Held> = match prepared.route {
            Route::View => {
                let held = self.held(instr.inputs[0])?;
                let ty = &prepared.outputs[0];
                let shape = ty
                    .shape(&self.sizes)
                    .ok_or_else(|| BackendError::invalid("reshape", format!("{ty} is too large to address")))?;
                let view = |t: Option<Tensor>| t.map(|t| t.reshaped(shape)).transpose();
                vec![Held {
                    host: view(held.host)?,
                    device: view(held.device)?,
                }]
            }
            Route::Cache => {
                let Some(state) = instr.state else {
                    return Err(BackendError::invalid("kv_cache", "the instruction has no state"));
                };
                let mut parts = Vec::with_capacity(2);
                for (part, &id) in instr.inputs.iter().enumerate() {
                    let new = self.host(id)?;
                    parts.push(Held::on_host(pool.append(self.rows.seq, state, part, &new)?));
                }
                parts
            }
            Route::Embed => {
                let rows = own::embed(&self.host(instr.inputs[0])?, &self.host(instr.inputs[1])?)?;
                vec![Held::on_host(rows)]
            }
            Route::Gather => {
                let crate::Op::Gather { axis } = instr.op else {
                    return Err(BackendError::invalid("gather", "routed wrongly"));
                };
                let picked = own::gather(&self.host(instr.inputs[0])?, &self.host(instr.inputs[1])?, axis)?;
                vec![Held::on_host(picked)]
            }
            Route::Backend => self.execute(i)?,
        };
        let expected = prepared.outputs.len();
        if outputs.len() != expected {
            return Err(BackendError::WrongOutputs {
                op: instr.op.kind().to_owned(),
                expected,
                got: outputs.len(),
            });
        }
        for ((&id, ty), held) in instr.outputs.iter().zip(&prepared.outputs).zip(outputs) {
            if let Some(tensor) = held.host.as_ref().or(held.device.as_ref()) {
                check_type(ty, &self.sizes, tensor).map_err(|reason| {
                    let name = &program.segment.value(id).name;
                    BackendError::shape(instr.op.kind(), format!("the output `{name}` {reason}"))
                })?;
            }
            self.values[id.index()] = held;
        }
        Ok(())
    }

    fn execute(&mut self, i: usize) -> Result<Vec<Held>, BackendError> {
        let program = self.program;
        let (instr, prepared) = (&program.segment.instrs[i], &program.instrs[i]);
        if let crate::Op::TokenEmbed = instr.op
            && let Some(table) = prepared.inputs[1].as_fixed()
        {
            own::check_ids(&self.host(instr.inputs[0])?, &table)?;
        }
        let mut inputs = Vec::with_capacity(instr.inputs.len());
        for (input, &id) in instr.inputs.iter().enumerate() {
            inputs.push(match &prepared.packed[input] {
                Some(_) => Tensor::zeros(prepared.inputs[input].dtype, [0])?,
                None => self.in_its_space(id)?,
            });
        }
        let view = NodeView::new(
            &instr.node,
            &instr.op,
            &prepared.inputs,
            &prepared.outputs,
            &prepared.is_const,
        );
        let mut outputs = Vec::with_capacity(prepared.outputs.len());
        let mut cx = NodeCx::new(view, &inputs, &prepared.packed, &mut outputs);
        let ran = catch_unwind(AssertUnwindSafe(|| program.backend.execute_node(&mut cx)));
        ran.unwrap_or_else(|panic| Err(BackendError::panicked(&*panic)))?;
        Ok(outputs.into_iter().map(|t| program.hold(t)).collect())
    }
}

impl Held {
    fn on_host(tensor: Tensor) -> Held {
        Held {
            host: Some(tensor),
            device: None,
        }
    }
}

fn position(pos: usize) -> Result<i32, BackendError> {
    i32::try_from(pos).map_err(|_| BackendError::invalid("step", format!("position {pos} does not fit in i32")))
}

impl InterpretedProgram {
    /// A tensor of the backend's memory space, or one on the host: inputs of a step may lie there, and what a backend
    /// with its own memory returns.
    fn hold(&self, tensor: Tensor) -> Held {
        if self.on_host || tensor.check_on_host().is_ok() {
            return Held::on_host(tensor);
        }
        Held {
            host: None,
            device: Some(tensor),
        }
    }

    fn on_the_host(&self, held: &Held) -> Result<Tensor, BackendError> {
        match (&held.host, &held.device) {
            (Some(tensor), _) => Ok(tensor.clone()),
            (None, Some(tensor)) => self.backend.download(tensor),
            (None, None) => Err(BackendError::invalid("plan", "a value is missing")),
        }
    }

    fn in_its_space(&self, held: &Held) -> Result<Tensor, BackendError> {
        match (&held.host, &held.device) {
            (Some(tensor), _) if self.on_host => Ok(tensor.clone()),
            (_, Some(tensor)) => Ok(tensor.clone()),
            (Some(tensor), None) => self.backend.upload(tensor),
            (None, None) => Err(BackendError::invalid("plan", "a value is missing")),
        }
    }

    /// One output from those of the sequences, joined along rows, in the backend's space unless only the host reads it.
    fn join(&self, id: ValueId, mut pieces: Vec<Held>, to_host: bool) -> Result<Tensor, BackendError> {
        let place = |held: &Held| {
            if to_host {
                self.on_the_host(held)
            } else {
                self.in_its_space(held)
            }
        };
        if pieces.len() == 1 {
            return place(&pieces.remove(0));
        }
        let def = self.segment.value(id);
        let hosts: Vec<Tensor> = pieces.iter().map(|h| self.on_the_host(h)).collect::<Result<_, _>>()?;
        let Some(first) = hosts.first().filter(|_| def.ty.is_by_rows()) else {
            let reason = format!(
                "output `{}` {} has no row per token: one sequence at a time",
                def.name, def.ty
            );
            return Err(BackendError::shape("step", reason));
        };
        let n_rows = hosts.iter().map(|t| t.shape()[0]).sum();
        let mut joined = Tensor::zeros(first.dtype(), first.shape().with_dim(0, n_rows))?;
        let mut at = 0;
        let target = joined.bytes_mut()?;
        for piece in &hosts {
            let bytes = piece.bytes()?;
            target[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        place(&Held::on_host(joined))
    }
}
