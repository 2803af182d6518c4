//! Where a team is in the groups of a step. Whoever finishes the last item of a group moves the team on; nobody waits
//! for a thread, only for work that a thread has taken. A thread that lost its core between two items holds up no one.
//!
//! Waiting spins for moments, then sleeps: on a busy machine the core goes to the thread that is waited for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Rounds of spinning before a thread sleeps: about as long as falling asleep and waking takes.
const SPINS: usize = 1000;
/// Rounds at least, for a thread that others keep waiting.
const LEAST_SPINS: usize = 30;
/// The position of a team that has been sent home.
const ENDED: usize = usize::MAX;

/// How long a thread spins before it sleeps: half as long after a wait that ended in sleep, twice as long after one that
/// did not. Who waits for a thread without a core saves its own share of the machine for work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(usize);

impl Default for Patience {
    fn default() -> Patience {
        Patience(SPINS)
    }
}

pub(crate) struct Progress {
    n_groups: usize,
    may_spin: bool,
    at: AtomicUsize,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Progress {
    /// A team before the first of `n_groups`.
    pub fn new(may_spin: bool, n_groups: usize) -> Progress {
        Progress {
            n_groups,
            may_spin,
            at: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Waits until the team is at `group` or later, and says where; `None` when the step is over.
    pub fn reach(&self, group: usize, patience: &mut Patience) -> Option<usize> {
        let now = || {
            let at = self.at.load(Ordering::SeqCst);
            (at >= group).then_some(at)
        };
        let spins = if self.may_spin { patience.0 } else { 0 };
        let mut at = now();
        for _ in 0..spins {
            if at.is_some() {
                break;
            }
            std::hint::spin_loop();
            at = now();
        }
        let at = match at {
            Some(at) => {
                patience.0 = (patience.0 * 2).min(SPINS);
                at
            }
            None => {
                patience.0 = (patience.0 / 2).max(LEAST_SPINS);
                self.sleep(now)
            }
        };
        (at < self.n_groups).then_some(at)
    }

    fn sleep(&self, now: impl Fn() -> Option<usize>) -> usize {
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let at = loop {
            match now() {
                Some(at) => break at,
                None => guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner()),
            }
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        at
    }

    /// Moves the team from `group`, all of whose work is done, to `next`. Called once per group.
    pub fn advance(&self, group: usize, next: usize) {
        // Fails when the team has been sent home.
        if self
            .at
            .compare_exchange(group, next, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            self.rouse();
        }
    }

    /// Sends everybody home.
    pub fn end(&self) {
        self.at.store(ENDED, Ordering::SeqCst);
        self.rouse();
    }

    /// Whether everybody has been sent home.
    pub fn has_ended(&self) -> bool {
        self.at.load(Ordering::Relaxed) == ENDED
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
    use std::time::Duration;

    #[test]
    fn groups_follow_each_other_whoever_does_the_work() {
        let (n_threads, n_groups, n_items) = (16, 300, 5);
        let progress = Progress::new(false, n_groups);
        let next: Vec<AtomicUsize> = (0..n_groups).map(|_| AtomicUsize::new(0)).collect();
        let done: Vec<AtomicUsize> = (0..n_groups).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..n_threads {
                scope.spawn(|| {
                    let (mut group, mut patience) = (0, Patience::default());
                    while let Some(at) = progress.reach(group, &mut patience) {
                        while next[at].fetch_add(1, Ordering::Relaxed) < n_items {
                            if at > 0 {
                                assert_eq!(done[at - 1].load(Ordering::SeqCst), n_items);
                            }
                            if done[at].fetch_add(1, Ordering::SeqCst) + 1 == n_items {
                                progress.advance(at, at + 1);
                            }
                        }
                        group = at + 1;
                    }
                });
            }
        });
        assert!(done.iter().all(|d| d.load(Ordering::SeqCst) == n_items));
    }

    #[test]
    fn the_end_wakes_sleepers() {
        let progress = Progress::new(true, 2);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| progress.reach(1, &mut Patience::default())))
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            progress.end();
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), None);
            }
        });
        progress.advance(0, 1);
        let after = progress.reach(0, &mut Patience::default());
        assert_eq!((after, progress.has_ended()), (None, true));
    }
}
