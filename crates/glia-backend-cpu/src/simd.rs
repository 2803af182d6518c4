//! Instruction levels for loops that the compiler vectorises: one body, compiled once per level, chosen at run time.

use crate::isa::Isa;

/// What the loops may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What every machine of the architecture has.
    Base,
    /// AVX2 with fused multiply-add and f16 conversion.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 (F, BW, DQ, VL).
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The level of an instruction set, which the machine has.
    pub fn of(isa: Isa) -> Level {
        match isa.without_bf16() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx2Vnni if isa.is_available() => Level::Avx2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni if isa.is_available() => Level::Avx512,
            _ => Level::Base,
        }
    }
}

/// Whether plain code of this architecture has fused multiply-add.
pub(crate) const BASE_FMA: bool = cfg!(target_arch = "aarch64");

/// `a * b + c`, fused where the level has the instruction.
#[inline(always)]
pub(crate) fn madd<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Asks for the memory at an address, which may be any, before it is used.
#[inline(always)]
pub(crate) fn ask<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is no access.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Defines a function that takes the level first. In the body, `FMA` says whether multiply-add is fused.
macro_rules! leveled {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(level: $crate::simd::Level, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments, clippy::extra_unused_type_parameters)]
            fn body<const FMA: bool>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) $(-> $ret)? { body::<true>($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) $(-> $ret)? { body::<true>($($arg),*) }
            match level {
                $crate::simd::Level::Base => body::<{ $crate::simd::BASE_FMA }>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Level::of` found these instructions on this machine.
                $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use leveled;
