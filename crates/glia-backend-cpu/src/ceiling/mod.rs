//! What this machine allows at best: bytes read from memory per second, multiply-adds in f32 and in int8. Measured in the
//! process that asks, since limits of containers and neighbours change them.

mod compute;
mod read;
mod together;

use glia_core::BackendError;

use self::together::Pool;
use crate::error::invalid;

/// What a number of threads reach together.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ceiling {
    /// Threads.
    pub n_threads: usize,
    /// Bytes per second read from a buffer that asks for huge pages and is much larger than a cache of one core.
    pub read_huge: f64,
    /// The same in 4 KiB pages. Where the system has no huge pages, or gives them unasked, the two are alike.
    pub read_small: f64,
    /// F32 operations per second; a multiply-add is two.
    pub f32_ops: f64,
    /// Int8 operations per second of a dot product with i32 sums; a multiply-add is two.
    pub int8_ops: f64,
}

impl Ceiling {
    /// Bytes per second that reading reaches at best.
    pub fn read(&self) -> f64 {
        self.read_huge.max(self.read_small)
    }

    /// The share of the ceiling, 0 to 1, that work of `bytes` and `ops` reached in `seconds`: the greater of its shares
    /// of bandwidth and of `peak_ops` per second. What lies in a cache may exceed 1; no time at all is 0.
    pub fn share(&self, seconds: f64, bytes: f64, ops: f64, peak_ops: f64) -> f64 {
        let share = (bytes / self.read()).max(ops / peak_ops) / seconds;
        if share.is_finite() { share } else { 0.0 }
    }
}

/// The ceilings of this machine, by thread count.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ceilings {
    /// One per thread count asked for, in that order.
    pub by_threads: Vec<Ceiling>,
    /// Instructions that `f32_ops` was measured with: `avx512`, `avx2`, `portable`.
    pub f32_kernel: &'static str,
    /// Instructions that `int8_ops` was measured with: `avx512-vnni`, `avx2`, `portable`.
    pub int8_kernel: &'static str,
}

impl Ceilings {
    /// The ceiling of the most threads; `None` when none were asked for.
    pub fn most_threads(&self) -> Option<&Ceiling> {
        self.by_threads.iter().max_by_key(|c| c.n_threads)
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Bytes of the buffer that is read.
    buffer_bytes: usize,
    /// Times each thing is measured; the best counts.
    n_runs: usize,
    /// Length of one run of arithmetic.
    run_seconds: f64,
}

/// Measures with each of these thread counts, in about a second for two of them. Takes up to 512 MiB of memory, at most
/// a quarter of what is free, and gives it back.
///
/// # Errors
/// [`BackendError`]: a thread count of 0 or beyond 4096, no memory, no threads.
///
/// ```no_run
/// let ceilings = glia_backend_cpu::ceiling::measure(&[1, 2])?;
/// println!("{:.1} GB/s", ceilings.by_threads[0].read() / 1e9);
/// # Ok::<(), glia_core::BackendError>(())
/// ```
pub fn measure(thread_counts: &[usize]) -> Result<Ceilings, BackendError> {
    let buffer_bytes = read::buffer_bytes();
    measure_with(
        thread_counts,
        Effort {
            buffer_bytes,
            n_runs: 5,
            run_seconds: 6e-3,
        },
    )
}

fn measure_with(thread_counts: &[usize], effort: Effort) -> Result<Ceilings, BackendError> {
    if let Some(n) = thread_counts.iter().find(|n| !(1..=4096).contains(*n)) {
        return Err(invalid("ceiling", format!("{n} threads: measure with 1 to 4096")));
    }
    let pools: Vec<Pool> = thread_counts.iter().map(|&n| Pool::new(n)).collect::<Result<_, _>>()?;
    let (f32_kernel, int8_kernel) = (compute::F32::detect(), compute::Int8::detect());
    let mut by_threads = Vec::with_capacity(pools.len());
    for pool in &pools {
        by_threads.push(Ceiling {
            n_threads: pool.n_threads(),
            read_huge: 0.0,
            read_small: 0.0,
            f32_ops: compute::rate(pool, effort, f32_kernel.ops(), &|n| f32_kernel.run(n)),
            int8_ops: compute::rate(pool, effort, int8_kernel.ops(), &|n| int8_kernel.run(n)),
        });
    }
    for huge in [true, false] {
        let buffer = read::Buffer::new(effort.buffer_bytes, huge, &pools)?;
        for (pool, ceiling) in pools.iter().zip(&mut by_threads) {
            let rate = buffer.rate(pool, effort.n_runs);
            *(if huge {
                &mut ceiling.read_huge
            } else {
                &mut ceiling.read_small
            }) = rate;
        }
    }
    Ok(Ceilings {
        by_threads,
        f32_kernel: f32_kernel.name(),
        int8_kernel: int8_kernel.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Effort = Effort {
        buffer_bytes: 8 << 20,
        n_runs: 2,
        run_seconds: 1e-4,
    };

    #[test]
    fn every_ceiling_is_a_rate() {
        let ceilings = measure_with(&[1, 3], SMALL).unwrap();
        assert_eq!(
            ceilings.by_threads.iter().map(|c| c.n_threads).collect::<Vec<_>>(),
            [1, 3]
        );
        for c in &ceilings.by_threads {
            for rate in [c.read_huge, c.read_small, c.f32_ops, c.int8_ops] {
                // More than a megabyte or a million operations a second, less than any machine's.
                assert!((1e6..1e16).contains(&rate), "{c:?}");
            }
        }
        assert_eq!(ceilings.most_threads().unwrap().n_threads, 3);
    }

    #[test]
    fn thread_counts_are_checked() {
        for n in [0, 5000] {
            let err = measure_with(&[1, n], SMALL).unwrap_err();
            assert!(err.to_string().contains(&n.to_string()), "{err}");
        }
        assert_eq!(measure_with(&[], SMALL).unwrap().most_threads(), None);
    }

    #[test]
    fn shares_are_of_the_tighter_ceiling() {
        let ceiling = Ceiling {
            n_threads: 1,
            read_huge: 20.0,
            read_small: 10.0,
            f32_ops: 100.0,
            int8_ops: 400.0,
        };
        assert_eq!(ceiling.share(1.0, 10.0, 10.0, ceiling.f32_ops), 0.5);
        assert_eq!(ceiling.share(2.0, 10.0, 100.0, ceiling.f32_ops), 0.5);
        assert_eq!(ceiling.share(0.0, 10.0, 10.0, ceiling.f32_ops), 0.0);
        assert_eq!(ceiling.share(0.0, 0.0, 0.0, ceiling.f32_ops), 0.0);
    }
}
