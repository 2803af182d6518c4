// Gated unit: function of the gate times up. Constants: 0 elements.
#include prelude
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

#include functions

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg) * 64u + lane;
    if i < p(0u) {
        y[i] = {{FN}}(gate[i]) * up[i];
    }
}
