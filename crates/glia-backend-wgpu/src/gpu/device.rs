//! An open device: every call to wgpu that can fail is made within an error scope and returns what was caught.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use glia_core::BackendError;
use wgpu::{DeviceDescriptor, ErrorFilter, PollError, PollType, SubmissionIndex};

use super::adapter::{self, AdapterEntry};
use super::buffers::Pool;
use super::caps::{self, Caps};
use super::counters::Counting;
use super::{ByteDots, Kernels, WgpuOptions, unlocked};
use crate::shader::{KernelKey, Pipeline};

/// Name of the backend.
pub(crate) const NAME: &str = "wgpu";

/// A submission that takes longer than this is given up: the device hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Bytes on their way to the device that the host holds at most, about.
const MAX_UNSENT_BYTES: u64 = 64 << 20;

/// An open device with its queue, its pool of buffers and its compiled pipelines.
pub(crate) struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub caps: Caps,
    pub entry: AdapterEntry,
    pub counters: Arc<Counting>,
    pub pool: Pool,
    pub max_submit_ops: u64,
    pub max_memory_bytes: u64,
    pub byte_dots: ByteDots,
    pipelines: Mutex<HashMap<KernelKey, Arc<Pipeline>>>,
    /// What stands for every kernel where tests only ask which there are.
    #[cfg(test)]
    stub: OnceLock<Arc<Pipeline>>,
    cache: Option<PipelineFile>,
    /// Why the device was lost, once it is.
    lost: Arc<OnceLock<String>>,
    unsent_bytes: AtomicU64,
    /// Errors that no scope has caught.
    stray: Arc<Mutex<Option<String>>>,
}

/// The pipelines of earlier processes, and where they are kept.
struct PipelineFile {
    cache: wgpu::PipelineCache,
    path: PathBuf,
}

