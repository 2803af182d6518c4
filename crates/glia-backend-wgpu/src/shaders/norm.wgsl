// RMSNorm and LayerNorm over rows. Constants: 0 rows, 1 width, 2 epsilon, 3 what is added to the gain.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
#if GAIN
@group(0) @binding(1) var<storage, read> gain: array<f32>;
#endif
#if BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>;
#endif
#if ADDED
@group(0) @binding({{ADDED_AT}}) var<storage, read> added: array<f32>;
#endif
@group(0) @binding({{OUT_AT}}) var<storage, read_write> y: array<f32>;

#include reduce_part

fn each_row(row: u32, thread: u32) {
    let lane = lane_of(thread);
    if row >= p(0u) {
        return;
    }
    let n = p(1u);
    let at = row * n;
    var mean = 0.0;
#if CENTRED
    for (var i = lane; i < n; i += LANES) {
        mean += x[at + i];
    }
    mean = all_add(mean, thread) / f32(n);
#endif
    // Scaled by the largest magnitude, squares neither overflow nor vanish.
    var largest = 0.0;
    for (var i = lane; i < n; i += LANES) {
        largest = max(largest, abs(x[at + i] - mean));
    }
    largest = all_max(largest, thread);
    let unit = select(1.0, largest, largest > 1e15 || (largest < 1e-15 && largest > 0.0));
    var sum = 0.0;
    for (var i = lane; i < n; i += LANES) {
        let v = (x[at + i] - mean) / unit;
        sum += v * v;
    }
    sum = all_add(sum, thread) / f32(n);
    let root = sqrt(sum + pf(2u) / unit / unit);
    for (var i = lane; i < n; i += LANES) {
        var v = (x[at + i] - mean) / unit / root;
#if GAIN
        v *= gain[i] + pf(3u);
#if BIAS
        v += bias[i];
#endif
#endif
#if ADDED
        v += added[at + i];
#endif
        y[at + i] = v;
    }
}
