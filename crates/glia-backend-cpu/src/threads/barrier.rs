//! The barrier between dependent instructions: spins for moments, then yields, then sleeps. On a busy machine a
//! waiting thread gives its core away instead of burning the share of the thread it waits for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Rounds of spinning, a few microseconds in all.
const SPINS: usize = 2000;
/// Offers of the core to others before sleeping.
const YIELDS: usize = 20;

pub(crate) struct Barrier {
    n: usize,
    spins: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    poisoned: AtomicBool,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    /// A barrier for `n` threads.
    pub fn new(n: usize) -> Barrier {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Barrier {
            n,
            // With more threads than cores, somebody waited for has no core: spinning only keeps it from one.
            spins: if n > cores { 0 } else { SPINS },
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Waits for all; false when the team must leave.
    pub fn wait(&self) -> bool {
        if self.n == 1 {
            return !self.is_poisoned();
        }
        let generation = self.generation.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.n {
            self.arrived.store(0, Ordering::SeqCst);
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            self.rouse();
            return !self.is_poisoned();
        }
        let passed = || self.generation.load(Ordering::SeqCst) != generation || self.is_poisoned();
        for _ in 0..self.spins {
            if passed() {
                return !self.is_poisoned();
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if passed() {
                return !self.is_poisoned();
            }
            std::thread::yield_now();
        }
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !passed() {
            guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        !self.is_poisoned()
    }

    /// Sends everybody home: every wait, now and later, returns false.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.rouse();
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    fn rouse(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Under the lock: a sleeper is either before its check or already waiting.
            let _guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
            self.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn more_threads_than_cores_stay_in_step() {
        let n = 16;
        let barrier = Barrier::new(n);
        let count = AtomicUsize::new(0);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..n {
                scope.spawn(|| {
                    for round in 0..500 {
                        count.fetch_add(1, Ordering::SeqCst);
                        assert!(barrier.wait());
                        assert_eq!(count.load(Ordering::SeqCst), (round + 1) * n);
                        assert!(barrier.wait());
                    }
                });
            }
        });
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn poison_wakes_sleepers() {
        let barrier = Barrier::new(3);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| barrier.wait())).collect();
            std::thread::sleep(Duration::from_millis(20));
            barrier.poison();
            for thread in waiting {
                assert!(!thread.join().unwrap());
            }
        });
        assert!(!barrier.wait());
    }
}
