//! GGUF's numbers for tensor types, as ggml defines them.

use glia_core::DType;

const TYPES: &[(u32, DType)] = &[
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (9, DType::Q8_1),
    (10, DType::Q2_K),
    (11, DType::Q3_K),
    (12, DType::Q4_K),
    (13, DType::Q5_K),
    (14, DType::Q6_K),
    (15, DType::Q8_K),
    (16, DType::IQ2_XXS),
    (17, DType::IQ2_XS),
    (18, DType::IQ3_XXS),
    (19, DType::IQ1_S),
    (20, DType::IQ4_NL),
    (21, DType::IQ3_S),
    (22, DType::IQ2_S),
    (23, DType::IQ4_XS),
    (24, DType::I8),
    (25, DType::I16),
    (26, DType::I32),
    (27, DType::I64),
    (28, DType::F64),
    (29, DType::IQ1_M),
    (30, DType::BF16),
    (34, DType::TQ1_0),
    (35, DType::TQ2_0),
    (39, DType::MXFP4),
    (40, DType::NVFP4),
];

/// Types that ggml once had or has elsewhere, for messages.
const OTHERS: &[(u32, &str)] = &[
    (4, "Q4_2, removed from ggml"),
    (5, "Q4_3, removed from ggml"),
    (31, "Q4_0_4_4, removed from ggml: quantise again to Q4_0"),
    (32, "Q4_0_4_8, removed from ggml: quantise again to Q4_0"),
    (33, "Q4_0_8_8, removed from ggml: quantise again to Q4_0"),
    (36, "IQ4_NL_4_4, removed from ggml: quantise again to IQ4_NL"),
    (37, "IQ4_NL_4_8, removed from ggml: quantise again to IQ4_NL"),
    (38, "IQ4_NL_8_8, removed from ggml: quantise again to IQ4_NL"),
    (41, "Q1_0"),
];

/// The dtype of a type id.
pub fn dtype(id: u32) -> Option<DType> {
    TYPES.iter().find(|(t, _)| *t == id).map(|(_, d)| *d)
}

/// The type id of a dtype.
pub fn type_id(dtype: DType) -> Option<u32> {
    TYPES.iter().find(|(_, d)| *d == dtype).map(|(t, _)| *t)
}

/// The name of a type id as ggml's tools write it: `Q4_K`, `MXFP4`; `type 200` when it has none.
pub fn name(id: u32) -> String {
    if let Some(dtype) = dtype(id) {
        return dtype.name().to_uppercase();
    }
    match OTHERS.iter().find(|(t, _)| *t == id) {
        Some((_, name)) => name.split(',').next().unwrap_or(name).to_owned(),
        None => format!("type {id}"),
    }
}

/// What to say of an id that has no dtype.
pub fn describe_unsupported(id: u32) -> String {
    let known = OTHERS.iter().find(|(t, _)| *t == id);
    let supported: Vec<String> = TYPES.iter().map(|(t, _)| name(*t)).collect();
    let what = match known {
        Some((_, name)) => format!("type {id} ({name}) is not supported"),
        None => format!("type {id} is unknown: the file is damaged, or newer than this program"),
    };
    format!("{what}; supported: {}", supported.join(", "))
}
