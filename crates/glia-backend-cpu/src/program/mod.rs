//! Compiled programs: segments lowered to stages of kernels, and the state that a step changes.

mod builder;
mod compiled;
#[cfg(test)]
mod faults;
mod level0;
mod memory;
mod run;
mod slots;

pub(crate) use builder::Builder;
pub(crate) use compiled::compile;
pub(crate) use level0::execute;
