//! A borrowed job that threads of a pool may join while it is open. A thread that wakes too late finds the door closed and
//! leaves; nobody waits for it. (A scope would: with another process on its core, that takes as long as a whole step.)

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Set when no one may enter; the other bits count who is inside.
const CLOSED: usize = 1 << (usize::BITS - 1);
/// Rounds of spinning for those inside, who are about to leave.
const SPINS: usize = 1000;

/// What pool threads hold: it may outlive the job.
pub(super) struct Door {
    state: AtomicUsize,
    job: *const (dyn Fn(usize) + Sync),
    lock: Mutex<()>,
    left: Condvar,
}

// SAFETY: the job is `Sync`, and touched only between `enter` and the closing, which waits for all who are inside.
unsafe impl Send for Door {}
// SAFETY: as above.
unsafe impl Sync for Door {}

impl Door {
    /// Does the job, unless it is too late.
    pub fn enter(&self, thread: usize) {
        if self.state.fetch_add(1, Ordering::SeqCst) & CLOSED == 0 {
            // SAFETY: counted as inside before the door was closed: `Open::drop` waits, and the job lives until then.
            let job = unsafe { &*self.job };
            job(thread);
        }
        if self.state.fetch_sub(1, Ordering::SeqCst) == CLOSED + 1 {
            let _guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
            self.left.notify_all();
        }
    }
}

/// The owner's side: dropping it closes the door and waits for those inside.
pub(super) struct Open<'a> {
    door: Arc<Door>,
    _job: std::marker::PhantomData<Job<'a>>,
}

impl<'a> Open<'a> {
    pub fn new(job: Job<'a>) -> Open<'a> {
        // SAFETY: only the lifetime changes; `Drop` sees to it that nobody uses the job after `'a`.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'a>, Job<'static>>(job) };
        Open {
            door: Arc::new(Door {
                state: AtomicUsize::new(0),
                job,
                lock: Mutex::new(()),
                left: Condvar::new(),
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
        door.state.fetch_or(CLOSED, Ordering::SeqCst);
        let empty = || door.state.load(Ordering::SeqCst) == CLOSED;
        for _ in 0..SPINS {
            if empty() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = door.lock.lock().unwrap_or_else(|e| e.into_inner());
        while !empty() {
            guard = door.left.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_is_inside_is_waited_for_and_who_is_late_is_not_let_in() {
        let done = AtomicUsize::new(0);
        let job = |_: usize| {
            std::thread::sleep(Duration::from_millis(30));
            done.fetch_add(1, Ordering::SeqCst);
        };
        let open = Open::new(&job);
        let (early, late) = (open.door(), open.door());
        let inside = std::thread::spawn(move || early.enter(1));
        while open.door.state.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(open);
        assert_eq!(done.load(Ordering::SeqCst), 1);
        late.enter(2);
        assert_eq!(done.load(Ordering::SeqCst), 1);
        inside.join().unwrap();
    }

    #[test]
    fn many_jobs_in_a_row() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for _ in 0..2000 {
            let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let job = |_: usize| {
                begun.fetch_add(1, Ordering::SeqCst);
                ended.fetch_add(1, Ordering::SeqCst);
            };
            let open = Open::new(&job);
            let door = open.door();
            pool.spawn_broadcast(move |cx| door.enter(cx.index()));
            job(0);
            drop(open);
            assert_eq!(begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        }
    }
}
