// A product for many rows of x: a workgroup of 128 computes 64 columns for 8 * RUN rows, a thread 4 columns for RUN
// rows. Sixteen elements of k at a time are decoded once into workgroup memory, four side by side in a vector; rows lie
// five vectors apart, so that neighbours meet no bank twice.
#include prelude
#include matmul_part
#include weights
#include x8

const RUN = {{RUN}};
const ROWS = 8u * RUN;
const STRIDE = 5u;

var<workgroup> xs: array<vec4<f32>, ROWS * STRIDE>;
var<workgroup> ws: array<vec4<f32>, 64u * STRIDE>;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = group_id(wid, nwg);
    let column = group % p(12u) * (16u * {{OUTS}});
    let first = group / p(12u) * ROWS;
    if first >= p(1u) {
        return;
    }
    let last = p(1u) - 1u;
    let end = p(0u) - 1u;
    let tx = lane % 16u;
    let ty = lane / 16u;
    var acc: array<f32, 4u * RUN>;
#for I RUN
#for J FOUR
    acc[{{I}} * 4u + {{J}}] = 0.0;
#endfor
#endfor
    for (var c = 0u; c < p(3u); c += 2u) {
        let side = lane / 64u;
        let own = lane % 64u;
        var v = W8(vec4<f32>(), vec4<f32>());
        if c + side < p(3u) {
            v = load8(place(column + own % 16u, 16u, own / 16u), c + side);
        }
        ws[own * STRIDE + 2u * side] = v.a;
        ws[own * STRIDE + 2u * side + 1u] = v.b;
        if lane < 2u * ROWS {
            let row = lane % ROWS;
            let half = lane / ROWS;
            var u = W8(vec4<f32>(), vec4<f32>());
            if c + half < p(3u) {
                u = x8(min(first + row, last), c + half);
            }
            xs[row * STRIDE + 2u * half] = u.a;
            xs[row * STRIDE + 2u * half + 1u] = u.b;
        }
        workgroupBarrier();
#for Q FOUR
        {
            let w0 = ws[tx * STRIDE + {{Q}}];
            let w1 = ws[(tx + 16u) * STRIDE + {{Q}}];
            let w2 = ws[(tx + 32u) * STRIDE + {{Q}}];
            let w3 = ws[(tx + 48u) * STRIDE + {{Q}}];
#for I RUN
            {
                let u = xs[(ty + 8u * {{I}}) * STRIDE + {{Q}}];
                acc[{{I}} * 4u] += dot(u, w0);
                acc[{{I}} * 4u + 1u] += dot(u, w1);
                acc[{{I}} * 4u + 2u] += dot(u, w2);
                acc[{{I}} * 4u + 3u] += dot(u, w3);
            }
#endfor
        }
#endfor
        workgroupBarrier();
    }
#for I RUN
#for J OUTS
    if first + ty + 8u * {{I}} <= last && column + tx + 16u * {{J}} <= end {
        let sum = acc[{{I}} * 4u + {{J}}];
#if GATED
        put_gated(first + ty + 8u * {{I}}, column + tx + 16u * {{J}}, sum, acc[{{I}} * 4u + {{J}} + {{OUTS}}]);
#else
        put(first + ty + 8u * {{I}}, column + tx + 16u * {{J}}, sum);
#endif
    }
#endfor
#endfor
}
