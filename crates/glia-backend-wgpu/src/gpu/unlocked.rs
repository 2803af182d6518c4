//! The calls that wgpu marks unsafe, and nothing else: a pipeline cache from bytes, and features that it calls
//! experimental.
#![allow(unsafe_code)]

/// A pipeline cache that begins with `data`, which an earlier cache of the same adapter and driver has given.
///
/// The caller keeps such bytes under the key of wgpu's `pipeline_cache_key` with a checksum and passes none that fail it.
pub(super) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor {
        label: Some("glia"),
        data,
        fallback: true,
    };
    // SAFETY: `data` came from `PipelineCache::get_data` of this adapter key, as its file name and checksum say; wgpu
    // and the driver check their own headers, and `fallback` starts empty where they do not match.
    unsafe { device.create_pipeline_cache(&descriptor) }
}

/// Leave to use features that wgpu calls experimental. The one that the backend asks for is cooperative matrices.
pub(super) fn experimental() -> wgpu::ExperimentalFeatures {
    // SAFETY: what the token acknowledges is that such features may have faults that reach undefined behaviour. The
    // kernel that uses cooperative matrices loads and stores them in workgroup memory at places that its text fixes,
    // within arrays whose sizes the same text fixes; each of its variants is validated by naga in a unit test.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
