//! Raw memory of a running step: the arena, and values resolved to addresses. The one place outside kernels and KV
//! blocks where addresses become slices; chunks, which exist once per piece of work, keep writers apart.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use glia_core::{BackendError, DType, Shape};
use memmap2::MmapMut;

use crate::memory;

/// Growing memory at a multiple of 64 bytes. Contents do not survive growth. Pages are the system's until something is
/// written to them, and go back to it when more is needed.
#[derive(Default)]
pub(crate) struct Arena {
    map: Option<MmapMut>,
}

impl Arena {
    /// Makes room for `bytes` and returns the address of the first, a multiple of 64.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`].
    pub fn reserve(&mut self, bytes: usize) -> Result<*mut u8, BackendError> {
        let map = match self.map.take().filter(|map| map.len() >= bytes) {
            Some(map) => map,
            None => memory::zeroed_within(bytes.max(1)).ok_or_else(|| BackendError::OutOfMemory {
                what: "the arena of intermediates".to_owned(),
                needed_bytes: bytes,
                limit_bytes: isize::MAX as usize,
            })?,
        };
        Ok(self.map.insert(map).as_mut_ptr())
    }
}

/// A value of the running step: where its bytes are.
#[derive(Clone, Copy)]
pub(crate) struct RawValue {
    ptr: *mut u8,
    len: usize,
    writable: bool,
    pub dtype: DType,
    pub shape: Shape,
}

// SAFETY: a plain address; who may use it when is settled by the plan (see `Values`).
unsafe impl Send for RawValue {}
// SAFETY: as above.
unsafe impl Sync for RawValue {}

impl RawValue {
    /// A value that does not exist in this step.
    pub fn none() -> RawValue {
        RawValue {
            ptr: std::ptr::NonNull::<u128>::dangling().as_ptr().cast(),
            len: 0,
            writable: false,
            dtype: DType::U8,
            shape: Shape::new(&[0]),
        }
    }

    /// Bytes that nobody writes to during the step.
    pub fn constant(bytes: &[u8], dtype: DType, shape: Shape) -> RawValue {
        RawValue {
            ptr: bytes.as_ptr().cast_mut(),
            len: bytes.len(),
            writable: false,
            dtype,
            shape,
        }
    }

    /// Bytes that one instruction of the step writes and later ones read.
    ///
    /// # Safety
    /// `ptr..ptr + len` stays allocated, initialised and otherwise untouched until the step has ended.
    pub unsafe fn variable(ptr: *mut u8, len: usize, dtype: DType, shape: Shape) -> RawValue {
        RawValue {
            ptr,
            len,
            writable: true,
            dtype,
            shape,
        }
    }

    /// The same bytes under another type.
    pub fn viewed(self, dtype: DType, shape: Shape) -> RawValue {
        RawValue { dtype, shape, ..self }
    }

    pub fn len_bytes(&self) -> usize {
        self.len
    }
}

/// A piece of an instruction's work. The team makes each exactly once per step, and chunks of one instruction never
/// overlap: whoever holds one alone writes to its items.
pub(crate) struct Chunk {
    items: Range<usize>,
}

impl Chunk {
    /// # Safety
    /// Chunks made for one instruction in one step must not overlap.
    pub unsafe fn new(items: Range<usize>) -> Chunk {
        Chunk { items }
    }

    pub fn items(&self) -> Range<usize> {
        self.items.clone()
    }
}

/// All values of a running step, by id. The plan guarantees that an instruction's outputs share no byte with its
/// inputs, nor with anything that others touch before the next group.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a>(pub &'a [RawValue]);

fn broken(reason: String) -> BackendError {
    BackendError::InvalidInput {
        op: "plan".to_owned(),
        reason,
    }
}

