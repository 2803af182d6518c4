// Softmax along an axis. Constants: 0 rows, 1 length, 2 stride within a row.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

#include reduce_part

fn each_row(row: u32, thread: u32) {
    let lane = lane_of(thread);
    if row >= p(0u) {
        return;
    }
    let n = p(1u);
    let stride = p(2u);
    let at = row / stride * stride * n + row % stride;
    var top = -3.4028235e38;
    for (var i = lane; i < n; i += LANES) {
        top = max(top, x[at + i * stride]);
    }
    top = all_max(top, thread);
    var sum = 0.0;
    for (var i = lane; i < n; i += LANES) {
        sum += exp(x[at + i * stride] - top);
    }
    sum = all_add(sum, thread);
    for (var i = lane; i < n; i += LANES) {
        y[at + i * stride] = exp(x[at + i * stride] - top) / sum;
    }
}
