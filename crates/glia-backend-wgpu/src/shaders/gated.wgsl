// Gated unit: function of the gate times up. Constants: 0 elements.
#include prelude
@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

#include functions
#include entry_each

fn each(i: u32) {
    if i < p(0u) {
        y[i] = {{FN}}(gate[i]) * up[i];
    }
}
