// Eight weights of a row, decoded. `w` holds rows of codes, then rows of scales.
// Constants: 8 words of codes per row, 9 where scales begin, 10 words of scales per row, 11 words of the first plane.
struct W8 {
    a: vec4<f32>,
    b: vec4<f32>,
}

#include weight_values
#include scales

#if F32
fn load8(row: u32, c: u32) -> W8 {
    let at = row * p(8u) + c * 8u;
    return W8(
        vec4<f32>(bitcast<f32>(w[at]), bitcast<f32>(w[at + 1u]), bitcast<f32>(w[at + 2u]), bitcast<f32>(w[at + 3u])),
        vec4<f32>(bitcast<f32>(w[at + 4u]), bitcast<f32>(w[at + 5u]), bitcast<f32>(w[at + 6u]), bitcast<f32>(w[at + 7u])),
    );
}
#endif
#if F16
fn load8(row: u32, c: u32) -> W8 {
    let at = row * p(8u) + c * 4u;
    return W8(
        vec4<f32>(unpack2x16float(w[at]), unpack2x16float(w[at + 1u])),
        vec4<f32>(unpack2x16float(w[at + 2u]), unpack2x16float(w[at + 3u])),
    );
}
#endif
#if BF16
fn pair(x: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(x << 16u), bitcast<f32>(x & 0xffff0000u));
}

fn load8(row: u32, c: u32) -> W8 {
    let at = row * p(8u) + c * 4u;
    return W8(vec4<f32>(pair(w[at]), pair(w[at + 1u])), vec4<f32>(pair(w[at + 2u]), pair(w[at + 3u])));
}
#endif

#if !PLAIN
fn scale_min(row: u32, c: u32) -> vec2<f32> {
    let s = scales(row, c / 4u);
    return select(s.xy, s.zw, (c & 2u) == 2u);
}
#endif

#if LOW8
fn load8(row: u32, c: u32) -> W8 {
    let at = row * p(8u) + c * 2u;
    let d = scale_min(row, c).x;
    return W8(bytes_of(w[at]) * d, bytes_of(w[at + 1u]) * d);
}
#endif

#if LOW4
fn codes(row: u32, c: u32) -> array<vec4<u32>, 2> {
    let x = w[row * p(8u) + c];
    var a = (vec4<u32>(x) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    var b = (vec4<u32>(x) >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u);
#if HIGH1
    let h = w[row * p(8u) + p(11u) + c / 4u] >> (8u * (c % 4u));
    a |= ((vec4<u32>(h) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(4u);
    b |= ((vec4<u32>(h) >> vec4<u32>(4u, 5u, 6u, 7u)) & vec4<u32>(1u)) << vec4<u32>(4u);
#endif
#if HIGH2
    let h = w[row * p(8u) + p(11u) + c / 2u] >> (16u * (c % 2u));
    a |= ((vec4<u32>(h) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) << vec4<u32>(4u);
    b |= ((vec4<u32>(h) >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u)) << vec4<u32>(4u);
#endif
    return array<vec4<u32>, 2>(a, b);
}
#endif
#if LOW2
fn codes(row: u32, c: u32) -> array<vec4<u32>, 2> {
    let x = w[row * p(8u) + c / 2u] >> (16u * (c % 2u));
    var a = (vec4<u32>(x) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
    var b = (vec4<u32>(x) >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u);
#if HIGH1
    let h = w[row * p(8u) + p(11u) + c / 4u] >> (8u * (c % 4u));
    a |= ((vec4<u32>(h) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(2u);
    b |= ((vec4<u32>(h) >> vec4<u32>(4u, 5u, 6u, 7u)) & vec4<u32>(1u)) << vec4<u32>(2u);
#endif
    return array<vec4<u32>, 2>(a, b);
}
#endif

#if CODED
fn load8(row: u32, c: u32) -> W8 {
    let q = codes(row, c);
    let s = scale_min(row, c);
    return W8(value4(q[0]) * s.x - s.y, value4(q[1]) * s.x - s.y);
}
#endif
