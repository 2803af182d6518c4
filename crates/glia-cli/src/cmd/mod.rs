//! One module per command.

pub mod backends;
pub mod bench;
pub mod compare;
pub mod devices;
pub mod engine;
pub mod inspect;
pub mod perplexity;
pub mod profile;
pub mod run;
pub mod text;
pub mod timings;
