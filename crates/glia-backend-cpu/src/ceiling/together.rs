//! Threads that begin together, and how long they took all in all.

use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use glia_core::BackendError;

/// Threads of their own: none of the engine's waits for a measurement.
pub(super) struct Pool(rayon::ThreadPool);

impl Pool {
    pub(super) fn new(n_threads: usize) -> Result<Pool, BackendError> {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
        let built = builder.thread_name(|i| format!("glia-ceiling-{i}")).build();
        Ok(Pool(built.map_err(|e| BackendError::Other(Box::new(e)))?))
    }

    pub(super) fn n_threads(&self) -> usize {
        self.0.current_num_threads()
    }

    /// Calls `work` with 0, 1, .. on every thread.
    pub(super) fn each(&self, work: &(dyn Fn(usize) + Sync)) {
        self.0.broadcast(|cx| work(cx.index()));
    }

    /// Seconds from when the first thread began to when the last one ended. Results are used, so that no work is left
    /// out.
    pub(super) fn seconds<T>(&self, work: &(dyn Fn(usize) -> T + Sync)) -> f64 {
        let arrived = AtomicUsize::new(0);
        let span: Mutex<Option<(Instant, Instant)>> = Mutex::new(None);
        self.each(&|thread| {
            arrived.fetch_add(1, Ordering::Relaxed);
            let mut n_spins = 0;
            while arrived.load(Ordering::Relaxed) < self.n_threads() {
                n_spins += 1;
                // With fewer processors than threads, those that wait make room for those to come.
                if n_spins % 1024 == 0 {
                    std::thread::yield_now();
                }
                spin_loop();
            }
            let began = Instant::now();
            black_box(work(thread));
            let ended = Instant::now();
            let mut span = span.lock().unwrap_or_else(|e| e.into_inner());
            *span = Some(span.map_or((began, ended), |(b, e)| (b.min(began), e.max(ended))));
        });
        let span = span.into_inner().unwrap_or_else(|e| e.into_inner());
        span.map_or(0.0, |(began, ended)| (ended - began).as_secs_f64())
    }
}
