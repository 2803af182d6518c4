//! The values that cross regions during a step: where each lies, and its copies between memory spaces. A value is
//! copied at most once per step and destination, and forgotten after its last reader.

use std::sync::Arc;

use glia_core::{Backend, BackendError, MemorySpace, Tensor};

use super::ExecError;
use crate::plan::{Plan, Region};

/// What was copied between memory spaces in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    pub n_copies: usize,
    pub bytes: usize,
    /// Declared outputs that came back from a device.
    pub read_back_bytes: usize,
}

/// One value: on the host, on devices, or both.
#[derive(Clone, Default)]
struct Wire {
    host: Option<Tensor>,
    device: Option<(MemorySpace, Tensor)>,
    /// Copies in the spaces of further devices.
    others: Vec<(MemorySpace, Tensor)>,
    /// The backend that made it, and its space; none made what is given from outside.
    maker: Option<(usize, MemorySpace)>,
    /// That it was brought to the host is counted already.
    host_counted: bool,
}

/// All values of a step, by wire.
pub(super) struct Wires<'a> {
    plan: &'a Plan,
    backends: &'a [Arc<dyn Backend>],
    all: Vec<Wire>,
    pub copied: Copied,
    /// The backend whose call has not returned well.
    pub at_work: Option<usize>,
}

impl<'a> Wires<'a> {
    pub fn new(plan: &'a Plan, backends: &'a [Arc<dyn Backend>]) -> Wires<'a> {
        Wires {
            plan,
            backends,
            all: vec![Wire::default(); plan.wires.len()],
            copied: Copied::default(),
            at_work: None,
        }
    }

    /// Whether there is a value yet.
    pub fn has(&self, wire: usize) -> bool {
        let wire = &self.all[wire];
        wire.host.is_some() || wire.device.is_some()
    }

    /// A value that no region makes.
    pub fn give(&mut self, wire: usize, tensor: Tensor) {
        self.all[wire].host = Some(tensor);
    }

    /// An output of a region, on its device or, if its program has read it back already, on the host.
    pub fn put(&mut self, wire: usize, region: &Region, tensor: Tensor) -> Result<(), ExecError> {
        let place = &mut self.all[wire];
        place.maker = Some((region.backend, region.space));
        match tensor.check_on_host() {
            Ok(()) => place.host = Some(tensor),
            Err(_) if region.space != MemorySpace::HOST => place.device = Some((region.space, tensor)),
            Err(_) => {
                return Err(ExecError::NotOnHost {
                    backend: region.backend_name.clone(),
                    value: self.plan.graph.value(self.plan.wires[wire]).name.clone(),
                });
            }
        }
        Ok(())
    }

    /// The value as a region takes it: in the region's space; what is given from outside is handed over on the host.
    pub fn fetch(&mut self, wire: usize, region: &Region) -> Result<Tensor, ExecError> {
        if region.space == MemorySpace::HOST {
            return self.on_host(wire);
        }
        let found = &self.all[wire];
        let here = found
            .device
            .iter()
            .chain(&found.others)
            .find(|(space, _)| *space == region.space);
        if let Some((_, tensor)) = here {
            return Ok(tensor.clone());
        }
        let host = self.on_host(wire)?;
        if self.all[wire].maker.is_none() {
            return Ok(host);
        }
        self.at_work = Some(region.backend);
        let tensor = self.backends[region.backend].upload(&host)?;
        self.at_work = None;
        self.count(tensor.size_bytes());
        let place = (region.space, tensor.clone());
        match &mut self.all[wire].device {
            none @ None => *none = Some(place),
            Some(_) => self.all[wire].others.push(place),
        }
        Ok(tensor)
    }

    /// The value on the host for a region to read, or as a stage between two devices.
    fn on_host(&mut self, wire: usize) -> Result<Tensor, ExecError> {
        let tensor = self.bring(wire)?;
        let found = &mut self.all[wire];
        let from_device = found.maker.is_some_and(|(_, space)| space != MemorySpace::HOST);
        if from_device && !found.host_counted {
            found.host_counted = true;
            self.count(tensor.size_bytes());
        }
        Ok(tensor)
    }

    /// The value on the host for the caller.
    pub fn read_back(&mut self, wire: usize) -> Result<Tensor, ExecError> {
        let tensor = self.bring(wire)?;
        if self.all[wire]
            .maker
            .is_some_and(|(_, space)| space != MemorySpace::HOST)
        {
            let bytes = &mut self.copied.read_back_bytes;
            *bytes = bytes.saturating_add(tensor.size_bytes());
        }
        Ok(tensor)
    }

    fn bring(&mut self, wire: usize) -> Result<Tensor, ExecError> {
        let found = &mut self.all[wire];
        if let Some(tensor) = &found.host {
            return Ok(tensor.clone());
        }
        let (Some((backend, _)), Some((_, tensor))) = (found.maker, &found.device) else {
            let name = &self.plan.graph.value(self.plan.wires[wire]).name;
            return Err(ExecError::Backend(BackendError::InvalidInput {
                op: "plan".to_owned(),
                reason: format!("`{name}` is read before it is made"),
            }));
        };
        self.at_work = Some(backend);
        let host = self.backends[backend].download(tensor)?;
        self.at_work = None;
        host.check_on_host()?;
        found.host = Some(host.clone());
        Ok(host)
    }

    /// Forgets what nobody reads after the region.
    pub fn free(&mut self, region: &Region) {
        for &wire in &region.frees {
            self.all[wire] = Wire::default();
        }
    }

    fn count(&mut self, bytes: usize) {
        self.copied.n_copies += 1;
        self.copied.bytes = self.copied.bytes.saturating_add(bytes);
    }
}
