// The scale and the minimum of the first sixteen of a block of 32 weights of a row, and of its second. `w` holds rows of
// codes, then rows of scales. Constants: 9 where scales begin, 10 words of scales per row.
#if VEC4
fn word(i: u32) -> u32 {
    return w[i / 4u][i % 4u];
}
#else
fn word(i: u32) -> u32 {
    return w[i];
}
#endif

#if PLAIN
fn scales(row: u32, b: u32) -> vec4<f32> {
    return vec4<f32>(1.0, 0.0, 1.0, 0.0);
}
#endif
#if HALF
fn scales(row: u32, b: u32) -> vec4<f32> {
    let both = unpack2x16float(word(p(9u) + row * p(10u) + b / 2u));
    let d = select(both.x, both.y, (b & 1u) == 1u);
    return vec4<f32>(d, 0.0, d, 0.0);
}
#endif
#if HALF_MIN
fn scales(row: u32, b: u32) -> vec4<f32> {
    let s = unpack2x16float(word(p(9u) + row * p(10u) + b)) * vec2<f32>(1.0, -1.0);
    return vec4<f32>(s, s);
}
#endif
#if WORD
fn scales(row: u32, b: u32) -> vec4<f32> {
    let at = p(9u) + row * p(10u);
    let d = bitcast<f32>(word(at + 4u * b / {{WORD_CHUNKS}}));
#if HALVES
    return vec4<f32>(d, 0.0, bitcast<f32>(word(at + 2u * b + 1u)), 0.0);
#else
    return vec4<f32>(d, 0.0, d, 0.0);
#endif
}
#endif
#if SUPER32_MIN
fn scales(row: u32, b: u32) -> vec4<f32> {
    let at = p(9u) + row * p(10u) + b / 8u * 5u;
    let sub = b % 8u;
    let shift = 8u * (sub % 4u);
    let sc = (word(at + 1u + sub / 4u) >> shift) & 255u;
    let m = (word(at + 3u + sub / 4u) >> shift) & 255u;
    let s = unpack2x16float(word(at)) * vec2<f32>(f32(sc), f32(m));
    return vec4<f32>(s, s);
}
#endif
#if SUPER16
fn scales(row: u32, b: u32) -> vec4<f32> {
    let at = p(9u) + row * p(10u) + b / 8u * 5u;
    let sub = 2u * (b % 8u);
    let both = bytes_of(word(at + 1u + sub / 4u) >> (8u * (sub % 4u))) * bitcast<f32>(word(at));
    return vec4<f32>(both.x, 0.0, both.y, 0.0);
}
#endif
#if SUPER16_MIN
fn scales(row: u32, b: u32) -> vec4<f32> {
    let at = p(9u) + row * p(10u) + b / 8u * 5u;
    let sub = 2u * (b % 8u);
    let both = word(at + 1u + sub / 4u) >> (8u * (sub % 4u));
    let d = unpack2x16float(word(at));
    return d.xyxy * vec4<f32>(f32(both & 15u), f32((both >> 4u) & 15u), f32((both >> 8u) & 15u), f32((both >> 12u) & 15u));
}
#endif

