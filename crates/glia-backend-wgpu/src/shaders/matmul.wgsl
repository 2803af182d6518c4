// A product for few rows of x: a workgroup of 64 computes N columns for up to M rows, its threads share k.
#include prelude
#include matmul_part
#include weights
#include x8

const M = {{M}};
const N = {{N}};

#if SUBGROUPS
// Sums of up to sixteen subgroups: none has fewer than four threads.
const PARTS = 16u;
#else
const PARTS = 64u;
#endif

var<workgroup> parts: array<f32, PARTS * M * N>;

fn all_of(i: u32, n_parts: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < n_parts; j++) {
        sum += parts[i * PARTS + (i + j) % n_parts];
    }
    return sum;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
#if SUBGROUPS
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_invocation_id) sub_lane: u32,
#endif
) {
    let group = group_id(wid, nwg);
    let column = group % p(12u) * {{OUTS}};
    let first = group / p(12u) * M;
    if first >= p(1u) {
        return;
    }
    var sums = array<f32, M * N>();
    let last = p(1u) - 1u;
    let end = p(0u) - 1u;
    for (var c = lane; c < p(3u); c += 64u) {
        var u: array<W8, M>;
#for I M
        u[{{I}}] = x8(min(first + {{I}}, last), c);
#endfor
#for J N
        {
            let v = load8(place(column, 1u, {{J}}), c);
#for I M
            sums[{{J}} * M + {{I}}] += dot(u[{{I}}].a, v.a) + dot(u[{{I}}].b, v.b);
#endfor
        }
#endfor
    }
#if SUBGROUPS
#for J N
#for I M
    {
        let sum = subgroupAdd(sums[{{J}} * M + {{I}}]);
        if sub_lane == 0u {
            parts[({{J}} * M + {{I}}) * PARTS + subgroup] = sum;
        }
    }
#endfor
#endfor
    let n_parts = n_subgroups;
#else
#for J N
#for I M
    parts[({{J}} * M + {{I}}) * PARTS + lane] = sums[{{J}} * M + {{I}}];
#endfor
#endfor
    let n_parts = 64u;
#endif
    workgroupBarrier();
    // One thread per result adds what the others have found.
    if lane < M * {{OUTS}} {
        let m = first + lane % M;
        let n = column + lane / M;
        if m <= last && n <= end {
#if GATED
            put_gated(m, n, all_of(lane, n_parts), all_of(lane + M * {{OUTS}}, n_parts));
#else
            put(m, n, all_of(lane, n_parts));
#endif
        }
    }
}
