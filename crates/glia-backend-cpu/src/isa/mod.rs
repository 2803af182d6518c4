//! Instruction sets that the matrix kernels are written for: found at run time, forced in tests.

/// An instruction set. Values are made by [`Isa::detect`] and [`Isa::all_available`] from what the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, on every machine.
    Portable,
    /// The same, but products with BF16 weights are what AVX-512 BF16 defines: for comparisons, it is slow.
    PortableBf16,
    /// AVX2, FMA and F16C.
    Avx2,
    /// The same with byte dot products: AVX-VNNI, or AVX-512 VNNI with VL.
    Avx2Vnni,
    /// AVX-512 F, BW, VL, DQ and VNNI.
    Avx512Vnni,
    /// The same with dot products of BF16 pairs.
    Avx512Bf16,
    /// NEON with dot products.
    NeonDot,
    /// NEON with dot products and products of 8-bit matrices.
    NeonI8mm,
}

impl Isa {
    /// The fastest that this machine has.
    pub fn detect() -> Isa {
        let mut all = Isa::all_available().into_iter().rev();
        all.find(|isa| isa.pays()).unwrap_or(Isa::Portable)
    }

    /// Whether it is worth its use where there is something else: dot products of BF16 pairs take Intel's processors
    /// longer than the multiply-adds of F32 that they stand for, and AMD's half as long.
    fn pays(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self == Isa::Avx512Bf16 {
            let vendor = std::arch::x86_64::__cpuid(0);
            let [b, d, c] = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
            return [b, d, c].as_flattened() == b"AuthenticAMD";
        }
        self != Isa::PortableBf16
    }

    /// Everything that this machine has, the newest last.
    pub fn all_available() -> Vec<Isa> {
        let all = [
            Isa::PortableBf16,
            Isa::Portable,
            Isa::Avx2,
            Isa::Avx2Vnni,
            Isa::Avx512Vnni,
            Isa::Avx512Bf16,
            Isa::NeonDot,
            Isa::NeonI8mm,
        ];
        all.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable | Isa::PortableBf16 => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Vnni => {
                Isa::Avx2.is_available()
                    && (is_x86_feature_detected!("avxvnni")
                        || is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl"))
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => Isa::Avx512Vnni.is_available() && is_x86_feature_detected!("avx512bf16"),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::NeonI8mm => Isa::NeonDot.is_available() && std::arch::is_aarch64_feature_detected!("i8mm"),
            _ => false,
        }
    }

    /// The name that plans and statistics print.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::PortableBf16 => "portable-bf16",
            Isa::Avx2 => "avx2",
            Isa::Avx2Vnni => "avx2-vnni",
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Avx512Bf16 => "avx512-bf16",
            Isa::NeonDot => "neon-dot",
            Isa::NeonI8mm => "neon-i8mm",
        }
    }

    /// Whether it multiplies BF16 weights by rows of BF16.
    pub fn has_bf16(self) -> bool {
        self != self.without_bf16()
    }

    /// What runs everything but products with BF16 weights.
    pub(crate) fn without_bf16(self) -> Isa {
        match self {
            Isa::PortableBf16 => Isa::Portable,
            Isa::Avx512Bf16 => Isa::Avx512Vnni,
            other => other,
        }
    }
}
