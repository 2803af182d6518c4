// A block of 32 weights of a row before they are scaled, with the scale and the minimum of its first sixteen and of its
// second. `w` holds rows of codes, whole vectors each, then rows of scales. Constants: as for eight weights.
#include weight_values

struct W32 {
    v: array<vec4<f32>, 8>,
    s: vec4<f32>,
}

fn word(i: u32) -> u32 {
    return w[i / 4u][i % 4u];
}

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

#if F32
fn load32(row: u32, b: u32) -> W32 {
    let at = row * (p(8u) / 4u) + b * 8u;
    var out: W32;
    out.s = scales(row, b);
#for H EIGHT
    out.v[{{H}}] = bitcast<vec4<f32>>(w[at + {{H}}]);
#endfor
    return out;
}
#endif
#if F16
fn load32(row: u32, b: u32) -> W32 {
    let at = row * (p(8u) / 4u) + b * 4u;
    var out: W32;
    out.s = scales(row, b);
#for H FOUR
    {
        let q = w[at + {{H}}];
        out.v[2u * {{H}}] = vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y));
        out.v[2u * {{H}} + 1u] = vec4<f32>(unpack2x16float(q.z), unpack2x16float(q.w));
    }
#endfor
    return out;
}
#endif
#if BF16
fn load32(row: u32, b: u32) -> W32 {
    let at = row * (p(8u) / 4u) + b * 4u;
    var out: W32;
    out.s = scales(row, b);
#for H FOUR
    {
        let q = w[at + {{H}}];
        let low = bitcast<vec4<f32>>(q << vec4<u32>(16u));
        let high = bitcast<vec4<f32>>(q & vec4<u32>(0xffff0000u));
        out.v[2u * {{H}}] = vec4<f32>(low.x, high.x, low.y, high.y);
        out.v[2u * {{H}} + 1u] = vec4<f32>(low.z, high.z, low.w, high.w);
    }
#endfor
    return out;
}
#endif
#if LOW8
fn load32(row: u32, b: u32) -> W32 {
    let at = row * (p(8u) / 4u) + b * 2u;
    var out: W32;
    out.s = scales(row, b);
#for H TWO
    {
        let q = w[at + {{H}}];
        out.v[4u * {{H}}] = bytes_of(q.x);
        out.v[4u * {{H}} + 1u] = bytes_of(q.y);
        out.v[4u * {{H}} + 2u] = bytes_of(q.z);
        out.v[4u * {{H}} + 3u] = bytes_of(q.w);
    }
#endfor
    return out;
}
#endif
#if CODED
fn load32(row: u32, b: u32) -> W32 {
    var out: W32;
    out.s = scales(row, b);
#if LOW4
    let low = w[row * (p(8u) / 4u) + b];
#else
    let low = vec2<u32>(word(row * p(8u) + 2u * b), word(row * p(8u) + 2u * b + 1u));
#endif
#if HIGH1
    let high = word(row * p(8u) + p(11u) + b);
#endif
#if HIGH2
    let high = vec2<u32>(word(row * p(8u) + p(11u) + 2u * b), word(row * p(8u) + p(11u) + 2u * b + 1u));
#endif
#for C FOUR
    {
#if LOW4
        let x = vec4<u32>(low[{{C}}]);
        var a = (x >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
        var c = (x >> vec4<u32>(16u, 20u, 24u, 28u)) & vec4<u32>(15u);
#else
        let x = vec4<u32>(low[{{C}} / 2u] >> (16u * ({{C}} % 2u)));
        var a = (x >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
        var c = (x >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u);
#endif
#if HIGH1
        let h = vec4<u32>(high >> (8u * {{C}}));
        a |= ((h >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>({{LOW}});
        c |= ((h >> vec4<u32>(4u, 5u, 6u, 7u)) & vec4<u32>(1u)) << vec4<u32>({{LOW}});
#endif
#if HIGH2
        let h = vec4<u32>(high[{{C}} / 2u] >> (16u * ({{C}} % 2u)));
        a |= ((h >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) << vec4<u32>({{LOW}});
        c |= ((h >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u)) << vec4<u32>({{LOW}});
#endif
        out.v[2u * {{C}}] = value4(a);
        out.v[2u * {{C}} + 1u] = value4(c);
    }
#endfor
    return out;
}
#endif
