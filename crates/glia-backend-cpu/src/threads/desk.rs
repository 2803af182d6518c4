//! Where the threads of a team wait for the next job: they stay here for as long as the team lives, spin for moments
//! after a job and then sleep. (A pool's own idle threads yield many times before they sleep, and with another process on
//! the core each yield can cost them a turn of the scheduler.)

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::door::Door;

/// Rounds of spinning before a thread sleeps: about what lies between two steps.
const SPINS: usize = 1000;
/// The number of a job that never comes: the team is done.
const ENDED: usize = usize::MAX;

/// The next job and who waits for it.
pub(super) struct Desk {
    /// How many jobs there have been.
    n_jobs: AtomicUsize,
    may_spin: bool,
    newest: Mutex<Option<Arc<Door>>>,
    wake: Condvar,
}

impl Desk {
    /// A desk where nobody waits yet.
    pub fn new(may_spin: bool) -> Desk {
        Desk {
            n_jobs: AtomicUsize::new(0),
            may_spin,
            newest: Mutex::new(None),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Door>>> {
        self.newest.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Calls all threads to a job.
    pub fn post(&self, door: Arc<Door>) {
        *self.lock() = Some(door);
        self.n_jobs.fetch_add(1, Ordering::SeqCst);
        self.rouse();
    }

    /// Sends the threads away for good.
    pub fn end(&self) {
        self.n_jobs.store(ENDED, Ordering::SeqCst);
        self.rouse();
    }

    fn rouse(&self) {
        // Under the lock: a sleeper is either before its check or already waiting.
        let _newest = self.lock();
        self.wake.notify_all();
    }

    /// Takes part in every job that is posted, until the end.
    pub fn serve(&self, thread: usize) {
        let mut seen = 0;
        while let Some((n_jobs, door)) = self.next(seen) {
            seen = n_jobs;
            door.enter(thread);
        }
    }

    /// The newest job after the first `seen`, and its number.
    fn next(&self, seen: usize) -> Option<(usize, Arc<Door>)> {
        let n_jobs = || self.n_jobs.load(Ordering::SeqCst);
        for _ in 0..if self.may_spin { SPINS } else { 0 } {
            if n_jobs() != seen {
                break;
            }
            std::hint::spin_loop();
        }
        let mut newest = self.lock();
        while n_jobs() == seen {
            newest = self.wake.wait(newest).unwrap_or_else(|e| e.into_inner());
        }
        match n_jobs() {
            ENDED => None,
            n => newest.clone().map(|door| (n, door)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::door::Open;
    use super::*;

    #[test]
    fn threads_come_to_jobs_until_the_end() {
        let desk = Desk::new(true);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..3)
                .map(|i| {
                    scope.spawn({
                        let desk = &desk;
                        move || desk.serve(i)
                    })
                })
                .collect();
            for _ in 0..500 {
                let here = AtomicUsize::new(0);
                let job = |_: usize| {
                    here.fetch_add(1, Ordering::SeqCst);
                };
                let open = Open::new(&job, 2);
                desk.post(open.door());
                drop(open);
                assert_eq!(here.load(Ordering::SeqCst), 2);
            }
            desk.end();
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
    }
}
