//! Reading a buffer much larger than a core's caches, once per run, each thread its own part.

use glia_core::BackendError;
use memmap2::{MmapMut, MmapOptions};

use super::together::Pool;
use crate::isa::Isa;
use crate::simd::{Level, leveled};

const MOST_BYTES: usize = 512 << 20;
const LEAST_BYTES: usize = 64 << 20;
/// Distance of the writes that make the system give memory.
const PAGE_BYTES: usize = 4096;

/// One turn of the loop: 256 bytes, enough sums for the loads to be the limit.
type Line = [u64; 32];

/// A quarter of the free memory within bounds.
pub(super) fn buffer_bytes() -> usize {
    free_bytes().map_or(MOST_BYTES, |free| (free / 4).clamp(LEAST_BYTES, MOST_BYTES))
}

/// Memory that the system would give, where it tells.
fn free_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1024)
}

pub(super) struct Buffer(MmapMut);

impl Buffer {
    /// Memory in huge pages or in plain ones, as far as the system can be asked, every page of it written once: pages
    /// that nobody has written are one page of zeros.
    pub(super) fn new(len: usize, huge: bool, pools: &[Pool]) -> Result<Buffer, BackendError> {
        let no_memory = |_| BackendError::OutOfMemory {
            what: "a buffer to measure reading".to_owned(),
            needed_bytes: len,
            limit_bytes: free_bytes().unwrap_or(0),
        };
        let mut map = MmapOptions::new().len(len).map_anon().map_err(no_memory)?;
        #[cfg(target_os = "linux")]
        {
            use memmap2::Advice;
            // A system that knows no huge pages refuses: both buffers are plain ones then.
            let _ = map.advise(if huge { Advice::HugePage } else { Advice::NoHugePage });
        }
        #[cfg(not(target_os = "linux"))]
        let _ = huge;
        match pools.iter().max_by_key(|p| p.n_threads()) {
            Some(pool) => {
                let per = len.div_ceil(pool.n_threads()).next_multiple_of(PAGE_BYTES);
                let parts: Vec<_> = map.chunks_mut(per).map(std::sync::Mutex::new).collect();
                pool.each(&|thread| {
                    if let Some(part) = parts.get(thread) {
                        let mut part = part.lock().unwrap_or_else(|e| e.into_inner());
                        part.iter_mut().step_by(PAGE_BYTES).for_each(|b| *b = 1);
                    }
                });
            }
            None => map.iter_mut().step_by(PAGE_BYTES).for_each(|b| *b = 1),
        }
        Ok(Buffer(map))
    }

    /// Bytes per second, the best of some runs.
    pub(super) fn rate(&self, pool: &Pool, n_runs: usize) -> f64 {
        let level = Level::of(Isa::detect());
        let lines: &[Line] = bytemuck::cast_slice(&self.0[..self.0.len() / size_of::<Line>() * size_of::<Line>()]);
        let per = lines.len().div_ceil(pool.n_threads()).max(1);
        let parts: Vec<&[Line]> = lines.chunks(per).collect();
        let work = |thread: usize| parts.get(thread).map_or(0, |part| sum(level, part));
        let best = (0..n_runs.max(1))
            .map(|_| pool.seconds(&work))
            .fold(f64::INFINITY, f64::min);
        size_of_val(lines) as f64 / best.max(1e-9)
    }
}

leveled! {
    fn sum(lines: &[Line]) -> u64 {
        let mut sums: Line = [0; 32];
        for line in lines {
            for (sum, x) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(*x);
            }
        }
        sums.iter().fold(0, |n: u64, x| n.wrapping_add(*x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_every_byte() {
        let mut lines: Vec<Line> = vec![[0; 32]; 5];
        for (i, x) in lines.iter_mut().flatten().enumerate() {
            *x = i as u64;
        }
        for isa in Isa::all_available() {
            assert_eq!(sum(Level::of(isa), &lines), 159 * 160 / 2);
            assert_eq!(sum(Level::of(isa), &[]), 0);
        }
    }

    #[test]
    fn buffers_are_within_bounds() {
        assert!((LEAST_BYTES..=MOST_BYTES).contains(&buffer_bytes()));
    }
}
