// Sum, mean or index of the largest along an axis. Constants: 0 rows, 1 length, 2 stride within a row, 3 divisor.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
#if ARGMAX
@group(0) @binding(1) var<storage, read_write> y: array<i32>;
#else
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
#endif

#include reduce_part
#include best_part

fn each_row(row: u32, thread: u32) {
    let lane = lane_of(thread);
    if row >= p(0u) {
        return;
    }
    let n = p(1u);
    let stride = p(2u);
    let at = row / stride * stride * n + row % stride;
#if ARGMAX
    var best = Best(0.0, n);
    for (var i = lane; i < n; i += LANES) {
        best = better(best, Best(x[at + i * stride], i), n);
    }
    best = all_best(best, n, thread);
    if lane == 0u {
        y[row] = i32(best.at);
    }
#else
    // Kahan's sum: as exact as one rounding, whatever the length.
    var sum = 0.0;
    var lost = 0.0;
    for (var i = lane; i < n; i += LANES) {
        let v = x[at + i * stride] - lost;
        let next = sum + v;
        lost = select((next - sum) - v, 0.0, abs(next) > 3.4028235e38 || next != next);
        sum = next;
    }
    sum = all_add(sum, thread);
    if lane == 0u {
        y[row] = sum / pf(3u);
    }
#endif
}
