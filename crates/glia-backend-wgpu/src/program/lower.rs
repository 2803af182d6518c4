//! The context in which ops become dispatches: buffers of values, weights in packed form, kernels.

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::{
    BackendError, CompileOptions, ConstId, DType, Segment, StateId, Tensor, ValueId, ValueKind, ValueType,
};

use super::resources::Trig;
use super::{Bind, BufDef, BufId, Dispatch, StepInfo};
use crate::gpu::{Caps, Gpu, Use};
use crate::ops;
use crate::shader::{Access, Call, KernelKey};
use crate::weights::{Matrices, Matrix};

/// An index that comes from an input must stay below a limit, which the host checks before the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexLimit {
    pub input: ValueId,
    pub limit: usize,
    pub op: &'static str,
    pub what: &'static str,
}

/// A segment on its way to dispatches.
pub(crate) struct Lower<'a> {
    pub gpu: &'a Arc<Gpu>,
    pub segment: &'a Segment,
    pub options: &'a CompileOptions<'a>,
    pub bufs: Vec<BufDef>,
    pub dispatches: Vec<Dispatch>,
    pub limits: Vec<IndexLimit>,
    /// Whether some kernel mixes rows, or reads the past as one tensor: sequences then run one after the other.
    pub one_sequence: bool,
    /// The instructions that are lowered now.
    pub instrs: Arc<[usize]>,
    of_value: HashMap<ValueId, BufId>,
    of_kv: HashMap<(StateId, usize), BufId>,
    table: Option<BufId>,
    matrices: Matrices,
    weight_bytes: usize,
}

