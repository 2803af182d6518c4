// Rows of x as signed bytes, 32 to a scale: the largest becomes 127. A thread has a block. For weights of four bits, the
// bytes of eight elements lie as their codes come apart: even ones, then odd ones. Beside each block its scale, and the
// sum of its bytes times the scale. Constants: 1 rows, 2 k, 3 blocks of 32 per row.
#include prelude
#include pack_part
@group(0) @binding(1) var<storage, read_write> codes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> scales: array<vec2<f32>>;

@compute @workgroup_size({{THREADS}})
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg) * {{THREADS}} + lane;
    let row = i / p(3u);
    let b = i % p(3u);
    if row >= p(1u) {
        return;
    }
    var v: array<vec4<f32>, 8>;
    var found = 0u;
#for H EIGHT
    v[{{H}}] = x4(row, 8u * b + {{H}});
    found = max(found, largest(v[{{H}}]));
#endfor
    let top = bitcast<f32>(found);
    // Blocks of zeros have no scale; infinities and NaN make all of a block NaN.
    let usual = found < 0x7f800000u;
    let d = select(bitcast<f32>(0x7fc00000u), top / 127.0, usual);
    let inverse = select(0.0, 127.0 / top, usual && top > 1e-36);
    var sum = vec4<i32>();
    var q: array<vec4<i32>, 8>;
#for H EIGHT
    q[{{H}}] = vec4<i32>(round(v[{{H}}] * inverse));
    sum += q[{{H}}];
#endfor
#for H TWO
    {
        var words: vec4<u32>;
#for J TWO
        {
            let low = q[4u * {{H}} + 2u * {{J}}];
            let high = q[4u * {{H}} + 2u * {{J}} + 1u];
#if APART
            words[2u * {{J}}] = pack4xI8(vec4<i32>(low.x, low.z, high.x, high.z));
            words[2u * {{J}} + 1u] = pack4xI8(vec4<i32>(low.y, low.w, high.y, high.w));
#else
            words[2u * {{J}}] = pack4xI8(low);
            words[2u * {{J}} + 1u] = pack4xI8(high);
#endif
        }
#endfor
        codes[2u * i + {{H}}] = words;
    }
#endfor
    scales[i] = vec2<f32>(d, d * f32(sum.x + sum.y + sum.z + sum.w));
}
