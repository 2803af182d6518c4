//! Which adapters there are, in the order in which the backend prefers them.

use std::fmt;

use glia_core::BackendError;
use wgpu::{Adapter, AdapterInfo, Backends, DeviceType, Instance, InstanceDescriptor};

use super::{AdapterChoice, Caps, WITHOUT_F16};

/// An adapter of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterEntry {
    /// Name as the driver gives it.
    pub name: String,
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub kind: &'static str,
    /// `vulkan`, `metal` or `dx12`.
    pub api: String,
    /// Driver and its version.
    pub driver: String,
    /// Largest storage binding in bytes.
    pub max_binding_bytes: u64,
    /// Whether kernels may use subgroup operations.
    pub subgroups: bool,
    /// Whether kernels may multiply by cooperative matrices, where a device is not held to the baseline.
    pub cooperative_matrices: bool,
    /// Whether kernels may compute in F16, where a device is not held to the baseline. Weights and caches of F16 are read
    /// without it, too.
    pub shader_f16: bool,
}

impl AdapterEntry {
    /// What it lacks and what is done instead, for people: a line of `glia devices`.
    ///
    /// ```
    /// for adapter in glia_backend_wgpu::adapters() {
    ///     assert_eq!(adapter.remark().is_some(), !adapter.shader_f16);
    /// }
    /// ```
    pub fn remark(&self) -> Option<&'static str> {
        (!self.shader_f16).then_some(WITHOUT_F16)
    }
}

impl fmt::Display for AdapterEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}", self.name, self.kind, self.api)?;
        if !self.driver.is_empty() {
            write!(f, ", {}", self.driver)?;
        }
        f.write_str(")")
    }
}

/// The adapters of this machine: discrete before integrated before virtual before software, else in the order of the
/// drivers. The index of one in this list chooses it.
pub fn adapters() -> Vec<AdapterEntry> {
    ordered(&instance()).iter().map(entry).collect()
}

pub(super) fn instance() -> Instance {
    let mut descriptor = InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    // Validation layers are for wgpu's own developers; wgpu checks every call by itself.
    descriptor.flags = wgpu::InstanceFlags::empty();
    Instance::new(descriptor)
}

fn ordered(instance: &Instance) -> Vec<Adapter> {
    let mut all = pollster::block_on(instance.enumerate_adapters(Backends::all()));
    all.retain(|adapter| {
        let compute = wgpu::DownlevelFlags::COMPUTE_SHADERS;
        adapter.get_downlevel_capabilities().flags.contains(compute)
    });
    all.sort_by_key(|adapter| rank(adapter.get_info().device_type));
    all
}

fn rank(kind: DeviceType) -> u8 {
    match kind {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    }
}

pub(super) fn entry(adapter: &Adapter) -> AdapterEntry {
    let (info, limits): (AdapterInfo, _) = (adapter.get_info(), adapter.limits());
    AdapterEntry {
        kind: match info.device_type {
            DeviceType::DiscreteGpu => "discrete",
            DeviceType::IntegratedGpu => "integrated",
            DeviceType::VirtualGpu => "virtual",
            DeviceType::Cpu => "software",
            DeviceType::Other => "other",
        },
        api: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        subgroups: adapter.features().contains(wgpu::Features::SUBGROUP),
        shader_f16: adapter.features().contains(wgpu::Features::SHADER_F16),
        cooperative_matrices: Caps::of_adapter(adapter).has_coop(),
        name: info.name,
    }
}

pub(super) fn choose(instance: &Instance, choice: &AdapterChoice) -> Result<Adapter, BackendError> {
    let mut all = ordered(instance);
    let names: Vec<String> = all.iter().map(|a| entry(a).to_string()).collect();
    let found = match choice {
        AdapterChoice::Best => (!all.is_empty()).then_some(0),
        AdapterChoice::Index(index) => (*index < all.len()).then_some(*index),
        AdapterChoice::Name(name) => {
            let wanted = name.to_lowercase();
            names.iter().position(|n| n.to_lowercase().contains(&wanted))
        }
    };
    let list = if names.is_empty() {
        "this machine has none: install a Vulkan driver (for software rendering, Mesa's lavapipe), or look at what \
         VK_DRIVER_FILES and VK_LOADER_DEBUG=error say of the one that is configured; `cpu` needs none"
            .to_owned()
    } else {
        let lines = names.iter().enumerate().map(|(i, n)| format!("wgpu:{i} is {n}"));
        format!(
            "choose by index or by a part of the name: {}",
            lines.collect::<Vec<_>>().join("; ")
        )
    };
    let wanted = match choice {
        AdapterChoice::Best => "no adapter".to_owned(),
        AdapterChoice::Index(index) => format!("no adapter {index}"),
        AdapterChoice::Name(name) => format!("no adapter whose name holds `{}`", shortened(name)),
    };
    let none = || BackendError::InvalidInput {
        op: "wgpu".to_owned(),
        reason: format!("{wanted}; {list}"),
    };
    found.map(|i| all.swap_remove(i)).ok_or_else(none)
}

/// A text of the caller's, for a message.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
