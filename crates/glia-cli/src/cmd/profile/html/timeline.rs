//! One forward in time: a lane per op kind, a box per node.

use std::time::Duration;

use super::super::Phase;
use super::super::collect::{NodeSpan, Span};
use super::super::units::{ms, scaled, three};
use super::{Colours, escape, svg};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 110.0;
const LANE: f64 = 20.0;
/// Lanes; kinds beyond share the last.
const N_LANES: usize = 10;

/// The picture of the forward of median length.
pub fn of(phase: &Phase, colours: &Colours) -> String {
    let mut order: Vec<&Span> = phase.forwards.iter().collect();
    order.sort_by_key(|f| f.time);
    let Some(forward) = order.get(order.len() / 2) else {
        return String::new();
    };
    let end = forward.start + forward.time;
    let nodes: Vec<&NodeSpan> = phase
        .nodes
        .iter()
        .filter(|n| n.span.start >= forward.start && n.span.start + n.span.time <= end)
        .collect();
    let kinds: Vec<&str> = phase.by_op.iter().map(|r| r.name.as_str()).collect();
    let n_lanes = kinds.len().min(N_LANES);
    let per_second = (WIDTH - LEFT - 10.0) / forward.time.as_secs_f64().max(1e-9);
    let x = |at: Duration| LEFT + at.saturating_sub(forward.start).as_secs_f64() * per_second;
    let height = LANE * n_lanes as f64 + 40.0;
    let mut content = String::new();
    for quarter in 0..=4u32 {
        let at = forward.start + forward.time * quarter / 4;
        content += &svg::path("grid", &[(x(at), 6.0), (x(at), height - 22.0)]);
        let label = format!("{} ms", three(ms(at - forward.start)));
        let anchor = if quarter == 4 { "end" } else { "middle" };
        content += &svg::text(x(at), height - 8.0, anchor, "dim", &label);
    }
    for (lane, kind) in kinds.iter().take(n_lanes).enumerate() {
        let others = lane + 1 == N_LANES && kinds.len() > N_LANES;
        let name = if others { "others" } else { kind };
        content += &svg::text(LEFT - 8.0, 10.0 + LANE * lane as f64 + 13.0, "end", "", name);
    }
    for node in nodes {
        let lane = kinds.iter().position(|k| *k == node.kind).unwrap_or(0).min(N_LANES - 1);
        content += &format!(
            "<rect x=\"{:.2}\" y=\"{:.0}\" width=\"{:.2}\" height=\"{:.0}\" fill=\"{}\"><title>{}</title></rect>\n",
            x(node.span.start),
            10.0 + LANE * lane as f64 + 2.0,
            (node.span.time.as_secs_f64() * per_second).max(0.4),
            LANE - 4.0,
            colours.get(node.kind),
            escape(&format!(
                "{}: {} ms, {}, {}",
                node.node,
                three(ms(node.span.time)),
                node.shape,
                scaled(node.cost.bytes() as f64, "B")
            ))
        );
    }
    svg::picture(WIDTH, height, "nodes of one forward in time", &content)
}
