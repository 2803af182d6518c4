//! How many tokens of a prompt are computed at once where the caller leaves it open.

use glia_core::MemorySpace;

use super::{ModelFile, Options};

/// Most tokens of a step.
const MOST: usize = 512;
/// Steps are multiples of this: rows that products on the CPU take together.
const UNIT: usize = 96;
/// What the program takes beside weights, caches and intermediates: its own pages, the libraries', the vocabulary, the plan.
const PROGRAM_BYTES: usize = 13 << 20;

impl ModelFile {
    /// [`Options::max_step_tokens`], or what suits the model: a longer step is faster by little, and takes memory that
    /// small files do not outweigh. Devices have launches to save, and get the most.
    pub fn step_tokens(&self, options: &Options) -> usize {
        let host = |b: &Vec<_>| {
            b.first()
                .is_none_or(|b: &std::sync::Arc<dyn glia_core::Backend>| b.space() == MemorySpace::HOST)
        };
        match options.max_step_tokens {
            0 if options.backends.as_ref().is_none_or(host) => {
                let s = self.spec();
                let heads = s.n_heads.saturating_mul(s.head_dim);
                suited(self.files().size_bytes(), s.hidden.max(heads), s.intermediate)
            }
            0 => MOST,
            n => n,
        }
    }
}

/// As many rows as leave peak memory within the file's size and 15 %, caches not counted. Two values of the width of the
/// MLP are needed at once, and some of the width of the model.
fn suited(file_bytes: usize, width: usize, intermediate: usize) -> usize {
    let floats = width.saturating_mul(3).saturating_add(intermediate.saturating_mul(2));
    let row_bytes = floats.saturating_mul(4).max(1);
    let room = (file_bytes / 20 * 3).saturating_sub(PROGRAM_BYTES);
    (room / row_bytes / UNIT * UNIT).clamp(UNIT, MOST)
}

#[cfg(test)]
mod tests {
    use super::suited;

    #[test]
    fn steps_grow_with_the_file() {
        let of = |mib: usize| suited(mib << 20, 576, 1536);
        assert_eq!([0, 84, 100, 140].map(of), [96, 96, 96, 384]);
        assert_eq!(suited(655 << 20, 2048, 5632), 512);
        assert_eq!(suited(usize::MAX, 0, 0), 512);
        assert_eq!(suited(usize::MAX, usize::MAX, usize::MAX), 96);
    }
}
