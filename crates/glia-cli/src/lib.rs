//! The parts of the `glia` program that other programs may use: finding and fetching models.

#![forbid(unsafe_code)]

pub mod fetch;
