//! Whole small segments.

#[allow(dead_code)]
mod builder;

pub(super) use builder::{Built, SegmentBuilder, Slots};
