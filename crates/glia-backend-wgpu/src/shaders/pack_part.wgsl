// Rows of x that are packed, and the largest magnitude among four elements.
#if X4
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
#else
@group(0) @binding(0) var<storage, read> x: array<f32>;
#endif

#include x4

// Bits of floats without their sign are in the order of the floats.
fn largest(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}
