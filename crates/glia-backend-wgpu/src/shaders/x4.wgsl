// Four elements of a row of x, zeros beyond its end. Rows are whole vectors of four, or are not.
#if X4
fn x4(row: u32, i: u32) -> vec4<f32> {
    let n = p(2u) / 4u;
#if TAIL
    return select(vec4<f32>(), x[row * n + min(i, n - 1u)], i < n);
#else
    return x[row * n + i];
#endif
}
#else
fn x1(row: u32, i: u32) -> f32 {
    let k = p(2u);
    return select(0.0, x[row * k + min(i, k - 1u)], i < k);
}

fn x4(row: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(x1(row, 4u * i), x1(row, 4u * i + 1u), x1(row, 4u * i + 2u), x1(row, 4u * i + 3u));
}
#endif
