//! The team: the caller and a private rayon pool, which run one step, or one packing job, at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use glia_core::BackendError;

use super::desk::Desk;
use super::door::Open;

/// Threads of a pool that are all at the desk.
struct Others {
    desk: Arc<Desk>,
    _pool: rayon::ThreadPool,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.desk.end();
    }
}

pub(crate) struct Team {
    /// Where the threads beside the caller wait; `None` when it walks alone.
    others: Option<Others>,
    n_threads: usize,
    may_spin: bool,
    /// Held during a step and during packing: two jobs in one pool could wait for each other's threads.
    turn: Mutex<()>,
}

/// What the system says of it is only that something is short.
fn no_threads(n: usize, error: &rayon::ThreadPoolBuildError) -> BackendError {
    let cure = "use fewer, or raise the limits on this process (ulimit -u, ulimit -v, the container's)";
    BackendError::Other(format!("the system does not start {n} threads: {error}; {cure}").into())
}

impl Team {
    /// A team of `n_threads`.
    ///
    /// # Errors
    /// When the system starts no threads.
    pub fn new(n_threads: usize) -> Result<Team, BackendError> {
        // Asked once: the answer is read from files.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let may_spin = n_threads <= cores;
        let others = match n_threads {
            0 | 1 => None,
            n => {
                let builder = rayon::ThreadPoolBuilder::new().num_threads(n - 1);
                let builder = builder.thread_name(|i| format!("glia-cpu-{}", i + 1));
                let pool = builder.build().map_err(|e| no_threads(n, &e))?;
                let desk = Arc::new(Desk::new(may_spin));
                let theirs = desk.clone();
                pool.spawn_broadcast(move |cx| theirs.serve(cx.index() + 1));
                Some(Others { desk, _pool: pool })
            }
        };
        Ok(Team {
            others,
            n_threads: n_threads.max(1),
            may_spin,
            turn: Mutex::new(()),
        })
    }

    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Whether waiting may spin: with more threads than cores, somebody waited for has no core, and spinning only keeps it
    /// from one.
    pub fn may_spin(&self) -> bool {
        self.may_spin
    }

    /// Waits for the team to be free and keeps it.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Calls `walk` with 0 on this thread and with 1, 2, .. on the others, and waits for all. `walk` must do all the work
    /// whoever comes first, and must not panic.
    pub fn walk(&self, _turn: &MutexGuard<'_, ()>, walk: &(dyn Fn(usize) + Sync)) {
        let Some(others) = &self.others else {
            return walk(0);
        };
        let open = Open::new(walk, self.n_threads - 1);
        others.desk.post(open.door());
        // The caller is one of the team: it begins before the others are awake.
        walk(0);
    }

    /// Calls `job` with every index below `n`, spread over the threads. `job` must not panic.
    pub fn for_each(&self, turn: &MutexGuard<'_, ()>, n: usize, job: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        self.walk(turn, &|_| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    break;
                }
                job(i);
            }
        });
    }
}
