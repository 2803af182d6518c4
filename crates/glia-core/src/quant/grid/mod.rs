//! Codebook grids of the IQ types: packed tables, and their expansion to one byte per element at compile time.

mod iq1;
mod iq2;
mod iq3;

/// Ternary vectors of IQ1_S and IQ1_M.
pub static IQ1: [[i8; 8]; 2048] = expand2(&iq1::IQ1, [-1, 0, 1]);
/// Magnitudes of IQ2_XXS.
pub static IQ2_XXS: [[i8; 8]; 256] = expand2(&iq2::IQ2_XXS, IQ2_LEVELS);
/// Magnitudes of IQ2_XS.
pub static IQ2_XS: [[i8; 8]; 512] = expand2(&iq2::IQ2_XS, IQ2_LEVELS);
/// Magnitudes of IQ2_S.
pub static IQ2_S: [[i8; 8]; 1024] = expand2(&iq2::IQ2_S, IQ2_LEVELS);
/// Magnitudes of IQ3_XXS.
pub static IQ3_XXS: [[i8; 4]; 256] = expand4(&iq3::IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
/// Magnitudes of IQ3_S.
pub static IQ3_S: [[i8; 4]; 512] = expand4(&iq3::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15]);

const IQ2_LEVELS: [i8; 3] = [8, 25, 43];

/// Sign bits of eight elements from seven stored ones: the eighth makes their number even.
pub const fn even_signs(stored: u32) -> u8 {
    let seven = (stored & 127) as u8;
    seven | (((seven.count_ones() & 1) as u8) << 7)
}

const fn expand2<const N: usize>(packed: &[u16; N], levels: [i8; 3]) -> [[i8; 8]; N] {
    let mut grid = [[0; 8]; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 8 {
            grid[i][j] = levels[(packed[i] >> (2 * j)) as usize & 3];
            j += 1;
        }
        i += 1;
    }
    grid
}

const fn expand4<const N: usize>(packed: &[u16; N], levels: [i8; 8]) -> [[i8; 4]; N] {
    let mut grid = [[0; 4]; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 4 {
            grid[i][j] = levels[(packed[i] >> (4 * j)) as usize & 15];
            j += 1;
        }
        i += 1;
    }
    grid
}
