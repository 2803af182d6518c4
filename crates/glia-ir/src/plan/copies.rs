//! Borders between memory spaces: which values are copied, from where to where, and before which region. Each value is
//! copied once per step and destination, however many regions read it there.

use glia_core::{MemorySpace, Sizes};

use super::{Plan, Region};

/// A copy that every step makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorderCopy {
    /// What is copied: an index into [`Plan::wires`].
    pub wire: usize,
    /// Index of the backend whose memory it comes from; `None` is main memory.
    pub from: Option<usize>,
    /// Index of the backend whose memory it goes to; `None` is main memory. Between two devices lies a stop there.
    pub to: Option<usize>,
    /// Index of the region that reads it first.
    pub before: usize,
}

/// All copies, in the order of the regions that read them. What the caller gives and what is injected is not copied:
/// it is handed over on the host.
pub(super) fn copies(regions: &[Region], n_wires: usize) -> Vec<BorderCopy> {
    let mut copies = Vec::new();
    // Per wire: who made it, and the spaces in which it lies.
    let mut made: Vec<Option<(usize, Vec<MemorySpace>)>> = vec![None; n_wires];
    for (before, region) in regions.iter().enumerate() {
        for &wire in &region.imports {
            let Some((maker, spaces)) = &mut made[wire] else {
                continue;
            };
            if spaces.contains(&region.space) {
                continue;
            }
            if !spaces.contains(&MemorySpace::HOST) {
                spaces.push(MemorySpace::HOST);
                copies.push(BorderCopy {
                    wire,
                    from: Some(*maker),
                    to: None,
                    before,
                });
            }
            if region.space != MemorySpace::HOST {
                spaces.push(region.space);
                copies.push(BorderCopy {
                    wire,
                    from: None,
                    to: Some(region.backend),
                    before,
                });
            }
        }
        for &wire in &region.exports {
            made[wire] = Some((region.backend, vec![region.space]));
        }
    }
    copies
}

/// Fills [`Region::exports_to_host`].
pub(super) fn note_host_readers(regions: &mut [Region], n_wires: usize) {
    let mut on_device = vec![false; n_wires];
    for region in regions.iter().filter(|r| r.space != MemorySpace::HOST) {
        region.imports.iter().for_each(|&wire| on_device[wire] = true);
    }
    for region in regions {
        region.exports_to_host = region.exports.iter().map(|&wire| !on_device[wire]).collect();
    }
}

impl Plan {
    /// Bytes of a copy in a step of these sizes; `None` on overflow.
    pub fn copy_bytes(&self, copy: &BorderCopy, sizes: &Sizes) -> Option<usize> {
        self.graph.value(self.wires[copy.wire]).ty.size_bytes(sizes)
    }
}
