//! How the backend is set up.

use std::path::PathBuf;

/// Which adapter to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdapterChoice {
    /// The first of [`adapters`](crate::adapters): discrete before integrated before virtual before software.
    #[default]
    Best,
    /// The adapter with this index in [`adapters`](crate::adapters).
    Index(usize),
    /// The first adapter whose name contains this text, whatever the case.
    Name(String),
}

/// Which form of the kernels to run, where they have two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernels {
    /// As the adapter asks: on software adapters each thread works alone, on others workgroups share.
    #[default]
    Auto,
    /// Workgroups share, on every adapter: slow on software, for tests and measurements.
    Together,
}

/// When products of few rows are computed in signed bytes; never where results are to be exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ByteDots {
    /// Where a table that is part of the crate says that it is faster on the adapter.
    #[default]
    Measured,
    /// Wherever there is a kernel for it; for tests and measurements.
    Always,
    /// Nowhere.
    Never,
}

/// How to open a device and how much of it to use.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WgpuOptions {
    /// Which adapter.
    pub adapter: AdapterChoice,
    /// Ask for no more than the WebGPU baseline guarantees: 128 MiB bindings, 256 threads, 16 KiB of workgroup memory,
    /// 8 storage buffers, and neither subgroups nor f16 nor immediates.
    pub baseline: bool,
    /// Bytes that buffers may take in all; 0 asks the device until it refuses.
    pub max_memory_bytes: u64,
    /// Most bytes that a kernel is given of one buffer; larger weight matrices are cut into parts of rows. 0 takes the
    /// adapter's own limit; smaller values are for tests.
    pub max_binding_bytes: u64,
    /// Arithmetic operations of one submission, so that none trips a watchdog; 0 chooses by the kind of adapter.
    pub max_submit_ops: u64,
    /// Where compiled pipelines are kept between processes, on adapters that can; `None` keeps none.
    pub pipeline_cache: Option<PathBuf>,
    /// Which form of the kernels to run; for tests and measurements.
    pub kernels: Kernels,
    /// When products of few rows are computed in signed bytes.
    pub byte_dots: ByteDots,
}

impl WgpuOptions {
    /// Sets [`adapter`](WgpuOptions::adapter).
    #[must_use]
    pub fn with_adapter(mut self, adapter: AdapterChoice) -> WgpuOptions {
        self.adapter = adapter;
        self
    }

    /// Sets [`baseline`](WgpuOptions::baseline).
    #[must_use]
    pub fn with_baseline(mut self, baseline: bool) -> WgpuOptions {
        self.baseline = baseline;
        self
    }

    /// Sets [`max_memory_bytes`](WgpuOptions::max_memory_bytes).
    #[must_use]
    pub fn with_max_memory_bytes(mut self, bytes: u64) -> WgpuOptions {
        self.max_memory_bytes = bytes;
        self
    }

    /// Sets [`max_binding_bytes`](WgpuOptions::max_binding_bytes).
    #[must_use]
    pub fn with_max_binding_bytes(mut self, bytes: u64) -> WgpuOptions {
        self.max_binding_bytes = bytes;
        self
    }

    /// Sets [`max_submit_ops`](WgpuOptions::max_submit_ops).
    #[must_use]
    pub fn with_max_submit_ops(mut self, ops: u64) -> WgpuOptions {
        self.max_submit_ops = ops;
        self
    }

    /// Sets [`pipeline_cache`](WgpuOptions::pipeline_cache).
    #[must_use]
    pub fn with_pipeline_cache(mut self, folder: PathBuf) -> WgpuOptions {
        self.pipeline_cache = Some(folder);
        self
    }

    /// Sets [`byte_dots`](WgpuOptions::byte_dots).
    #[must_use]
    pub fn with_byte_dots(mut self, byte_dots: ByteDots) -> WgpuOptions {
        self.byte_dots = byte_dots;
        self
    }

    /// Sets [`kernels`](WgpuOptions::kernels).
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> WgpuOptions {
        self.kernels = kernels;
        self
    }
}
