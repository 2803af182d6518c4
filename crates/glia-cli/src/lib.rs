//! The parts of the `glia` program that other programs may use: finding and fetching models.
//!
//! ```
//! use glia_cli::fetch::{self, Located};
//!
//! assert!(fetch::is_catalog_name("smollm2"));
//! // The model that is compiled in needs no network.
//! assert!(matches!(fetch::resolve(Some("demo"), true)?, Located::Demo));
//! # Ok::<(), fetch::FetchError>(())
//! ```

#![forbid(unsafe_code)]

pub mod fetch;
