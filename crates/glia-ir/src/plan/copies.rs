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

/// Fills [`Region::exports_to_host`] and [`Region::frees`].
pub(super) fn note_readers(regions: &mut [Region], outputs: &[usize], n_wires: usize) {
    let mut on_device = vec![false; n_wires];
    let mut last: Vec<Option<usize>> = vec![None; n_wires];
    for (i, region) in regions.iter().enumerate() {
        for &wire in region.imports.iter().chain(&region.exports) {
            last[wire] = Some(i);
        }
        if region.space != MemorySpace::HOST {
            region.imports.iter().for_each(|&wire| on_device[wire] = true);
        }
    }
    for &wire in outputs {
        last[wire] = None;
    }
    for (i, region) in regions.iter_mut().enumerate() {
        region.exports_to_host = region.exports.iter().map(|&wire| !on_device[wire]).collect();
        region.frees = (0..n_wires).filter(|&wire| last[wire] == Some(i)).collect();
    }
}

impl Plan {
    /// Bytes that copies take at once in a step of these sizes; `None` on overflow.
    pub(super) fn copied_bytes(&self, sizes: &Sizes) -> Option<usize> {
        let (mut now, mut most) = (0usize, 0usize);
        for (i, region) in self.regions.iter().enumerate() {
            for copy in self.copies.iter().filter(|c| c.before == i) {
                now = now.checked_add(self.copy_bytes(copy, sizes)?)?;
            }
            most = most.max(now);
            for copy in self.copies.iter().filter(|c| region.frees.contains(&c.wire)) {
                now = now.saturating_sub(self.copy_bytes(copy, sizes)?);
            }
        }
        Some(most)
    }

    /// Bytes of a copy in a step of these sizes; `None` on overflow.
    pub fn copy_bytes(&self, copy: &BorderCopy, sizes: &Sizes) -> Option<usize> {
        self.graph.value(self.wires[copy.wire]).ty.size_bytes(sizes)
    }
}
