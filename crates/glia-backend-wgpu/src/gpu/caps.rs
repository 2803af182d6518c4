//! What the kernels may use on a device: features and limits, negotiated with the adapter or masked to the baseline.

use wgpu::{Adapter, AdapterInfo, CooperativeMatrixProperties, CooperativeScalarType, Features, Limits};

/// What kernels and programs need to know of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    /// Subgroup operations, in compute shaders.
    pub subgroups: bool,
    /// Constants of a dispatch travel in the command buffer instead of a uniform buffer.
    pub immediates: bool,
    /// Devices that run kernels on the main processor, unless the options say otherwise: one thread per output, no
    /// barriers, small submissions.
    pub software: bool,
    /// A workgroup of eight threads is one subgroup, or part of one.
    pub subgroup8: bool,
    /// Timestamps around passes.
    pub timestamps: bool,
    /// Compiled pipelines can be kept.
    pub pipeline_cache: bool,
    /// Kernels may compute in F16.
    pub f16: bool,
    /// Cooperative matrices of F32: their rows, columns and depth.
    pub coop_f32: Option<u32>,
    /// Cooperative matrices of F16 that are summed in F32.
    pub coop_f16: Option<u32>,
    /// Threads of a subgroup, where all have as many.
    pub subgroup_size: Option<u32>,
    /// Largest storage binding in bytes, a multiple of 256.
    pub max_binding_bytes: u64,
    /// Largest buffer in bytes.
    pub max_buffer_bytes: u64,
    /// Most workgroups in one dimension.
    pub max_groups: u32,
    /// Offsets of storage bindings are multiples of this.
    pub storage_align: u64,
    /// Dynamic offsets of uniform bindings are multiples of this.
    pub uniform_align: u64,
}

/// Bytes of constants that each dispatch gets: 32 words.
pub(crate) const PARAM_BYTES: u32 = 128;

/// Steps of loops that a thread may make on a software device, with room for what the compiler adds.
pub(crate) const MAX_STEPS: usize = 30_000;

/// Cooperative matrices need this many threads in a subgroup at least, so that four have enough for a tile.
const COOP_SUBGROUPS: std::ops::RangeInclusive<u32> = 8..=64;

/// What is said of an adapter or a device without F16 arithmetic. Tensors and weights of F16 run all the same.
pub(crate) const WITHOUT_F16: &str = "no shader-f16: all kernels compute in F32";

/// The features to ask for, of those that the adapter has.
pub(super) fn features(adapter: Features, baseline: bool) -> Features {
    if baseline {
        return Features::empty();
    }
    let wanted = Features::SUBGROUP
        | Features::IMMEDIATES
        | Features::TIMESTAMP_QUERY
        | Features::PIPELINE_CACHE
        | Features::SHADER_F16
        | Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    adapter & wanted
}

/// The side of the largest square cooperative matrix of these elements that is summed in F32.
fn coop_side(all: &[CooperativeMatrixProperties], elements: CooperativeScalarType) -> Option<u32> {
    let sides = all.iter().filter_map(|c| {
        let square = c.m_size == c.n_size && c.n_size == c.k_size;
        (square && c.ab_type == elements && c.cr_type == CooperativeScalarType::F32).then_some(c.m_size)
    });
    sides.max()
}

/// The limits to ask for: the adapter's own, or those that WebGPU guarantees.
pub(super) fn limits(adapter: &Limits, features: Features, baseline: bool) -> Limits {
    if baseline {
        return Limits::default();
    }
    let mut limits = adapter.clone();
    if !features.contains(Features::IMMEDIATES) {
        limits.max_immediate_size = 0;
    }
    limits
}

impl Caps {
    /// What kernels may use where nothing is masked.
    pub(super) fn of_adapter(adapter: &Adapter) -> Caps {
        let features = features(adapter.features(), false);
        let limits = limits(&adapter.limits(), features, false);
        let coop = adapter.cooperative_matrix_properties();
        Caps::new(features, &limits, false, &adapter.get_info(), &coop)
    }

    /// Whether there are cooperative matrices of some elements.
    pub(super) fn has_coop(&self) -> bool {
        self.coop_f32.is_some() || self.coop_f16.is_some()
    }

    /// `coop` are the cooperative matrices of the adapter.
    pub(super) fn new(
        features: Features,
        limits: &Limits,
        software: bool,
        info: &AdapterInfo,
        coop: &[CooperativeMatrixProperties],
    ) -> Caps {
        let min_subgroup = info.subgroup_min_size;
        // Kernels have room for the sums of sixteen subgroups in a workgroup of 64.
        let subgroups = features.contains(Features::SUBGROUP) && min_subgroup >= 4;
        let subgroup_size = (subgroups && min_subgroup == info.subgroup_max_size).then_some(min_subgroup);
        let has_coop = features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
            && subgroup_size.is_some_and(|n| COOP_SUBGROUPS.contains(&n));
        let coop = if has_coop { coop } else { &[] };
        let f16 = features.contains(Features::SHADER_F16);
        Caps {
            coop_f32: coop_side(coop, CooperativeScalarType::F32),
            coop_f16: coop_side(coop, CooperativeScalarType::F16).filter(|_| f16),
            f16,
            subgroup_size,
            subgroups,
            subgroup8: subgroups && min_subgroup >= 8,
            immediates: features.contains(Features::IMMEDIATES) && limits.max_immediate_size >= PARAM_BYTES,
            software,
            timestamps: features.contains(Features::TIMESTAMP_QUERY),
            pipeline_cache: features.contains(Features::PIPELINE_CACHE),
            max_binding_bytes: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size) & !255,
            max_buffer_bytes: limits.max_buffer_size,
            max_groups: limits.max_compute_workgroups_per_dimension.max(1),
            storage_align: u64::from(limits.min_storage_buffer_offset_alignment).max(4),
            uniform_align: u64::from(limits.min_uniform_buffer_offset_alignment).max(4),
        }
    }

    /// Whether a thread should do a row of `n` steps alone. On software devices barriers cost more than they share,
    /// but llvmpipe ends the loops of a kernel after 65,535 steps in all, without a word.
    pub fn alone(&self, n: usize) -> bool {
        self.software && n <= MAX_STEPS
    }

    /// Arithmetic operations of one submission when nothing else is asked: well below a second on such a device.
    pub fn submit_ops(&self, kind: wgpu::DeviceType) -> u64 {
        match kind {
            wgpu::DeviceType::Cpu => 1_000_000_000,
            wgpu::DeviceType::DiscreteGpu => 400_000_000_000,
            _ => 50_000_000_000,
        }
    }
}
