// Element `e` of the row of `n` elements that begins at word `at` of `cache`.
fn cached(at: u32, n: u32, e: u32) -> f32 {
#if KV_F32
    return bitcast<f32>(cache[at + e]);
#endif
#if KV_F16
    return unpack2x16float(cache[at + e / 2u])[e % 2u];
#endif
#if KV_BF16
    return bitcast<f32>((cache[at + e / 2u] >> (16u * (e % 2u))) << 16u);
#endif
#if KV_Q8
    let q = unpack4xI8(cache[at + e / 4u])[e % 4u];
    return f32(q) * bitcast<f32>(cache[at + n / 4u + e / 32u]);
#endif
}
