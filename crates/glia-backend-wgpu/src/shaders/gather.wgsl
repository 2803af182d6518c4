// Elements of an axis by index. Constants: 0 elements, 1 indices, 2 inner elements, 3 size of the axis.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> picked: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg) * 64u + lane;
    if i >= p(0u) {
        return;
    }
    let inner = i % p(2u);
    let m = i / p(2u) % p(1u);
    let outer = i / p(2u) / p(1u);
    // The host has checked indices that it gave; those made on the device cannot leave the axis either.
    let at = min(u32(max(picked[m], 0)), p(3u) - 1u);
    y[i] = x[(outer * p(3u) + at) * p(2u) + inner];
}
