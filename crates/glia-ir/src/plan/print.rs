//! The printed plan: memory, who runs what, and the schedule with places and lifetimes, for people.

use std::fmt;

use glia_core::{Instr, Segment, Sizes, StateKind, StateSpec, ValueDef, ValueId, ValueKind};

use super::lifetime::{Lifetime, lifetimes};
use super::{BorderCopy, Plan, Region};

const INTRO: &str = "\
A model is a graph of nodes, one operation each. This is how a step, the work on some tokens, runs through it: which
backend runs which nodes, in which order, and where values lie meanwhile. Weights stay as they are; the KV cache grows
with every token; intermediate values live from the node that makes them to the last that reads them, then their
memory is used again.
";

const LEGEND: &str = "\
how to read the schedule
  #3 %y f32[T, 8] in m0, until #5 = op(%x)   node 3 makes %y from %x by `op`: 8 columns, a row per token. It lies in
                                             slot m0 until node 5 has read it; then m0 is free for other values
  T tokens of the step, P tokens before it, R rows whose outputs are wanted, S rows of an encoder
  in m0        a slot of the intermediate memory, listed with its size at the end of the schedule
  view of %x   the bytes of %x under another shape: nothing is copied
  state s0     kept between steps, such as the KV cache; stored in the dtypes of its own line
  on the heap  a size known only when the step runs
  returned     an output of the graph, or a value that a later schedule reads
  copy %x      brought to another memory before the schedule begins, once per step
";

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, limits) = (&self.graph, &self.limits);
        writeln!(f, "plan of `{}`: {}", graph.name, count(graph.nodes.len(), "node"))?;
        writeln!(
            f,
            "for steps of up to {} and contexts of up to {}\n\n{INTRO}",
            count(limits.max_step_tokens, "token"),
            count(limits.max_context, "token")
        )?;
        self.memory_lines(f)?;
        writeln!(f, "\nwho runs what")?;
        for (i, region) in self.regions.iter().enumerate() {
            self.region_line(f, i, region)?;
        }
        self.fallbacks_and_borders(f)?;
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
        let largest = count(self.limits.largest().t, "token");
        let full = memory.kv_bytes_per_token.saturating_mul(self.limits.max_context);
        let context = format!("KV cache of {}", count(self.limits.max_context, "token"));
        let peak = format!(" in a step of {largest}, all of whose outputs are wanted");
        for (what, n, note) in [
            ("weights", memory.weights_bytes, ""),
            ("peak of intermediate memory", memory.peak_bytes, peak.as_str()),
            ("the same in a step of 1 token", memory.peak_one_token_bytes, ""),
            ("KV cache per token", memory.kv_bytes_per_token, ""),
            (context.as_str(), full, ""),
        ] {
            writeln!(f, "  {what:<30} {:>14}{note}", bytes(n))?;
        }
        Ok(())
    }

    /// What does not run on the first backend, and what crosses borders.
    fn fallbacks_and_borders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, all) = (self.fallbacks.len(), count(self.graph.nodes.len(), "node"));
        let first = self.backends.first().map_or("", String::as_str);
        if n > 0 {
            let do_not = if n == 1 { "does not" } else { "do not" };
            writeln!(f, "  {n} of {all} {do_not} run on {first} itself")?;
            self.fallback_lines()
                .into_iter()
                .try_for_each(|line| writeln!(f, "    {line}"))?;
        } else if self.backends.len() > 1 {
            writeln!(f, "  all {all} run on {first}")?;
        }
        if self.regions.len() < 2 {
            return Ok(());
        }
        let n_borders = count(self.regions.len() - 1, "border");
        if self.copies.is_empty() {
            return writeln!(f, "  nothing is copied at {n_borders}: the regions share a memory");
        }
        let size = |sizes: &Sizes| {
            let bytes = |copy| self.copy_bytes(copy, sizes);
            self.copies
                .iter()
                .try_fold(0usize, |n, copy| n.checked_add(bytes(copy)?))
        };
        let (one, largest) = (self.limits.one_token(), self.limits.largest());
        let said = |n: Option<usize>| n.map_or("too many bytes".to_owned(), bytes);
        let copies = self.copies.len();
        writeln!(
            f,
            "  {} at {n_borders}: {} in a step of 1 token, {} in a step of {}",
            if copies == 1 {
                "1 copy".to_owned()
            } else {
                format!("{copies} copies")
            },
            said(size(&one)),
            said(size(&largest)),
            count(largest.t, "token")
        )
    }

    fn copy_line(&self, f: &mut fmt::Formatter<'_>, copy: &BorderCopy) -> fmt::Result {
        let value = self.graph.value(self.wires[copy.wire]);
        let place = |backend: Option<usize>| match backend {
            Some(backend) => format!("the memory of {}", self.backends[backend]),
            None => "main memory".to_owned(),
        };
        let size = self.copy_bytes(copy, &self.limits.one_token());
        writeln!(
            f,
            "  copy %{} {} from {} to {}: {} in a step of 1 token",
            value.name,
            value.ty,
            place(copy.from),
            place(copy.to),
            size.map_or("too many bytes".to_owned(), bytes)
        )
    }

    /// The types in which a state keeps its parts; KV rows have the dtypes of the limits.
    fn stored(&self, spec: &StateSpec) -> String {
        let kv = self.limits.kv_dtypes;
        let parts = spec.parts.iter().enumerate().map(|(i, part)| {
            let mut part = part.clone();
            if let (StateKind::Rows, Some(dtype)) = (&spec.kind, kv.get(i)) {
                part.dtype = *dtype;
            }
            part.to_string()
        });
        parts.collect::<Vec<_>>().join(" and ")
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
        let copies = self.copies.iter().filter(|copy| copy.before == i);
        copies.into_iter().try_for_each(|copy| self.copy_line(f, copy))?;
        for &id in &segment.inputs {
            let def = segment.value(id);
            writeln!(f, "  input %{} {}", def.name, def.ty)?;
        }
        for (s, state) in segment.states.iter().enumerate() {
            let per = if state.spec.kind == StateKind::Rows {
                "per token "
            } else {
                ""
            };
            writeln!(f, "  state s{s} of {}: {per}{}", state.node, self.stored(&state.spec))?;
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
