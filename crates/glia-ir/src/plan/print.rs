//! The printed plan: memory, who runs what, and the schedule with places and lifetimes, for people.

use std::fmt;

use glia_core::{Instr, Segment, ValueDef, ValueId, ValueKind};

use super::lifetime::{Lifetime, lifetimes};
use super::{Plan, Region};

const LEGEND: &str = "\
how to read the schedule
  #3 %y f32[T, 8] in m0, until #5 = op(%x)   step 3 computes %y, of 8 columns and a row per token, into slot m0 of the
                                             arena; its last reader is step 5, then m0 is free for others
  T tokens of the step, P tokens before it, R rows whose outputs are wanted, S rows of an encoder
  in m0: a slot of the arena   view of %x: its bytes, no copy   state s0: kept between steps   heap: sized by the step
";

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, limits) = (&self.graph, &self.limits);
        writeln!(f, "plan of `{}`: {}", graph.name, count(graph.nodes.len(), "node"))?;
        writeln!(
            f,
            "for steps of up to {} and contexts of up to {}\n",
            count(limits.max_step_tokens, "token"),
            count(limits.max_context, "token")
        )?;
        self.memory_lines(f)?;
        writeln!(f, "\nwho runs what")?;
        for (i, region) in self.regions.iter().enumerate() {
            self.region_line(f, i, region)?;
        }
        let n_borders = self.regions.iter().zip(self.regions.iter().skip(1)).count();
        if n_borders > 0 {
            let crossing = self.regions.iter().skip(1).flat_map(|r| &r.imports);
            let copied = crossing
                .filter(|&&w| self.graph.producer(self.wires[w]).is_some())
                .count();
            writeln!(f, "  {} cross {}", count(copied, "value"), count(n_borders, "border"))?;
        }
        writeln!(f, "\nlong runs and many sequences")?;
        match self.rows.why_not_split() {
            None => writeln!(
                f,
                "  a run longer than a step is split: every row depends on earlier rows only"
            )?,
            Some(why) => writeln!(f, "  a run longer than a step is refused: {why}")?,
        }
        match self.rows.why_not_batch() {
            None => writeln!(f, "  several sequences share a step")?,
            Some(why) => writeln!(f, "  several sequences run one at a time: {why}")?,
        }
        write!(f, "\n{LEGEND}")?;
        for (i, region) in self.regions.iter().enumerate() {
            self.schedule(f, i, region)?;
        }
        Ok(())
    }
}

impl Plan {
    fn memory_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory")?;
        let Ok(memory) = self.memory() else {
            return writeln!(f, "  too large to address");
        };
        let t = self.limits.largest().t;
        let peak = format!("intermediates, peak at {}", count(t, "token"));
        let full = memory.kv_bytes_per_token.saturating_mul(self.limits.max_context);
        let context = format!("KV state of {}", count(self.limits.max_context, "token"));
        for (what, n) in [
            ("weights", memory.weights_bytes),
            (peak.as_str(), memory.peak_bytes),
            ("intermediates, peak at 1 token", memory.peak_one_token_bytes),
            ("KV state per token", memory.kv_bytes_per_token),
            (context.as_str(), full),
        ] {
            writeln!(f, "  {what:<36} {:>14}", bytes(n))?;
        }
        Ok(())
    }

    fn region_line(&self, f: &mut fmt::Formatter<'_>, i: usize, region: &Region) -> fmt::Result {
        let (segment, (start, end)) = (&region.segment, region.nodes);
        let consts = segment
            .values
            .iter()
            .filter(|v| matches!(v.kind, ValueKind::Const(_)))
            .count();
        let name = |node: usize| self.graph.nodes.get(node).map_or("", |n| n.name.as_str());
        write!(
            f,
            "  {}. {} runs {}, `{}` to `{}`",
            i + 1,
            region.backend_name,
            count(end - start, "node"),
            name(start),
            name(end.saturating_sub(1))
        )?;
        for (n, what) in [(consts, "weight"), (segment.states.len(), "state")] {
            if n > 0 {
                write!(f, ", {}", count(n, what))?;
            }
        }
        if region.interpret {
            f.write_str("; some of its nodes are left to the interpreter")?;
        }
        writeln!(f)
    }

    fn schedule(&self, f: &mut fmt::Formatter<'_>, i: usize, region: &Region) -> fmt::Result {
        let segment = &region.segment;
        writeln!(f, "\nschedule {} on {}", i + 1, region.backend_name)?;
        for &id in &segment.inputs {
            let def = segment.value(id);
            writeln!(f, "  input %{} {}", def.name, def.ty)?;
        }
        for (s, state) in segment.states.iter().enumerate() {
            let parts: Vec<String> = state.spec.parts.iter().map(ToString::to_string).collect();
            writeln!(f, "  state s{s} of {}: rows of {}", state.node, parts.join(" and "))?;
        }
        let lives = lifetimes(segment);
        for (at, instr) in segment.instrs.iter().enumerate() {
            write!(f, "  #{at}")?;
            for (k, &id) in instr.outputs.iter().enumerate() {
                f.write_str(if k > 0 { ", " } else { " " })?;
                value(f, segment, segment.value(id), lives[id.index()])?;
            }
            writeln!(f, " = {}({})", instr.op, operands(segment, instr))?;
        }
        for &id in &segment.outputs {
            writeln!(f, "  output %{}", segment.value(id).name)?;
        }
        let largest = self.limits.largest();
        for (m, slot) in segment.slots.iter().enumerate() {
            let users: Vec<String> = slot.users.iter().map(ToString::to_string).collect();
            let size = slot.size_bytes(&largest).map_or("too large".to_owned(), bytes);
            writeln!(f, "  slot m{m}: {size} for {}", users.join(" or "))?;
        }
        Ok(())
    }
}

fn value(f: &mut fmt::Formatter<'_>, segment: &Segment, def: &ValueDef, life: Option<Lifetime>) -> fmt::Result {
    write!(f, "%{} {}", def.name, def.ty)?;
    match &def.kind {
        ValueKind::Temp(slot) => write!(f, " in {slot}")?,
        ValueKind::Dynamic => f.write_str(" on the heap")?,
        ValueKind::Alias(of) => write!(f, " view of %{}", segment.value(*of).name)?,
        ValueKind::State(state, part) => write!(f, " in state {state}.{part}")?,
        ValueKind::Input(_) | ValueKind::Const(_) => {}
    }
    match (&def.kind, life) {
        (ValueKind::Temp(_) | ValueKind::Dynamic, Some(life)) => write!(f, ", until #{}", life.last),
        (ValueKind::Temp(_) | ValueKind::Dynamic, None) => f.write_str(", returned"),
        _ => Ok(()),
    }
}

fn operands(segment: &Segment, instr: &Instr) -> String {
    let name = |id: &ValueId| format!("%{}", segment.value(*id).name);
    instr.inputs.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `512 bytes`, `98.71 MB (98710528 bytes)`: exact, since limits are given in bytes.
fn bytes(n: usize) -> String {
    match n {
        0..10_000 => count(n, "byte"),
        10_000..1_000_000 => format!("{:.2} kB ({n} bytes)", n as f64 / 1e3),
        _ => format!("{:.2} MB ({n} bytes)", n as f64 / 1e6),
    }
}
