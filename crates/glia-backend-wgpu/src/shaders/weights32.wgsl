// A block of 32 weights of a row before they are scaled, with its scales and minima. `w` holds rows of codes, whole
// vectors each, then rows of scales. Constants: as for eight weights.
#include weight_values
#include scales

struct W32 {
    v: array<vec4<f32>, 8>,
    s: vec4<f32>,
}

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
