// Conversion between F32 and I32, rounding to nearest even and saturating. Constants: 0 elements.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<{{FROM}}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{TO}}>;

fn to_i32(v: f32) -> i32 {
    // NaN, by its bits: comparisons may be taken to hold none.
    if (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u {
        return 0;
    }
    if v >= 2147483648.0 {
        return 2147483647;
    }
    if v <= -2147483648.0 {
        return -2147483647 - 1;
    }
    return i32(round(v));
}

fn to_f32(v: i32) -> f32 {
    return f32(v);
}

#include entry_each

fn each(i: u32) {
    if i < p(0u) {
        y[i] = {{FN}}(x[i]);
    }
}
