// A function of each element. Constants: 0 elements, 1 and 2 of the function.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

#include functions

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg) * 64u + lane;
    if i < p(0u) {
        y[i] = {{FN}}(x[i]);
    }
}
