// Rotary embedding. `trig` holds the cosines of all rows, then the sines. Constants: 0 elements, 1 heads, 2 head
// size, 3 rotated pairs, 4 rows.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> trig: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

#include entry_each

fn each(i: u32) {
    if i >= p(0u) {
        return;
    }
    let half = p(3u);
    let e = i % p(2u);
    let row = i / p(2u) / p(1u);
    if e >= 2u * half {
        y[i] = x[i];
        return;
    }
#if INTERLEAVED
    let pair = e / 2u;
    let first = e % 2u == 0u;
    let partner = select(i - e % 2u, i - e % 2u + 1u, first);
#else
    let pair = e % half;
    let first = e < half;
    let partner = select(i - half, i + half, first);
#endif
    let c = trig[row * half + pair];
    let s = trig[(p(4u) + row) * half + pair];
    y[i] = x[i] * c + select(x[partner], -x[partner], first) * s;
}
