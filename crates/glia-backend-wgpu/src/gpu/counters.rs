//! What the backend has done on the device so far. Tests prove with them that a step builds nothing.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers since the device was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        /// The same, while they count.
        #[derive(Debug, Default)]
        pub(crate) struct Counting { $(pub $name: AtomicU64,)* }

        impl Counting {
            pub fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counters {
            /// What has been added since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Counters) -> Counters {
                Counters { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Buffers created.
    buffers,
    /// Bytes of the buffers that live now.
    buffer_bytes,
    /// Bind groups created.
    bind_groups,
    /// Pipelines compiled.
    pipelines,
    /// Submissions to the queue.
    submits,
    /// Compute dispatches recorded.
    dispatches,
    /// Bytes read back to the host.
    read_bytes,
    /// Bytes written from the host.
    written_bytes,
    /// Longest time from a submission to its end that was waited for, in microseconds.
    longest_wait_us,
}

impl Counting {
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub fn sub(counter: &AtomicU64, n: u64) {
        counter.fetch_sub(n, Ordering::Relaxed);
    }

    pub fn max(counter: &AtomicU64, n: u64) {
        counter.fetch_max(n, Ordering::Relaxed);
    }
}
