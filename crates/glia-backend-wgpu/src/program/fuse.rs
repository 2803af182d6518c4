//! Which instructions become one kernel. What is fused is proved safe here: values between fused instructions have no
//! other reader and are not returned.

use glia_core::Segment;

/// One or several instructions that are lowered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// One alone.
    One(usize),
}

impl Item {
    /// The last of its instructions.
    pub fn last(&self) -> usize {
        match self {
            Item::One(i) => *i,
        }
    }
}

/// The instructions of a segment in groups, in an order in which every operand is there before it is read.
pub(super) fn items(segment: &Segment) -> Vec<Item> {
    (0..segment.instrs.len()).map(Item::One).collect()
}
