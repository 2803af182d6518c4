// A product for few rows of x in signed bytes: dots of a block of 32 are whole numbers, scaled by the block of the weights
// and that of x. Alone, a workgroup is one vector of eight threads with N columns each; else sixteen threads share k for
// N columns and a workgroup has four such groups.
#include prelude
#include matmul_part
#include scales

const M = {{M}};
const N = {{N}};

// Codes of a block of weights as signed bytes, in the order of those of x.
struct Codes {
    low: vec4<u32>,
    high: vec4<u32>,
}

fn codes_of(row: u32, b: u32) -> Codes {
#if LOW8
    let at = row * (p(8u) / 4u) + 2u * b;
    return Codes(w[at], w[at + 1u]);
#else
    let x = w[row * (p(8u) / 4u) + b];
    let even = x & vec4<u32>(0x0f0f0f0fu);
    let odd = (x >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    return Codes(vec4<u32>(even.x, odd.x, even.y, odd.y), vec4<u32>(even.z, odd.z, even.w, odd.w));
#endif
}

fn dots(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

// The share of a block: `d` are scale and sum of that of x.
fn share(c: Codes, s: vec4<f32>, low: vec4<u32>, high: vec4<u32>, d: vec2<f32>) -> f32 {
    let dot = f32(dots(c.low, low) + dots(c.high, high)) * d.x;
#if LOW8
    return dot * s.x;
#else
    return (dot - f32({{OFFSET}}) * d.y) * s.x - d.y * s.y;
#endif
}

#if !ALONE
var<workgroup> parts: array<f32, 64u * M * N>;

// Sum `i` of the sixteen threads around this one.
fn all_of(i: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < 16u; j++) {
        sum += parts[i * 64u + (lane & 48u) + j];
    }
    return sum;
}
#endif

#if ALONE
@compute @workgroup_size(8)
#else
@compute @workgroup_size(64)
#endif
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = group_id(wid, nwg);
    let first = group / p(12u) * M;
    let last = p(1u) - 1u;
    let end = p(0u) - 1u;
    let n_blocks = p(13u);
#if ALONE
    let column = group % p(12u) * (8u * {{OUTS}}) + lane;
    let step = 8u;
    let begin = 0u;
    let stride = 1u;
#else
    let column = group % p(12u) * (4u * {{OUTS}}) + lane / 16u * {{OUTS}};
    let step = 1u;
    let begin = lane % 16u;
    let stride = 16u;
#endif
    var sums: array<f32, M * N>;
#for S SUMS
    sums[{{S}}] = 0.0;
#endfor
    for (var b = begin; b < n_blocks; b += stride) {
        var c: array<Codes, N>;
        var s: array<vec4<f32>, N>;
#for J N
        c[{{J}}] = codes_of(place(column, step, {{J}}), b);
        s[{{J}}] = scales(place(column, step, {{J}}), b);
#endfor
#for I M
        {
            let at = min(first + {{I}}, last) * n_blocks + b;
#if BROADCAST
            let own = xq[8u * at + lane];
            let low = vec4<u32>(
                subgroupBroadcast(own, 0u), subgroupBroadcast(own, 1u),
                subgroupBroadcast(own, 2u), subgroupBroadcast(own, 3u),
            );
            let high = vec4<u32>(
                subgroupBroadcast(own, 4u), subgroupBroadcast(own, 5u),
                subgroupBroadcast(own, 6u), subgroupBroadcast(own, 7u),
            );
#else
            let low = xq[2u * at];
            let high = xq[2u * at + 1u];
#endif
            let d = xd[at];
#for J N
            sums[{{J}} * M + {{I}}] += share(c[{{J}}], s[{{J}}], low, high, d);
#endfor
        }
#endfor
    }
#if ALONE
#include put_alone
#else
#for S SUMS
    parts[{{S}} * 64u + lane] = sums[{{S}}];
#endfor
    workgroupBarrier();
    // A thread per result of its sixteen adds what they have found.
    for (var i = lane % 16u; i < M * {{OUTS}}; i += 16u) {
        let m = first + i % M;
        let n = column + i / M;
        if m <= last && n <= end {
#if GATED
            put_gated(m, n, all_of(i, lane), all_of(i + M * {{OUTS}}, lane));
#else
            put(m, n, all_of(i, lane));
#endif
        }
    }
#endif
}
