// A product for many rows of x by cooperative matrices of SIDE x SIDE: a workgroup of four subgroups computes 64 columns
// for 2 * SIDE * DOWN rows, a subgroup a quarter of them. DEPTH elements of k at a time lie in workgroup memory, eight
// elements more between rows, so that neighbours meet no bank twice. In F16, x comes as rows that were scaled by a power
// of two each, and sums are scaled back.
#if MUL16
enable f16;
#endif
enable wgpu_cooperative_matrix;
#include prelude
#include matmul_part
#include weights
#if !MUL16
#include x8
#endif

const SIDE = {{SIDE}};
const DEPTH = {{DEPTH}};
const STRIDE = DEPTH + 8u;
const ROWS = 2u * SIDE * {{DOWN}};
const THREADS = {{THREADS}};

var<workgroup> xs: array<{{T}}, ROWS * STRIDE>;
var<workgroup> ws: array<{{T}}, 64u * STRIDE>;
var<workgroup> sums: array<f32, 4u * SIDE * SIDE>;

// Takes the scale of a row back.
fn back(row: u32) -> f32 {
#if MUL16
    return unscale[row];
#else
    return 1.0;
#endif
}

@compute @workgroup_size({{THREADS}})
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) sub_lane: u32,
    @builtin(subgroup_size) sub_size: u32,
) {
    let group = group_id(wid, nwg);
    let column = group % p(12u) * (32u * {{OUTS}});
    let first = group / p(12u) * ROWS;
    // A workgroup too many has no k: none may leave, since all must multiply together.
    let n_chunks = select(p(3u), 0u, first >= p(1u));
    let last = p(1u) - 1u;
    let end = p(0u) - 1u;
    let down = subgroup / 2u * SIDE * {{DOWN}};
    let right = subgroup % 2u * 32u;
#for I DOWN
#for J RIGHT
    var c_{{I}}_{{J}} = {{C}}();
#endfor
#endfor
    for (var c = 0u; c < n_chunks; c += DEPTH / 8u) {
        for (var i = lane; i < 64u * DEPTH / 8u; i += THREADS) {
            let own = i % 64u;
            let chunk = i / 64u;
            var v = W8(vec4<f32>(), vec4<f32>());
            if c + chunk < p(3u) {
                v = load8(place(column + own % 32u, 32u, own / 32u), c + chunk);
            }
            let at = own * STRIDE + 8u * chunk;
#for Q FOUR
            ws[at + {{Q}}] = {{T}}(v.a[{{Q}}]);
            ws[at + 4u + {{Q}}] = {{T}}(v.b[{{Q}}]);
#endfor
        }
        for (var i = lane; i < ROWS * DEPTH / 8u; i += THREADS) {
            let own = i / (DEPTH / 8u);
            let chunk = i % (DEPTH / 8u);
            let row = min(first + own, last);
            let at = own * STRIDE + 8u * chunk;
#if MUL16
            var low = vec4<f16>();
            var high = vec4<f16>();
            if c + chunk < p(3u) {
                let pair = 2u * (row * p(3u) + c + chunk);
                low = halves[pair];
                high = halves[pair + 1u];
            }
#for Q FOUR
            xs[at + {{Q}}] = low[{{Q}}];
            xs[at + 4u + {{Q}}] = high[{{Q}}];
#endfor
#else
            var u = W8(vec4<f32>(), vec4<f32>());
            if c + chunk < p(3u) {
                u = x8(row, c + chunk);
            }
#for Q FOUR
            xs[at + {{Q}}] = u.a[{{Q}}];
            xs[at + 4u + {{Q}}] = u.b[{{Q}}];
#endfor
#endif
        }
        workgroupBarrier();
#for K STEPS
        {
#for J RIGHT
            let b_{{J}} = coopLoad<{{B}}>(&ws[(right + {{J}} * SIDE) * STRIDE + {{K}} * SIDE], STRIDE);
#endfor
#for I DOWN
            {
                let a = coopLoadT<{{A}}>(&xs[(down + {{I}} * SIDE) * STRIDE + {{K}} * SIDE], STRIDE);
#for J RIGHT
                c_{{I}}_{{J}} = coopMultiplyAdd(a, b_{{J}}, c_{{I}}_{{J}});
#endfor
            }
#endfor
        }
#endfor
        workgroupBarrier();
    }
    // Each subgroup lays one of its results after the other out as elements.
    let base = subgroup * SIDE * SIDE;
#for I DOWN
#for J RIGHT
    coopStoreT(c_{{I}}_{{J}}, &sums[base], SIDE);
    workgroupBarrier();
    for (var i = sub_lane; i < SIDE * SIDE; i += sub_size) {
        let row = first + down + {{I}} * SIDE + i / SIDE;
        let n = column + right + {{J}} * SIDE + i % SIDE;
#if GATED
        // The second of two subgroups has what the first gates.
        if right == 0u && row <= last && n <= end {
            put_gated(row, n, sums[base + i] * back(row), sums[base + SIDE * SIDE + i] * back(row));
        }
#else
        if row <= last && n <= end {
            put(row, n, sums[base + i] * back(row));
        }
#endif
    }
    workgroupBarrier();
#endfor
#endfor
}
