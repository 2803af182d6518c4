//! Device buffers, counted, and given back to a pool when their last user lets go, so that requests after the first
//! take no new memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use glia_core::BackendError;
use wgpu::BufferUsages;

use super::counters::Counting;
use super::device::Gpu;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// Read and written by kernels; copied from and to.
    Storage,
    /// Constants of dispatches.
    Uniform,
    /// Copied to, then mapped by the host.
    Readback,
}

impl Use {
    fn usages(self) -> BufferUsages {
        match self {
            Use::Storage => BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            Use::Uniform => BufferUsages::UNIFORM | BufferUsages::COPY_DST,
            Use::Readback => BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        }
    }
}

/// A buffer that returns to its pool when dropped.
pub(crate) struct Pooled {
    buffer: Option<wgpu::Buffer>,
    used_as: Use,
    free: Arc<Mutex<Free>>,
}

impl Pooled {
    /// The buffer.
    pub fn buffer(&self) -> &wgpu::Buffer {
        self.buffer.as_ref().expect("there until drop")
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.buffer().size()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.put(self.used_as, buffer);
        }
    }
}

/// Most bytes of free buffers that are kept.
const MAX_FREE_BYTES: u64 = 256 << 20;

/// Buffers that nobody uses, by purpose and size.
pub(crate) struct Pool(Arc<Mutex<Free>>);

struct Free {
    buffers: BTreeMap<(Use, u64), Vec<wgpu::Buffer>>,
    bytes: u64,
    counters: Arc<Counting>,
}

impl Free {
    fn put(&mut self, used_as: Use, buffer: wgpu::Buffer) {
        let size = buffer.size();
        if self.bytes.saturating_add(size) > MAX_FREE_BYTES {
            Counting::sub(&self.counters.buffer_bytes, size);
            buffer.destroy();
            return;
        }
        self.bytes += size;
        self.buffers.entry((used_as, size)).or_default().push(buffer);
    }

    /// The smallest free buffer of at least, and at most twice, this size.
    fn take(&mut self, used_as: Use, size: u64) -> Option<wgpu::Buffer> {
        let range = (used_as, size)..=(used_as, size.saturating_mul(2));
        let (_, list) = self.buffers.range_mut(range).find(|(_, list)| !list.is_empty())?;
        let buffer = list.pop()?;
        self.bytes -= buffer.size();
        Some(buffer)
    }

    /// Lets go of everything that is free.
    fn drain(&mut self) {
        for buffer in std::mem::take(&mut self.buffers).into_values().flatten() {
            Counting::sub(&self.counters.buffer_bytes, buffer.size());
            buffer.destroy();
        }
        self.bytes = 0;
    }
}

impl Pool {
    pub fn new(counters: Arc<Counting>) -> Pool {
        Pool(Arc::new(Mutex::new(Free {
            buffers: BTreeMap::new(),
            bytes: 0,
            counters,
        })))
    }
}

impl Gpu {
    /// A buffer of at least `bytes`, zeroed only when it is new. Sizes that come back are rounded up, so that they
    /// meet again in the pool.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] beyond the limit of the options, of a buffer, or of the device.
    pub fn buffer(&self, what: &str, used_as: Use, bytes: u64) -> Result<Pooled, BackendError> {
        let rounded = round_size(bytes, self.caps.max_buffer_bytes);
        let pooled = |buffer| Pooled {
            buffer: Some(buffer),
            used_as,
            free: self.pool.0.clone(),
        };
        let locked = || self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = locked().take(used_as, rounded) {
            return Ok(pooled(buffer));
        }
        if rounded < bytes {
            return Err(BackendError::OutOfMemory {
                what: format!("{what} in one buffer"),
                needed_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                limit_bytes: usize::try_from(self.caps.max_buffer_bytes).unwrap_or(usize::MAX),
            });
        }
        let used = |gpu: &Gpu| gpu.counters.read().buffer_bytes.saturating_add(rounded);
        if self.max_memory_bytes > 0 && used(self) > self.max_memory_bytes {
            locked().drain();
            if used(self) > self.max_memory_bytes {
                return Err(self.out_of_memory(what, rounded));
            }
        }
        let descriptor = wgpu::BufferDescriptor {
            label: Some(what),
            size: rounded,
            usage: used_as.usages(),
            mapped_at_creation: false,
        };
        let create = || self.scoped(what, || self.device.create_buffer(&descriptor));
        let made = match create() {
            Err(BackendError::OutOfMemory { .. }) => {
                locked().drain();
                create().map_err(|e| match e {
                    BackendError::OutOfMemory { .. } => self.out_of_memory(what, rounded),
                    e => e,
                })?
            }
            made => made?,
        };
        Counting::add(&self.counters.buffers, 1);
        Counting::add(&self.counters.buffer_bytes, rounded);
        Ok(pooled(made))
    }
}

/// Small sizes to powers of two, large ones to an eighth of theirs: at most that much is wasted.
fn round_size(bytes: u64, most: u64) -> u64 {
    let bytes = bytes.max(256);
    let step = (bytes.next_power_of_two() / 16).max(256);
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX).min(most & !3)
}