impl<'a> Lower<'a> {
    pub fn new(gpu: &'a Arc<Gpu>, segment: &'a Segment, options: &'a CompileOptions<'a>) -> Lower<'a> {
        Lower {
            gpu,
            segment,
            options,
            bufs: Vec::new(),
            dispatches: Vec::new(),
            limits: Vec::new(),
            one_sequence: false,
            instrs: Arc::new([]),
            of_value: HashMap::new(),
            of_kv: HashMap::new(),
            table: None,
            matrices: Matrices::default(),
            weight_bytes: 0,
        }
    }

    /// What the device can do.
    pub fn caps(&self) -> &'a Caps {
        &self.gpu.caps
    }

    /// The planned type of a value.
    pub fn ty(&self, id: ValueId) -> &'a ValueType {
        &self.segment.value(id).ty
    }

    /// Where the bytes of a value come from.
    pub fn kind(&self, id: ValueId) -> &'a ValueKind {
        &self.segment.value(self.segment.resolve(id)).kind
    }

    /// Adds a buffer.
    pub fn add(&mut self, def: BufDef) -> BufId {
        self.bufs.push(def);
        // Fewer than 2^32: a handful per instruction.
        BufId(self.bufs.len() as u32 - 1)
    }

    /// Working space.
    pub fn scratch(&mut self, bytes: impl Fn(&StepInfo<'_>) -> u64 + Send + Sync + 'static) -> BufId {
        self.add(BufDef::Scratch(Box::new(bytes)))
    }

    /// The dense F32 or I32 elements of a value, whatever it is.
    ///
    /// # Errors
    /// When a weight cannot be read or uploaded.
    pub fn value(&mut self, id: ValueId) -> Result<BufId, BackendError> {
        let id = self.segment.resolve(id);
        if let Some(&buf) = self.of_value.get(&id) {
            return Ok(buf);
        }
        let buf = match self.kind(id) {
            ValueKind::Input(_) => self.add(BufDef::Input(id)),
            ValueKind::Const(of) => {
                let tensor = self.weight(*of)?;
                self.upload_plain(&tensor)?
            }
            ValueKind::State(state, part) => {
                let buf = self.add(BufDef::Temp(id));
                self.one_sequence = true;
                ops::cache::dense(self, *state, *part, id, buf)?;
                buf
            }
            ValueKind::Temp(_) | ValueKind::Dynamic | ValueKind::Alias(_) => self.add(BufDef::Temp(id)),
        };
        self.of_value.insert(id, buf);
        Ok(buf)
    }

    /// Has a value lie in a buffer: in that of another, whose last reader makes it.
    pub fn place(&mut self, id: ValueId, buf: BufId) {
        self.of_value.insert(self.segment.resolve(id), buf);
    }

    /// A weight as it is in the file.
    ///
    /// # Errors
    /// When it cannot be read or is not what was declared.
    pub fn weight(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let tensor = self.options.consts.tensor(id)?;
        self.segment.check_weight(id, &tensor)?;
        Ok(tensor)
    }

    /// The weight behind a value, if it is one.
    pub fn const_of(&self, id: ValueId) -> Option<ConstId> {
        match self.kind(id) {
            ValueKind::Const(id) => Some(*id),
            _ => None,
        }
    }

    fn upload_plain(&mut self, tensor: &Tensor) -> Result<BufId, BackendError> {
        let words = crate::weights::plain_words(tensor)?;
        self.upload_words("weight", &words)
    }

    /// Words in a buffer of their own, for as long as the program lives.
    ///
    /// # Errors
    /// When memory is out.
    pub fn upload_words(&mut self, what: &str, words: &[u32]) -> Result<BufId, BackendError> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let buffer = self.gpu.buffer(what, Use::Storage, bytes.len() as u64)?;
        self.gpu.write(buffer.buffer(), 0, bytes)?;
        self.weight_bytes = self.weight_bytes.saturating_add(bytes.len());
        Ok(self.add(BufDef::Weight(Arc::new(buffer))))
    }

    /// The rows of these weights, below each other, in packed form.
    ///
    /// # Errors
    /// When one cannot be read or packed, or memory is out.
    pub fn matrix(&mut self, ids: &[ConstId]) -> Result<Arc<Matrix>, BackendError> {
        if let Some(found) = self.matrices.get(ids) {
            return Ok(found);
        }
        let mut tensors = Vec::with_capacity(ids.len());
        for &id in ids {
            tensors.push(self.weight(id)?);
        }
        let matrix = Matrix::upload(self, &tensors)?;
        tensors.iter().for_each(Tensor::release);
        Ok(self.matrices.put(ids, matrix))
    }

    /// The blocks of one part of a state.
    pub fn kv(&mut self, state: StateId, part: usize) -> BufId {
        if let Some(&buf) = self.of_kv.get(&(state, part)) {
            return buf;
        }
        let buf = self.add(BufDef::Kv { state, part });
        self.of_kv.insert((state, part), buf);
        buf
    }

    /// The table of the step.
    pub fn table(&mut self) -> BufId {
        match self.table {
            Some(buf) => buf,
            None => {
                let buf = self.add(BufDef::Table);
                self.table = Some(buf);
                buf
            }
        }
    }

    /// A table of rotations, shared by all ops that rotate alike.
    ///
    /// # Errors
    /// None now.
    pub fn trig(&mut self, trig: Trig) -> BufId {
        let same = |def: &BufDef| match def {
            BufDef::Trig(other) => trig.is(other),
            _ => false,
        };
        match self.bufs.iter().position(same) {
            Some(at) => BufId(at as u32),
            None => self.add(BufDef::Trig(trig)),
        }
    }

    /// Has the host check that what an input holds stays below a limit.
    pub fn limit(&mut self, indices: ValueId, limit: usize, op: &'static str, what: &'static str) {
        let input = self.segment.resolve(indices);
        if matches!(self.segment.value(input).kind, ValueKind::Input(_)) {
            let limit = IndexLimit { input, limit, op, what };
            if !self.limits.contains(&limit) {
                self.limits.push(limit);
            }
        }
    }

    /// Adds a dispatch: the buffers that it reads, then those that it writes, as the kernel declares them.
    ///
    /// # Errors
    /// When the kernel does not compile.
    pub fn push(
        &mut self,
        key: KernelKey,
        binds: &[Bind],
        call: impl Fn(&StepInfo<'_>) -> Call + Send + Sync + 'static,
    ) -> Result<(), BackendError> {
        self.push_any(&[key], binds, call)
    }

    /// [`Lower::push`] with several kernels that bind alike, of which each call names one.
    ///
    /// # Errors
    /// As [`Lower::push`].
    pub fn push_any(
        &mut self,
        keys: &[KernelKey],
        binds: &[Bind],
        call: impl Fn(&StepInfo<'_>) -> Call + Send + Sync + 'static,
    ) -> Result<(), BackendError> {
        debug_assert!(keys.iter().all(|k| k.buffers.len() == binds.len()), "{keys:?}");
        let mut pipelines = Vec::with_capacity(keys.len());
        for key in keys {
            pipelines.push(self.gpu.pipeline(key)?);
        }
        let reads = keys
            .first()
            .map_or(0, |k| k.buffers.iter().filter(|a| **a == Access::Read).count());
        self.dispatches.push(Dispatch {
            n_reads: reads,
            pipelines,
            binds: binds.to_vec(),
            call: Box::new(call),
            instrs: self.instrs.clone(),
        });
        Ok(())
    }

    /// [`Lower::push`] with whole buffers: `reads` before `writes`.
    ///
    /// # Errors
    /// As [`Lower::push`].
    pub fn kernel(
        &mut self,
        key: impl FnOnce(&[Access]) -> KernelKey,
        reads: &[BufId],
        writes: &[BufId],
        call: impl Fn(&StepInfo<'_>) -> Call + Send + Sync + 'static,
    ) -> Result<(), BackendError> {
        let mut access = vec![Access::Read; reads.len()];
        access.resize(reads.len() + writes.len(), Access::Write);
        let binds: Vec<Bind> = reads.iter().chain(writes).map(|&b| b.into()).collect();
        self.push(key(&access), &binds, call)
    }

    /// Bytes of weights that the program holds.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Counts bytes of weights.
    pub fn count_weight(&mut self, bytes: usize) {
        self.weight_bytes = self.weight_bytes.saturating_add(bytes);
    }

    /// The storage dtype of one part of the cache.
    pub fn kv_dtype(&self, part: usize) -> DType {
        self.options.kv_dtypes.get(part).copied().unwrap_or(DType::F32)
    }
}
