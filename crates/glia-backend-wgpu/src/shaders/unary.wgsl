// A function of each element. Constants: 0 elements, 1 and 2 of the function.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

#include functions
#include entry_each

fn each(i: u32) {
    if i < p(0u) {
        y[i] = {{FN}}(x[i]);
    }
}