impl Gpu {
    /// Opens the adapter that the options choose.
    ///
    /// # Errors
    /// When there is no such adapter, or it does not open.
    pub fn open(options: &WgpuOptions) -> Result<Arc<Gpu>, BackendError> {
        let instance = adapter::instance();
        let adapter = adapter::choose(&instance, &options.adapter)?;
        let features = caps::features(adapter.features(), options.baseline);
        let limits = caps::limits(&adapter.limits(), features, options.baseline);
        let descriptor = DeviceDescriptor {
            label: Some("glia"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features: if features.intersects(wgpu::Features::all_experimental_mask()) {
                unlocked::experimental()
            } else {
                wgpu::ExperimentalFeatures::disabled()
            },
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).map_err(|e| other(&e))?;
        let (lost, stray) = (Arc::new(OnceLock::new()), Arc::new(Mutex::new(None)));
        let set = lost.clone();
        device.set_device_lost_callback(move |reason, message| {
            // Only the first reason counts.
            let _ = set.set(format!("{reason:?}: {message}"));
        });
        let keep = stray.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            keep.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert_with(|| error.to_string());
        }));
        let info = adapter.get_info();
        let software = info.device_type == wgpu::DeviceType::Cpu && options.kernels == Kernels::Auto;
        let coop = adapter.cooperative_matrix_properties();
        let mut caps = Caps::new(features, &limits, software, &info, &coop);
        if options.max_binding_bytes > 0 {
            caps.max_binding_bytes = caps.max_binding_bytes.min(options.max_binding_bytes & !255).max(256);
        }
        let cache = options.pipeline_cache.as_ref().filter(|_| caps.pipeline_cache);
        let cache = cache.and_then(|folder| PipelineFile::open(&device, &info, folder));
        let counters = Arc::new(Counting::default());
        let submit_ops = match options.max_submit_ops {
            0 => caps.submit_ops(info.device_type),
            given => given,
        };
        Ok(Arc::new(Gpu {
            pool: Pool::new(counters.clone()),
            entry: adapter::entry(&adapter),
            max_submit_ops: submit_ops,
            max_memory_bytes: options.max_memory_bytes,
            byte_dots: options.byte_dots,
            device,
            queue,
            caps,
            counters,
            pipelines: Mutex::default(),
            #[cfg(test)]
            stub: OnceLock::new(),
            cache,
            lost,
            unsent_bytes: AtomicU64::new(0),
            stray,
        }))
    }

    /// Runs calls to wgpu and returns the first error of theirs: validation, memory, or a bug of the driver.
    pub fn scoped<R>(&self, what: &str, calls: impl FnOnce() -> R) -> Result<R, BackendError> {
        self.check_alive()?;
        let scopes = [ErrorFilter::Internal, ErrorFilter::Validation, ErrorFilter::OutOfMemory];
        let [internal, validation, memory] = scopes.map(|filter| self.device.push_error_scope(filter));
        let result = calls();
        let errors = [memory.pop(), validation.pop(), internal.pop()].map(pollster::block_on);
        let caught = errors.into_iter().flatten().next();
        self.check_alive()?;
        match caught {
            None => Ok(result),
            Some(error) => Err(self.error(what, &error)),
        }
    }

    fn error(&self, what: &str, error: &wgpu::Error) -> BackendError {
        match error {
            wgpu::Error::OutOfMemory { .. } => self.out_of_memory(what, 0),
            _ => BackendError::InvalidInput {
                op: what.to_owned(),
                reason: format!("the device refused it: {error}"),
            },
        }
    }

    /// The error for a buffer that the device does not have.
    pub fn out_of_memory(&self, what: &str, asked: u64) -> BackendError {
        let used = self.counters.read().buffer_bytes;
        let needed = usize::try_from(used.saturating_add(asked)).unwrap_or(usize::MAX);
        let limit = match self.max_memory_bytes {
            0 => used,
            limit => limit,
        };
        BackendError::OutOfMemory {
            what: what.to_owned(),
            needed_bytes: needed,
            limit_bytes: usize::try_from(limit).unwrap_or(usize::MAX),
        }
    }

    /// Whether the device is gone.
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Fails once the device is lost, or an error has come outside of every scope.
    ///
    /// # Errors
    /// [`BackendError::DeviceLost`], [`BackendError::InvalidInput`].
    pub fn check_alive(&self) -> Result<(), BackendError> {
        if let Some(reason) = self.lost.get() {
            let reason = reason.clone();
            return Err(BackendError::DeviceLost { reason });
        }
        match self.stray.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reason) => Err(BackendError::InvalidInput {
                op: NAME.to_owned(),
                reason,
            }),
            None => Ok(()),
        }
    }

    /// Destroys the device, as a driver does that gives up; what uses it then fails with `DeviceLost`.
    pub fn lose(&self) {
        let _ = self.lost.set("destroyed on request".to_owned());
        self.device.destroy();
    }

    /// Submits commands.
    ///
    /// # Errors
    /// What validation says, [`BackendError::DeviceLost`].
    pub fn submit(&self, what: &str, commands: wgpu::CommandBuffer) -> Result<SubmissionIndex, BackendError> {
        Counting::add(&self.counters.submits, 1);
        self.unsent_bytes.store(0, Ordering::Relaxed);
        self.scoped(what, || self.queue.submit([commands]))
    }

    /// Waits for a submission and for the maps behind it.
    ///
    /// # Errors
    /// [`BackendError::DeviceLost`], also for a device that does not end.
    pub fn wait(&self, index: Option<SubmissionIndex>) -> Result<(), BackendError> {
        let started = Instant::now();
        let poll = PollType::Wait {
            submission_index: index,
            timeout: Some(PATIENCE),
        };
        let polled = self.device.poll(poll);
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Counting::max(&self.counters.longest_wait_us, micros);
        self.check_alive()?;
        match polled {
            Ok(_) => Ok(()),
            Err(PollError::Timeout) => Err(BackendError::DeviceLost {
                reason: format!("a submission did not end within {} s", PATIENCE.as_secs()),
            }),
            Err(error) => Err(other(&error)),
        }
    }

    /// Counts bytes from the host. What has been written is held on the host until it is submitted, so that a big
    /// model is sent on its way while it is read.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn count_written(&self, bytes: usize) -> Result<(), BackendError> {
        Counting::add(&self.counters.written_bytes, bytes as u64);
        let unsent = self.unsent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if unsent < MAX_UNSENT_BYTES {
            return Ok(());
        }
        self.unsent_bytes.store(0, Ordering::Relaxed);
        let index = self.scoped("write", || self.queue.submit([]))?;
        self.wait(Some(index))
    }

    /// Counts bytes to the host.
    pub fn count_read(&self, bytes: usize) {
        Counting::add(&self.counters.read_bytes, bytes as u64);
    }

    /// Counts dispatches and bind groups.
    pub fn count_work(&self, dispatches: usize, bind_groups: usize) {
        Counting::add(&self.counters.dispatches, dispatches as u64);
        Counting::add(&self.counters.bind_groups, bind_groups as u64);
    }

    /// From now on kernels are only noted: this one stands for all. What is compiled then cannot run.
    #[cfg(test)]
    pub fn note_kernels(&self, stub: &KernelKey) -> Result<(), BackendError> {
        let stub = Arc::new(Pipeline::compile(self, stub, None)?);
        self.stub.get_or_init(|| stub);
        Ok(())
    }

    /// Every kernel that has been asked for.
    #[cfg(test)]
    pub fn kernel_keys(&self) -> Vec<KernelKey> {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.keys().cloned().collect()
    }

    /// The compiled pipeline of a kernel, from the cache where it is in it.
    ///
    /// # Errors
    /// What the compiler of the driver says.
    pub fn pipeline(&self, key: &KernelKey) -> Result<Arc<Pipeline>, BackendError> {
        let locked = || self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = locked().get(key) {
            return Ok(found.clone());
        }
        #[cfg(test)]
        if let Some(stub) = self.stub.get() {
            locked().insert(key.clone(), stub.clone());
            return Ok(stub.clone());
        }
        let cache = self.cache.as_ref().map(|file| &file.cache);
        let made = Arc::new(Pipeline::compile(self, key, cache)?);
        Counting::add(&self.counters.pipelines, 1);
        Ok(locked().entry(key.clone()).or_insert(made).clone())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let (Some(file), None) = (&self.cache, self.lost.get()) {
            file.save();
        }
    }
}

