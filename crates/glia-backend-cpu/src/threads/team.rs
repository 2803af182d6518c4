//! The team: the caller and a private rayon pool, which run one step, or one packing job, at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use glia_core::BackendError;

pub(crate) struct Team {
    /// The threads beside the caller; `None` when it walks alone.
    pool: Option<rayon::ThreadPool>,
    n_threads: usize,
    /// Held during a step and during packing: two jobs in one pool could wait for each other's threads.
    turn: Mutex<()>,
}

impl Team {
    /// A team of `n_threads`.
    ///
    /// # Errors
    /// When the system starts no threads.
    pub fn new(n_threads: usize) -> Result<Team, BackendError> {
        let pool = match n_threads {
            0 | 1 => None,
            n => {
                let builder = rayon::ThreadPoolBuilder::new().num_threads(n - 1);
                let builder = builder.thread_name(|i| format!("glia-cpu-{}", i + 1));
                Some(builder.build().map_err(|e| BackendError::Other(Box::new(e)))?)
            }
        };
        Ok(Team {
            pool,
            n_threads: n_threads.max(1),
            turn: Mutex::new(()),
        })
    }

    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Waits for the team to be free and keeps it.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Calls `walk` with 0, 1, .. on every thread at once and waits for all. `walk` must not panic.
    pub fn walk(&self, _turn: &MutexGuard<'_, ()>, walk: &(dyn Fn(usize) + Sync)) {
        match &self.pool {
            None => walk(0),
            // The caller is one of the team: it begins before the others are awake.
            Some(pool) => pool.in_place_scope(|scope| {
                scope.spawn_broadcast(|_, cx| walk(cx.index() + 1));
                walk(0);
            }),
        }
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
