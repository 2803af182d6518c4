// What every product with weights binds, and where a result goes: y = x Wᵀ (+ bias) (+ residual), the columns of up to
// three outputs side by side; or, gated, a function of the one half of the columns times the other. A thread then has as
// many of the second half as of the first. Constants: 0 columns of this part, or of half of it, 1 rows of x, 2 k, 3 chunks of eight, 4 first column,
// 5..7 widths of the outputs, 8..11 of the weights, 12 column groups, 13 blocks of 32.
#if VEC4
@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
#else
@group(0) @binding(0) var<storage, read> w: array<u32>;
#endif
#if MUL8
#if BROADCAST
@group(0) @binding(1) var<storage, read> xq: array<u32>;
#else
@group(0) @binding(1) var<storage, read> xq: array<vec4<u32>>;
#endif
@group(0) @binding(2) var<storage, read> xd: array<vec2<f32>>;
#else
#if MUL16
@group(0) @binding(1) var<storage, read> halves: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> unscale: array<f32>;
#else
#if X4
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(1) var<storage, read> x: array<f32>;
#endif
#endif
#endif
#if BIAS
@group(0) @binding({{BIAS_AT}}) var<storage, read> bias: array<f32>;
#endif
#if RESIDUAL
@group(0) @binding({{RESIDUAL_AT}}) var<storage, read> residual: array<f32>;
#endif
@group(0) @binding({{Y0}}) var<storage, read_write> y0: array<f32>;
#if OUT2
@group(0) @binding({{Y1}}) var<storage, read_write> y1: array<f32>;
#endif
#if OUT3
@group(0) @binding({{Y2}}) var<storage, read_write> y2: array<f32>;
#endif

#if GATED
#include functions

// Where the weights of the columns of a thread lie, which are `step` apart: half of its N are of the second half.
fn place(column: u32, step: u32, j: u32) -> u32 {
    let h = {{N}} / 2u;
    return min(column + step * (j % h), p(0u) - 1u) + select(0u, p(0u), j >= h);
}

fn put_gated(row: u32, column: u32, gate: f32, up: f32) {
#if BIAS
    y0[row * p(5u) + column] = {{FN}}(gate + bias[column]) * (up + bias[column + p(0u)]);
#else
    y0[row * p(5u) + column] = {{FN}}(gate) * up;
#endif
}
#else
fn place(column: u32, step: u32, j: u32) -> u32 {
    return min(column + step * j, p(0u) - 1u);
}

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
#endif
