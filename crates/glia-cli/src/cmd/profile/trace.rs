//! The profile in the trace event format of Chrome, as complete events: `chrome://tracing` and Perfetto read it.
//! Forwards hold steps, steps hold nodes; nodes that run at the same time have rows of their own.

use std::time::Duration;

use serde_json::{Value, json};

use super::Profile;
use super::collect::Span;

/// The trace.
pub fn of(profile: &Profile) -> Value {
    let mut events = vec![
        name_of("process_name", format!("glia: {}", profile.model)),
        name_of("thread_name", profile.machine.clone()),
    ];
    for phase in &profile.phases {
        let mut inside: Vec<(Span, u8, Value)> = Vec::new();
        for (i, forward) in phase.forwards.iter().enumerate() {
            let name = format!("{} ({} of {})", phase.name, i + 1, phase.forwards.len());
            let args = json!({ "tokens": phase.n_tokens });
            inside.push((*forward, 0, complete(&name, "forward", *forward, 0, args)));
        }
        for step in &phase.steps {
            let name = format!("step of {} behind {}", step.n_rows, step.past);
            let args = json!({ "rows": step.n_rows, "past": step.past });
            inside.push((step.span, 1, complete(&name, "step", step.span, 0, args)));
        }
        let mut nodes: Vec<_> = phase.nodes.iter().collect();
        nodes.sort_by_key(|node| node.span.start);
        let mut lanes: Vec<Duration> = Vec::new();
        for node in nodes {
            let (start, end) = (node.span.start, node.span.start + node.span.time);
            let lane = lanes.iter().position(|busy| *busy <= start).unwrap_or(lanes.len());
            match lanes.get_mut(lane) {
                Some(busy) => *busy = end,
                None => lanes.push(end),
            }
            let args = json!({
                "node": node.node,
                "op": node.kind,
                "shape": node.shape,
                "bytes": node.cost.bytes(),
                "ops": node.cost.ops,
            });
            inside.push((node.span, 2, complete(node.kind, "node", node.span, lane, args)));
        }
        // What begins first comes first; of what begins together, the outer one.
        inside.sort_by_key(|(span, depth, _)| (span.start, *depth));
        events.extend(inside.into_iter().map(|(_, _, event)| event));
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

fn name_of(what: &str, name: String) -> Value {
    json!({ "name": what, "ph": "M", "pid": 1, "tid": 1, "args": { "name": name } })
}

fn complete(name: &str, category: &str, span: Span, lane: usize, args: Value) -> Value {
    json!({
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": 1,
        "tid": lane + 1,
        "ts": us(span.start),
        "dur": us(span.time),
        "args": args,
    })
}

/// Microseconds, to the nanosecond.
fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