impl<'a> Values<'a> {
    pub fn get(&self, id: u32) -> Result<&'a RawValue, BackendError> {
        self.0
            .get(id as usize)
            .ok_or_else(|| broken(format!("value {id} does not exist")))
    }

    /// Dimensions of a value.
    pub fn shape(&self, id: u32) -> Result<&'a Shape, BackendError> {
        Ok(&self.get(id)?.shape)
    }

    /// The bytes of an input.
    pub fn bytes(&self, id: u32) -> Result<&'a [u8], BackendError> {
        let v = self.get(id)?;
        // SAFETY: the value is allocated for the whole step, and nobody writes to an input before the next group.
        Ok(unsafe { std::slice::from_raw_parts(v.ptr, v.len) })
    }

    /// The elements of an input.
    ///
    /// # Errors
    /// When the bytes are not aligned for `T` or no whole number of elements.
    pub fn read<T: Pod>(&self, id: u32) -> Result<&'a [T], BackendError> {
        bytemuck::try_cast_slice(self.bytes(id)?).map_err(|e| broken(format!("value {id}: {e}")))
    }

    fn target(&self, id: u32, elem_bytes: usize, range: Range<usize>) -> Result<*mut u8, BackendError> {
        let v = self.get(id)?;
        let end = range
            .end
            .checked_mul(elem_bytes)
            .filter(|&end| end <= v.len && range.start <= range.end);
        if !v.writable || end.is_none() {
            return Err(broken(format!(
                "elements {range:?} of value {id} are not the instruction's"
            )));
        }
        // SAFETY: within the allocation, as just checked.
        let ptr = unsafe { v.ptr.add(range.start * elem_bytes) };
        if !ptr.addr().is_multiple_of(elem_bytes) {
            return Err(broken(format!("value {id} is not aligned")));
        }
        Ok(ptr)
    }

    /// The elements of an output that belong to a chunk: `per_item` for each of its items.
    ///
    /// # Errors
    /// When the items leave the value.
    pub fn write<'c, T: Pod>(
        &self,
        chunk: &'c mut Chunk,
        id: u32,
        per_item: usize,
    ) -> Result<&'c mut [T], BackendError> {
        let items = chunk.items();
        let range = items.start.saturating_mul(per_item)..items.end.saturating_mul(per_item);
        let n = range.end.saturating_sub(range.start);
        let ptr = self.target(id, size_of::<T>(), range)?;
        // SAFETY: in bounds and aligned; only this chunk's holder, who lends it out, writes to these items.
        Ok(unsafe { std::slice::from_raw_parts_mut(ptr.cast::<T>(), n) })
    }

    /// As [`Values::write`] for two outputs at once.
    ///
    /// # Errors
    /// As `write`, and when both are one value.
    pub fn write_two<'c, T: Pod, U: Pod>(
        &self,
        chunk: &'c mut Chunk,
        (a, b): (u32, u32),
        per_item: usize,
    ) -> Result<(&'c mut [T], &'c mut [U]), BackendError> {
        if std::ptr::eq(self.get(a)?.ptr, self.get(b)?.ptr) && self.get(a)?.len > 0 {
            return Err(broken("two outputs share their bytes".to_owned()));
        }
        let items = chunk.items();
        let range = items.start.saturating_mul(per_item)..items.end.saturating_mul(per_item);
        let n = range.end.saturating_sub(range.start);
        let (pa, pb) = (
            self.target(a, size_of::<T>(), range.clone())?,
            self.target(b, size_of::<U>(), range)?,
        );
        // SAFETY: as in `write`; the values are distinct allocations or slots.
        Ok(unsafe {
            (
                std::slice::from_raw_parts_mut(pa.cast::<T>(), n),
                std::slice::from_raw_parts_mut(pb.cast::<U>(), n),
            )
        })
    }

    /// The address of element `first` of an output, for kernels that write with a stride. `n_elems` behind it must
    /// be inside the value.
    ///
    /// # Errors
    /// When they are not.
    pub fn write_ptr<T: Pod>(
        &self,
        _: &mut Chunk,
        id: u32,
        first: usize,
        n_elems: usize,
    ) -> Result<*mut T, BackendError> {
        Ok(self
            .target(id, size_of::<T>(), first..first.saturating_add(n_elems))?
            .cast())
    }
}

/// Floats that the stages of one instruction hand to each other: written by one stage, read by the next.
#[derive(Clone, Copy)]
pub(crate) struct Partials<'a> {
    ptr: *mut f32,
    len: usize,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads write to parts that belong to their chunks, and read in later groups.
unsafe impl Send for Partials<'_> {}
// SAFETY: as above.
unsafe impl Sync for Partials<'_> {}

impl<'a> Partials<'a> {
    pub fn new(memory: &'a mut [f32]) -> Partials<'a> {
        Partials {
            ptr: memory.as_mut_ptr(),
            len: memory.len(),
            memory: PhantomData,
        }
    }

    fn check(&self, first: usize, n: usize) -> Result<(), BackendError> {
        if first.checked_add(n).is_none_or(|end| end > self.len) {
            return Err(broken(format!("partial results {first} + {n} of {}", self.len)));
        }
        Ok(())
    }

    /// The part of an item of a chunk.
    ///
    /// # Errors
    /// When it leaves the memory.
    pub fn write<'c>(&self, _: &'c mut Chunk, first: usize, n: usize) -> Result<&'c mut [f32], BackendError> {
        self.check(first, n)?;
        // SAFETY: in bounds; parts of different items do not overlap, and an item belongs to one chunk, lent out here.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.ptr.add(first), n) })
    }

    /// What an earlier stage wrote.
    ///
    /// # Errors
    /// When it leaves the memory.
    pub fn read(&self, first: usize, n: usize) -> Result<&'a [f32], BackendError> {
        self.check(first, n)?;
        // SAFETY: in bounds; the stage that wrote is of an earlier group, and the next writer comes after
        // another.
        Ok(unsafe { std::slice::from_raw_parts(self.ptr.add(first), n) })
    }
}
