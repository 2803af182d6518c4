// Four elements of a cached row. `at` is the row's first word plus elements in words; the form of rows is: F32 words;
// pairs of F16 or BF16; or signed bytes four to a word, then an F32 scale per 32 elements.
#if KV_F32
const ELEMS_PER_WORD = 1u;
#endif
#if KV_F16
const ELEMS_PER_WORD = 2u;
#endif
#if KV_BF16
const ELEMS_PER_WORD = 2u;

// To nearest even; NaN stays NaN.
fn to_bf16(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 64u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
#endif
#if KV_F16
// To nearest even, subnormals included: the rounding of `pack2x16float` is the device's own choice.
fn to_f16(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u;
    }
    if size >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if size < 0x38800000u {
        // Below the normal numbers: the sum with 0.5 has its last place at the last place of a subnormal.
        return sign | (bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u);
    }
    return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}
#endif

// Words of a row of `n` elements.
fn row_words(n: u32) -> u32 {
#if KV_Q8
    return n / 4u + n / 32u;
#else
    return n / ELEMS_PER_WORD;
#endif
}
