// Rows of x in F16, each scaled by a power of two so that its largest element lies between 2^14 and 2^15: what was
// finite stays so, and nothing is rounded but to eleven bits. A workgroup has a row; eight elements make a vector of
// four words. Constants: 1 rows, 2 k, 3 chunks of eight.
#include prelude
#include pack_part
@group(0) @binding(1) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> unscale: array<f32>;

var<workgroup> parts: array<u32, 64>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_id(wid, nwg);
    if row >= p(1u) {
        return;
    }
    var found = 0u;
    for (var c = lane; c < p(3u); c += 64u) {
        found = max(found, max(largest(x4(row, 2u * c)), largest(x4(row, 2u * c + 1u))));
    }
    parts[lane] = found;
    workgroupBarrier();
    for (var i = 0u; i < 64u; i++) {
        found = max(found, parts[i]);
    }
    // Rows of zeros, and rows with infinities or NaN, stay as they are.
    let e = found >> 23u;
    let kept = found == 0u || e == 255u;
    let up = select(clamp(268u - e, 1u, 253u), 127u, kept);
    let s = bitcast<f32>(up << 23u);
    for (var c = lane; c < p(3u); c += 64u) {
        let a = x4(row, 2u * c) * s;
        let b = x4(row, 2u * c + 1u) * s;
        halves[row * p(3u) + c] =
            vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
    }
    if lane == 0u {
        unscale[row] = bitcast<f32>((254u - up) << 23u);
    }
}
