// y = x Wᵀ (+ bias), for few rows of x. Alone: a thread computes one column for up to M rows. Together: a workgroup of
// 64 computes N columns for up to M rows, its threads share k.
// Constants: 0 columns of this part, 1 rows of x, 2 k, 3 chunks of eight, 4 first column, 5..7 widths of the outputs,
// 8..11 of the weights, 12 column groups, 13 rows of x in a batch, 14 columns in a batch.
#include prelude
@group(0) @binding(0) var<storage, read> w: array<u32>;
#if X4
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(1) var<storage, read> x: array<f32>;
#endif
@group(0) @binding(2) var<storage, read> bias: array<f32>;
#if RESIDUAL
@group(0) @binding(3) var<storage, read> residual: array<f32>;
@group(0) @binding(4) var<storage, read_write> y0: array<f32>;
#else
@group(0) @binding(3) var<storage, read_write> y0: array<f32>;
#if OUT2
@group(0) @binding(4) var<storage, read_write> y1: array<f32>;
#endif
#if OUT3
@group(0) @binding(5) var<storage, read_write> y2: array<f32>;
#endif
#endif

#include weights

const M = {{M}};

#if X4
fn x8(row: u32, c: u32) -> W8 {
    let at = row * (p(2u) / 4u) + c * 2u;
    return W8(x[at], x[at + 1u]);
}
#else
fn x1(row: u32, i: u32) -> f32 {
    let k = p(2u);
    return select(0.0, x[row * k + min(i, k - 1u)], i < k);
}

fn x8(row: u32, c: u32) -> W8 {
    let i = c * 8u;
    return W8(
        vec4<f32>(x1(row, i), x1(row, i + 1u), x1(row, i + 2u), x1(row, i + 3u)),
        vec4<f32>(x1(row, i + 4u), x1(row, i + 5u), x1(row, i + 6u), x1(row, i + 7u)),
    );
}
#endif

fn put(row: u32, column: u32, sum: f32) {
    var v = sum;
    let j = column + p(4u);
#if BIAS
    v += bias[j];
#endif
#if RESIDUAL
    v += residual[row * p(5u) + j];
#endif
#if OUT2
    if j >= p(5u) {
        let j1 = j - p(5u);
#if OUT3
        if j1 >= p(6u) {
            y2[row * p(7u) + j1 - p(6u)] = v;
            return;
        }
#endif
        y1[row * p(6u) + j1] = v;
        return;
    }
#endif
    y0[row * p(5u) + j] = v;
}

#if ALONE
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = group_id(wid, nwg);
    let column = group % p(12u) * 64u + lane;
    let first = group / p(12u) * M;
    if column >= p(0u) || first >= p(1u) {
        return;
    }
    var sums = array<f32, M>();
    let last = p(1u) - 1u;
    for (var c = 0u; c < p(3u); c++) {
        let v = load8(column, c);
        for (var m = 0u; m < M; m++) {
            let u = x8(min(first + m, last), c);
            sums[m] += dot(u.a, v.a) + dot(u.b, v.b);
        }
    }
    for (var m = 0u; m < M; m++) {
        if first + m <= last {
            put(first + m, column, sums[m]);
        }
    }
}
#else
const N = {{N}};

var<workgroup> parts: array<f32, 64u * M * N>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = group_id(wid, nwg);
    let column = group % p(12u) * N;
    let first = group / p(12u) * M;
    if first >= p(1u) {
        return;
    }
    var sums = array<f32, M * N>();
    let last = p(1u) - 1u;
    let end = p(0u) - 1u;
    for (var c = lane; c < p(3u); c += 64u) {
        var u = array<W8, M>();
        for (var m = 0u; m < M; m++) {
            u[m] = x8(min(first + m, last), c);
        }
        for (var n = 0u; n < N; n++) {
            let v = load8(min(column + n, end), c);
            for (var m = 0u; m < M; m++) {
                sums[n * M + m] += dot(u[m].a, v.a) + dot(u[m].b, v.b);
            }
        }
    }
    for (var i = 0u; i < M * N; i++) {
        parts[i * 64u + lane] = sums[i];
    }
    workgroupBarrier();
    // One thread per sum adds what 64 have found, in their order.
    if lane < M * N {
        var sum = 0.0;
        for (var i = 0u; i < 64u; i++) {
            sum += parts[lane * 64u + (i + lane) % 64u];
        }
        let m = first + lane % M;
        let n = column + lane / M;
        if m <= last && n <= end {
            put(m, n, sum);
        }
    }
}
#endif
