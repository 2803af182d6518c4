//! The conformance suite: says whether a backend keeps the vocabulary's promises, and what is wrong when it does not.
//!
//! Cases of every op over dtypes, shapes and extreme values, whole small segments, states, memory, the defaulted
//! methods of the trait and threads, each compared with the f64 oracle of [`reference`](crate::reference), which shares
//! no code with any backend, but for the decoders of quantised blocks that a backend may take from
//! [`quant`](crate::quant) (golden blocks hold those). What a backend does not support is no failure: it shows in the support table.
//!
//! ```
//! use std::sync::Arc;
//! use glia_core::Backend;
//! use glia_core::conformance::{self, Options, ReferenceBackend};
//!
//! let backend: Arc<dyn Backend> = Arc::new(ReferenceBackend);
//! let report = conformance::run(&backend, &Options::only("softmax"));
//! assert!(report.is_ok(), "{report}");
//! ```
//!
//! In the tests of a backend, one `#[test]` per case, so that `cargo test rope` runs those of rope:
//!
//! ```
//! mod suite {
//!     use glia_core::conformance::ReferenceBackend;
//!
//!     glia_core::conformance_tests!(ReferenceBackend);
//! }
//! ```

mod cache;
mod case;
mod command;
mod compare;
mod data;
mod fault;
mod limits;
mod list;
mod memory;
mod methods;
mod names;
mod op;
mod programs;
mod ran;
mod report;
mod segment;
mod state;
mod suite;
mod table;
mod threads;

pub use crate::reference::ReferenceBackend;
pub use case::{Failure, Outcome};
pub use command::main;
pub use op::Timing;
pub use ran::Ran;
pub use report::{Entry, Report};
pub use suite::{IntoBackend, Options, Suite, names, run};
pub use table::keep_block;

use case::{Case, List};

/// Every case, group by group.
fn cases() -> Vec<Case> {
    let mut list = List::default();
    op::add_all(&mut list);
    cache::add(&mut list);
    segment::add(&mut list);
    state::add(&mut list);
    memory::add(&mut list);
    methods::add(&mut list);
    programs::add(&mut list);
    threads::add(&mut list);
    op::add_speed(&mut list);
    segment::add_speed(&mut list);
    let mut groups: Vec<&str> = Vec::new();
    for case in &list.cases {
        if !groups.contains(&case.group) {
            groups.push(case.group);
        }
    }
    list.cases
        .sort_by_key(|case| groups.iter().position(|g| *g == case.group));
    list.cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_passes() {
        let report = run(ReferenceBackend, &Options::default());
        println!("{report}\n{}", report.support_table());
        report.assert_ok();
    }
}
