//! A borrowed job that the threads of a team come to. Its owner waits until all have come and gone: a waiting owner
//! leaves its core to a thread that another process keeps from its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Rounds of spinning for those who are about to leave.
const SPINS: usize = 1000;

/// What the threads hold: it may outlive the job, but not be entered once more than it was made for.
pub(super) struct Door {
    /// Threads that may still enter.
    expected: AtomicUsize,
    /// Threads that have not left.
    left: AtomicUsize,
    job: *const (dyn Fn(usize) + Sync),
    lock: Mutex<()>,
    empty: Condvar,
}

// SAFETY: the job is `Sync`, and touched only by the threads that its owner waits for.
unsafe impl Send for Door {}
// SAFETY: as above.
unsafe impl Sync for Door {}

impl Door {
    /// Does the job; nothing for more threads than were expected.
    pub fn enter(&self, thread: usize) {
        let take = |n: usize| n.checked_sub(1);
        if self
            .expected
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_err()
        {
            return;
        }
        // SAFETY: one of those expected: `Open::drop` waits for it to leave, and the job lives until then.
        let job = unsafe { &*self.job };
        job(thread);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
            self.empty.notify_all();
        }
    }
}

/// The owner's side: dropping it waits for all.
pub(super) struct Open<'a> {
    door: Arc<Door>,
    _job: std::marker::PhantomData<Job<'a>>,
}

impl<'a> Open<'a> {
    /// A job for `n` threads beside the owner: all of them must come.
    pub fn new(job: Job<'a>, n: usize) -> Open<'a> {
        // SAFETY: only the lifetime changes; `Drop` sees to it that nobody uses the job after `'a`.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'a>, Job<'static>>(job) };
        Open {
            door: Arc::new(Door {
                expected: AtomicUsize::new(n),
                left: AtomicUsize::new(n),
                job,
                lock: Mutex::new(()),
                empty: Condvar::new(),
            }),
            _job: std::marker::PhantomData,
        }
    }

    pub fn door(&self) -> Arc<Door> {
        self.door.clone()
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let door = &self.door;
        let empty = || door.left.load(Ordering::SeqCst) == 0;
        for _ in 0..SPINS {
            if empty() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = door.lock.lock().unwrap_or_else(|e| e.into_inner());
        while !empty() {
            guard = door.empty.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_is_expected_is_waited_for_and_nobody_else_is_let_in() {
        let done = AtomicUsize::new(0);
        let job = |_: usize| {
            std::thread::sleep(Duration::from_millis(30));
            done.fetch_add(1, Ordering::SeqCst);
        };
        let open = Open::new(&job, 1);
        let (early, late) = (open.door(), open.door());
        let inside = std::thread::spawn(move || early.enter(1));
        drop(open);
        assert_eq!(done.load(Ordering::SeqCst), 1);
        late.enter(2);
        assert_eq!(done.load(Ordering::SeqCst), 1);
        inside.join().unwrap();
    }
}