impl PipelineFile {
    fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, folder: &std::path::Path) -> Option<PipelineFile> {
        let path = folder.join(wgpu::util::pipeline_cache_key(info)?);
        let stored = std::fs::read(&path).ok().and_then(|bytes| {
            let (sum, data) = bytes.split_first_chunk::<8>()?;
            (u64::from_le_bytes(*sum) == checksum(data)).then(|| data.to_vec())
        });
        let cache = unlocked::pipeline_cache(device, stored.as_deref());
        Some(PipelineFile { cache, path })
    }

    /// Written beside and moved in place, so that no reader sees half of it. A cache that cannot be kept is no error.
    fn save(&self) {
        let Some(data) = self.cache.get_data() else { return };
        let mut bytes = checksum(&data).to_le_bytes().to_vec();
        bytes.extend_from_slice(&data);
        let Some(folder) = self.path.parent() else { return };
        let part = self.path.with_extension(format!("{}.part", std::process::id()));
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&part, &bytes))
            .and_then(|()| std::fs::rename(&part, &self.path));
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
    }
}

/// FNV-1a (Fowler, Noll, Vo), 64 bits: against damage, not against an enemy.
fn checksum(data: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    data.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// An error of wgpu's as one of ours.
pub(crate) fn other(error: &dyn std::error::Error) -> BackendError {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    BackendError::Other(text.into())
}
