//! The printed plan: who runs what, the schedule with lifetimes, and the memory it takes.

use std::fmt;

use super::Plan;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan of `{}`: {} nodes", self.graph.name, self.graph.nodes.len())?;
        for region in &self.regions {
            writeln!(f, "on {}", region.backend_name)?;
            write!(f, "{}", region.segment)?;
        }
        Ok(())
    }
}
