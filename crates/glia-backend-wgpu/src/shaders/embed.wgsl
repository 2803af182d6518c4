// Rows of a table by id, decoded. Constants: 0 rows, 1 width, 2 chunks of eight per row, 3 first row of this part,
// 4 rows of this part, and those of the weights.
#include prelude
@group(0) @binding(0) var<storage, read> w: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

#include weights
#include entry_each

fn each(i: u32) {
    let row = i / p(2u);
    let c = i % p(2u);
    if row >= p(0u) {
        return;
    }
    let id = u32(max(ids[row], 0));
    if id < p(3u) || id - p(3u) >= p(4u) {
        return;
    }
    let v = load8(id - p(3u), c);
    let n = p(1u);
    for (var j = 0u; j < 4u; j++) {
        if c * 8u + j < n {
            y[row * n + c * 8u + j] = v.a[j];
        }
        if c * 8u + 4u + j < n {
            y[row * n + c * 8u + 4u + j] = v.b[j];
        }
    }
}
