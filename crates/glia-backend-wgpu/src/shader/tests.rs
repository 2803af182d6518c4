//! Every kernel that the conformance suite has the backend ask for is valid WGSL, with all features and masked to the
//! baseline, and its text is under snapshots.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use glia_core::{
    Backend, BackendError, CompileOptions, NodeView, Op, Precision, Program, Segment, Tensor, ValueType, conformance,
};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use super::{Access, Def, KernelKey, Source};
use crate::backend::{Inputs, segment_of};
use crate::gpu::Caps;
use crate::{ByteDots, Kernels, WgpuBackend, WgpuOptions};

/// Compiles what it is given and computes nothing, so that every case is given up once its kernels are known.
struct Asked(Arc<WgpuBackend>, Precision);

impl Backend for Asked {
    fn name(&self) -> &str {
        "asked"
    }

    fn supports(&self, op: &Op) -> bool {
        self.0.supports(op)
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        self.0.supports_node(node)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let types: Vec<ValueType> = inputs.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect();
        if !op.is_stateful() {
            let inputs: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
            let consts = Inputs(&inputs);
            let options = CompileOptions::new(&consts, self.1);
            self.0.compile(&segment_of(op, &types)?, &options)?;
        }
        Err(only_asked())
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let mut options = *options;
        options.precision = self.1;
        self.0.compile(segment, &options)?;
        Err(only_asked())
    }
}

fn only_asked() -> BackendError {
    BackendError::Other("nothing is computed".into())
}

/// A kernel by its name: the file, and the definitions that hold.
fn name(key: &KernelKey) -> String {
    let mut name = key.source.name().to_owned();
    for (def, value) in &key.defs {
        match value {
            Def::Flag(false) => {}
            Def::Flag(true) => write!(name, " {def}").unwrap(),
            // Numbers that are what they are called.
            Def::Int(_) if ["TWO", "FOUR", "EIGHT"].contains(def) => {}
            Def::Int(n) => write!(name, " {def}={n}").unwrap(),
            Def::Text(text) => write!(name, " {def}={text}").unwrap(),
        }
    }
    name
}

/// Cooperative matrices that adapters have: their side in F32 and in F16, and the threads of a subgroup.
const COOP: [(Option<u32>, Option<u32>, u32); 3] = [(Some(8), Some(8), 32), (None, Some(16), 32), (Some(16), None, 8)];

fn kernels() -> BTreeMap<String, KernelKey> {
    let mut all = BTreeMap::new();
    let mut collect = |gpu: WgpuBackend, precision| {
        let gpu = Arc::new(gpu);
        let stub = KernelKey::new(Source::Unary, &[Access::Read, Access::Write]).text("FN", "silu");
        gpu.gpu().note_kernels(&stub).unwrap();
        let asked: Arc<dyn Backend> = Arc::new(Asked(gpu.clone(), precision));
        let _ = conformance::run(&asked, &conformance::Options::default());
        all.extend(gpu.gpu().kernel_keys().into_iter().map(|key| (name(&key), key)));
    };
    let options = |kernels| WgpuOptions::default().with_kernels(kernels);
    for kernels in [Kernels::Auto, Kernels::Together] {
        collect(WgpuBackend::new(options(kernels)).unwrap(), Precision::Exact);
        let dots = options(kernels).with_byte_dots(ByteDots::Always);
        collect(WgpuBackend::new(dots).unwrap(), Precision::Fast);
    }
    for (f32, f16, subgroup) in COOP {
        let change = |caps: &mut Caps| {
            (caps.coop_f32, caps.coop_f16, caps.subgroup_size) = (f32, f16, Some(subgroup));
        };
        for precision in [Precision::Exact, Precision::Fast] {
            collect(
                WgpuBackend::altered(options(Kernels::Together), change).unwrap(),
                precision,
            );
        }
    }
    all
}

fn flag(key: &KernelKey, name: &str) -> bool {
    key.defs.contains(&(name, Def::Flag(true)))
}

/// Parses and validates a kernel for a device with these features.
fn check(name: &str, key: &KernelKey, text: &str, subgroups: bool, immediates: bool) {
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(text)));
    // Packing to F16 and back belongs to the baseline.
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SUBGROUP, subgroups);
    capabilities.set(Capabilities::IMMEDIATES, immediates);
    capabilities.set(Capabilities::COOPERATIVE_MATRIX, key.source == Source::MatMulCoop);
    capabilities.set(Capabilities::SHADER_FLOAT16, flag(key, "MUL16"));
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    if subgroups {
        validator
            .subgroup_stages(ShaderStages::COMPUTE)
            .subgroup_operations(SubgroupOperationSet::all());
    }
    validator
        .validate(&module)
        .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(text)));
    // What WebGPU guarantees: 256 threads, 16 KiB of workgroup memory, 8 storage buffers.
    for entry in &module.entry_points {
        assert!(entry.workgroup_size.iter().product::<u32>() <= 256, "{name}");
    }
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).unwrap();
    let (mut shared, mut bindings) = (0, 0);
    for (_, variable) in module.global_variables.iter() {
        match variable.space {
            naga::AddressSpace::WorkGroup => shared += layouter[variable.ty].to_stride(),
            naga::AddressSpace::Storage { .. } => bindings += 1,
            _ => {}
        }
    }
    assert!(shared <= 16_384, "{name} has {shared} bytes of workgroup memory");
    assert!(bindings <= 8, "{name} binds {bindings} buffers");
}

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
fn hash(text: &str) -> u64 {
    let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[test]
fn every_kernel_is_valid_and_its_text_is_as_it_was() {
    let kernels = kernels();
    let mut list = String::new();
    for (name, key) in &kernels {
        let mut hashes = Vec::new();
        for (subgroups, immediates) in [(true, true), (false, true), (false, false)] {
            if (flag(key, "BROADCAST") || key.source == Source::MatMulCoop) && !subgroups {
                continue;
            }
            let text = key.wgsl(subgroups, immediates).unwrap();
            check(name, key, &text, subgroups, immediates);
            hashes.push(format!("{:016x}", hash(&text)));
        }
        writeln!(list, "{name}: {}", hashes.join(" ")).unwrap();
    }
    insta::assert_snapshot!("kernels", list);
    for source in Source::ALL {
        let first = kernels.iter().find(|(_, key)| key.source == *source);
        let (name, key) = first.unwrap_or_else(|| panic!("no case asks for `{}`", source.name()));
        let text = key.wgsl(true, true).unwrap();
        insta::assert_snapshot!(source.name(), format!("// {name}\n{text}"));
    }
}
