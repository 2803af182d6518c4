// Elements of an axis by index. Constants: 0 elements, 1 indices, 2 inner elements, 3 size of the axis.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> picked: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

#include entry_each

fn each(i: u32) {
    if i >= p(0u) {
        return;
    }
    let inner = i % p(2u);
    let m = i / p(2u) % p(1u);
    let outer = i / p(2u) / p(1u);
    // The host has checked indices that it gave; those made on the device cannot leave the axis either.
    let at = min(u32(max(picked[m], 0)), p(3u) - 1u);
    y[i] = x[(outer * p(3u) + at) * p(2u) + inner];
}
