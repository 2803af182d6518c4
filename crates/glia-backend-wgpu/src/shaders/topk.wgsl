// The k largest of each row, falling, the lower index first. Constants: 0 rows, 1 length, 2 k.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> indices: array<i32>;

#include reduce_part
#include best_part

fn each_row(row: u32, thread: u32) {
    let lane = lane_of(thread);
    if row >= p(0u) {
        return;
    }
    let n = p(1u);
    let at = row * n;
    var last = Best(0.0, n);
    for (var k = 0u; k < p(2u); k++) {
        // The best of those behind the last one taken.
        var best = Best(0.0, n);
        for (var i = lane; i < n; i += LANES) {
            let v = x[at + i];
            if k == 0u || v < last.value || (v == last.value && i > last.at) {
                best = better(best, Best(v, i), n);
            }
        }
        last = all_best(best, n, thread);
        if lane == 0u {
            values[row * p(2u) + k] = last.value;
            indices[row * p(2u) + k] = i32(last.at);
        }
    }
}
