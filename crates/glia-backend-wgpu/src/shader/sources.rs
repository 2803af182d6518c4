//! The WGSL files, by name.

macro_rules! sources {
    (kernels { $($kernel:ident => $file:literal,)* } parts { $($part:literal,)* }) => {
        /// A kernel file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Source { $($kernel,)* }

        impl Source {
            /// Every kernel file.
            #[cfg(test)]
            pub const ALL: &'static [Source] = &[$(Source::$kernel,)*];

            /// Name of the file, without `.wgsl`.
            pub fn name(self) -> &'static str {
                match self { $(Source::$kernel => $file,)* }
            }

            /// The text of a kernel or of a part that kernels include.
            pub fn read(name: &str) -> Option<&'static str> {
                match name {
                    $($file => Some(include_str!(concat!("../shaders/", $file, ".wgsl"))),)*
                    $($part => Some(include_str!(concat!("../shaders/", $part, ".wgsl"))),)*
                    _ => None,
                }
            }
        }
    };
}

sources! {
    kernels {
        Copy => "copy",
        Binary => "binary",
        Unary => "unary",
        Gated => "gated",
        Norm => "norm",
        Softmax => "softmax",
        Reduce => "reduce",
        TopK => "topk",
        Cast => "cast",
        Gather => "gather",
        Embed => "embed",
        Rope => "rope",
        MatMul => "matmul",
        MatMulAlone => "matmul_alone",
        MatMulTiled => "matmul_tiled",
        MatMulCoop => "matmul_coop",
        Halve => "halve",
        MatMulDots => "matmul_dots",
        Quantize => "quantize",
        Batched => "batched",
        Heads => "heads",
        KvAppend => "kv_append",
        KvDense => "kv_dense",
        AttentionAlone => "attention_alone",
        AttentionTogether => "attention_together",
        AttentionCombine => "attention_combine",
    }
    parts {
        "prelude",
        "entry_each",
        "attention_part",
        "best_part",
        "functions",
        "kv_read",
        "reduce_part",
        "matmul_part",
        "pack_part",
        "put_alone",
        "scales",
        "weight_values",
        "weights",
        "weights32",
        "x4",
        "x8",
        "kv",
    }
}
