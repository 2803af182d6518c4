//! From a key to a compiled pipeline, and the constants of one dispatch.

use glia_core::BackendError;

use super::{Def, Source, preprocess};
use crate::gpu::Gpu;

/// How a kernel uses a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Access {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    Write,
}

/// What names one pipeline: a file, its definitions and the storage buffers that it binds, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelKey {
    pub source: Source,
    pub defs: Vec<(&'static str, Def)>,
    pub buffers: Vec<Access>,
}

impl KernelKey {
    pub fn new(source: Source, buffers: &[Access]) -> KernelKey {
        KernelKey {
            source,
            defs: Vec::new(),
            buffers: buffers.to_vec(),
        }
    }

    /// Adds a definition.
    #[must_use]
    pub fn def(mut self, name: &'static str, def: Def) -> KernelKey {
        self.defs.push((name, def));
        self
    }

    #[must_use]
    pub fn flag(self, name: &'static str, flag: bool) -> KernelKey {
        self.def(name, Def::Flag(flag))
    }

    #[must_use]
    pub fn int(self, name: &'static str, n: u32) -> KernelKey {
        self.def(name, Def::Int(n))
    }

    #[must_use]
    pub fn text(self, name: &'static str, text: &'static str) -> KernelKey {
        self.def(name, Def::Text(text))
    }

    /// The WGSL of the kernel on a device with these features.
    pub fn wgsl(&self, subgroups: bool, immediates: bool) -> Result<String, BackendError> {
        let mut defs = self.defs.clone();
        defs.push(("SUBGROUPS", Def::Flag(subgroups)));
        defs.push(("IMMEDIATES", Def::Flag(immediates)));
        preprocess(self.source.name(), &defs, &Source::read).map_err(|e| BackendError::Other(Box::new(e)))
    }
}

/// Words of constants that a kernel may have; the last is the first workgroup of a dispatch that was cut in pieces.
pub(crate) const MAX_WORDS: usize = 32;

/// How a kernel is run in one step: its constants, and over how many workgroups.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub words: [u32; MAX_WORDS],
    pub groups: u64,
    /// Which of the kernels of a dispatch.
    pub variant: usize,
}

impl Call {
    /// A call with these constants. None when a number does not fit in 32 bits, which the plan has excluded for all
    /// but sizes beyond any buffer.
    pub fn new(groups: usize, words: &[usize]) -> Call {
        let mut call = Call {
            words: [0; MAX_WORDS],
            groups: groups as u64,
            variant: 0,
        };
        for (slot, &word) in call.words.iter_mut().zip(words) {
            *slot = u32::try_from(word).unwrap_or(u32::MAX);
        }
        call
    }

    /// Sets a constant.
    #[must_use]
    pub fn word(mut self, at: usize, word: u32) -> Call {
        self.words[at] = word;
        self
    }

    /// Sets a floating-point constant.
    #[must_use]
    pub fn float(self, at: usize, value: f32) -> Call {
        self.word(at, value.to_bits())
    }

    /// Chooses a kernel.
    #[must_use]
    pub fn variant(mut self, variant: usize) -> Call {
        self.variant = variant;
        self
    }
}

/// A compiled kernel.
pub(crate) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    pub source: Source,
}

impl Pipeline {
    pub fn compile(gpu: &Gpu, key: &KernelKey, cache: Option<&wgpu::PipelineCache>) -> Result<Pipeline, BackendError> {
        let text = key.wgsl(gpu.caps.subgroups, gpu.caps.immediates)?;
        let name = key.source.name();
        gpu.scoped(name, || {
            let device = &gpu.device;
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::Wgsl(text.into()),
            });
            let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..).zip(&key.buffers).map(storage_entry).collect();
            let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(name),
                entries: &entries,
            });
            let params = params_layout(device);
            let groups: &[Option<&wgpu::BindGroupLayout>] = if gpu.caps.immediates {
                &[Some(&layout)]
            } else {
                &[Some(&layout), Some(&params)]
            };
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(name),
                bind_group_layouts: groups,
                immediate_size: if gpu.caps.immediates { 4 * MAX_WORDS as u32 } else { 0 },
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache,
            });
            Pipeline {
                pipeline,
                layout,
                source: key.source,
            }
        })
    }
}

fn storage_entry((binding, access): (u32, &Access)) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage {
                read_only: *access == Access::Read,
            },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

/// Layout of the second group: the constants of a dispatch, at an offset.
pub(crate) fn params_layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some("params"),
        entries: &[wgpu::BindGroupLayoutEntry {
            binding: 0,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Uniform,
                has_dynamic_offset: true,
                min_binding_size: std::num::NonZeroU64::new(4 * MAX_WORDS as u64),
            },
            count: None,
        }],
    })
}
