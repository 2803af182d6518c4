// A product on devices where a load costs more than the arithmetic on it and barriers cost most: a workgroup is one
// vector of eight threads, each with N columns and M rows of its own. A block of 32 weights is decoded once for all
// rows; x is loaded once for all threads and broadcast where subgroups are as wide.
#include prelude
#include matmul_part
#include weights32

const M = {{M}};
const N = {{N}};

struct X32 {
    v: array<vec4<f32>, 8>,
}

#include x4

#if BROADCAST
fn x32(row: u32, b: u32, lane: u32) -> X32 {
    let own = x4(row, b * 8u + lane);
    var u: X32;
#for H EIGHT
    u.v[{{H}}] = subgroupBroadcast(own, {{H}});
#endfor
    return u;
}
#else
fn x32(row: u32, b: u32, lane: u32) -> X32 {
    var u: X32;
#for H EIGHT
    u.v[{{H}}] = x4(row, b * 8u + {{H}});
#endfor
    return u;
}
#endif

fn total(v: vec4<f32>) -> f32 {
    return v.x + v.y + v.z + v.w;
}

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // No thread leaves early: all are asked for their share of x.
    let group = group_id(wid, nwg);
    let column = group % p(12u) * (8u * {{OUTS}}) + lane;
    let first = group / p(12u) * M;
    let last = p(1u) - 1u;
    let end = p(0u) - 1u;
    var sums: array<f32, M * N>;
#for S SUMS
    sums[{{S}}] = 0.0;
#endfor
    for (var b = 0u; b < p(13u); b++) {
        var block: array<W32, N>;
#for J N
        block[{{J}}] = load32(place(column, 8u, {{J}}), b);
#endfor
#for I M
        {
            let u = x32(min(first + {{I}}, last), b, lane);
#if MINS
            let low = total(u.v[0] + u.v[1] + u.v[2] + u.v[3]);
            let high = total(u.v[4] + u.v[5] + u.v[6] + u.v[7]);
#endif
#for J N
            {
                let v = block[{{J}}].v;
                let s = block[{{J}}].s;
                var a = v[0] * u.v[0];
                a = fma(v[1], u.v[1], a);
                a = fma(v[2], u.v[2], a);
                a = fma(v[3], u.v[3], a);
#if HALVES
                var c = v[4] * u.v[4];
                c = fma(v[5], u.v[5], c);
                c = fma(v[6], u.v[6], c);
                c = fma(v[7], u.v[7], c);
                sums[{{J}} * M + {{I}}] += total(a) * s.x + total(c) * s.z;
#else
                a = fma(v[4], u.v[4], a);
                a = fma(v[5], u.v[5], a);
                a = fma(v[6], u.v[6], a);
                a = fma(v[7], u.v[7], a);
#if PLAIN
                sums[{{J}} * M + {{I}}] += total(a);
#else
                sums[{{J}} * M + {{I}}] += total(a) * s.x;
#endif
#endif
#if MINS
                sums[{{J}} * M + {{I}}] -= low * s.y + high * s.w;
#endif
            }
#endfor
        }
#endfor
    }
#include put_alone
}
