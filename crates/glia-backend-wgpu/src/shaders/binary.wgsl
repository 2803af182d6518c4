// Elementwise arithmetic with broadcasting. Constants: 0 elements, 1 rank, 2.. sizes, 10.. strides of a, 18.. strides of b.
#include prelude
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn add(x: f32, y: f32) -> f32 {
    return x + y;
}

fn sub(x: f32, y: f32) -> f32 {
    return x - y;
}

fn mul(x: f32, y: f32) -> f32 {
    return x * y;
}

fn div(x: f32, y: f32) -> f32 {
    return x / y;
}

#include entry_each

fn each(i: u32) {
    if i >= p(0u) {
        return;
    }
    var rest = i;
    var at_a = 0u;
    var at_b = 0u;
    for (var d = p(1u); d > 0u; d--) {
        let size = p(1u + d);
        let at = rest % size;
        rest /= size;
        at_a += at * p(9u + d);
        at_b += at * p(17u + d);
    }
    y[i] = {{FN}}(a[at_a], b[at_b]);
}
