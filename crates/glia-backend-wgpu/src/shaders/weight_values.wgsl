// The numbers that codes stand for, before they are scaled.
fn bytes_of(x: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(x));
}

#if TABLE_NL
const TABLE: array<f32, 16> = array<f32, 16>(
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
);
#endif
#if TABLE_E2M1
const TABLE: array<f32, 16> = array<f32, 16>(
    0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0,
);
#endif

#if TABLED
fn value4(q: vec4<u32>) -> vec4<f32> {
    var table = TABLE;
    return vec4<f32>(table[q.x], table[q.y], table[q.z], table[q.w]);
}
#else
#if CODED
fn value4(q: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(q) - vec4<f32>(f32({{OFFSET}}));
}
#endif
#endif
