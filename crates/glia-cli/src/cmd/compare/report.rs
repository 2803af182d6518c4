//! What a comparison found, as a table and as JSON.

use std::io::{self, Write};

use glia_ir::compare::NodeDifference;
use serde_json::{Value, json};

use super::logits::Divergence;
use crate::cmd::profile::Layers;

/// All that was found.
pub struct Report {
    pub model: String,
    /// The sides as they were asked for, reference first.
    pub sides: [String; 2],
    /// Tokens of each step.
    pub steps: Vec<usize>,
    pub piece_by_piece: bool,
    /// Errors beyond this are said to part the sides.
    pub limit: f64,
    /// Of runs of the whole model on each side.
    pub logits: Divergence,
    pub found: Vec<NodeDifference>,
}

/// The values of one layer.
struct Row<'a> {
    layer: String,
    n_values: usize,
    worst: &'a NodeDifference,
    last: &'a NodeDifference,
}

impl Report {
    /// The value with the largest error.
    pub fn worst(&self) -> Option<&NodeDifference> {
        worst(&self.found)
    }

    /// The first value beyond the limit.
    fn first_beyond(&self) -> Option<&NodeDifference> {
        self.found.iter().find(|d| d.difference.error() > self.limit)
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let mut layers = Layers::default();
        let names: Vec<String> = self.found.iter().map(|d| layers.of(&d.node)).collect();
        let mut rows = Vec::new();
        let mut start = 0;
        for run in names.chunk_by(|a, b| a == b) {
            let values = &self.found[start..start + run.len()];
            start += run.len();
            if let (Some(worst), [.., last]) = (worst(values), values) {
                rows.push(Row {
                    layer: run[0].clone(),
                    n_values: values.len(),
                    worst,
                    last,
                });
            }
        }
        rows
    }

    /// For people.
    pub fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let n_tokens: usize = self.steps.iter().sum();
        writeln!(
            out,
            "{}: {} is the reference, {} is compared with it",
            self.model, self.sides[0], self.sides[1]
        )?;
        write!(out, "{n_tokens} token{}", if n_tokens == 1 { "" } else { "s" })?;
        if let [first, rest @ ..] = &self.steps[..]
            && !rest.is_empty()
        {
            write!(out, ", {first} at once and {} one at a time", rest.len())?;
        }
        writeln!(out, "; errors are normalised: |b - a| / |a| over all elements")?;
        if self.piece_by_piece {
            writeln!(
                out,
                "each piece of the graph begins with equal values: errors do not add up"
            )?;
        }
        writeln!(
            out,
            "\n{:<12} {:>6} {:>10}  {:<40} {:>10}",
            "layer", "values", "largest", "at", "last"
        )?;
        for row in self.rows() {
            writeln!(
                out,
                "{:<12} {:>6} {:>10}  {:<40} {:>10}",
                row.layer,
                row.n_values,
                error(row.worst.difference.error()),
                row.worst.value,
                error(row.last.difference.error())
            )?;
        }
        writeln!(out)?;
        match self.first_beyond() {
            None => writeln!(out, "no node parts: every error is within {:e}", self.limit)?,
            Some(d) => {
                writeln!(out, "the first node to part, with an error beyond {:e}:", self.limit)?;
                writeln!(out, "  `{}` = {} {}", d.value, d.op, d.ty)?;
                writeln!(out, "  ran on {} and on {}", d.backends[0], d.backends[1])?;
                writeln!(
                    out,
                    "  error {}, that of its inputs {}; one element differs by {}",
                    error(d.difference.error()),
                    error(d.input_error),
                    error(d.difference.max_abs())
                )?;
            }
        }
        let logits = &self.logits;
        writeln!(
            out,
            "logits of the whole model: KL divergence {} in the mean and {} at most, the same top token in {:.1} % of {} rows",
            error(logits.mean_kl()),
            error(logits.max_kl),
            100.0 * logits.top1_agreement(),
            logits.n_rows
        )
    }

    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let layers: Vec<Value> = self
            .rows()
            .iter()
            .map(|row| {
                json!({
                    "layer": row.layer, "n_values": row.n_values, "worst": row.worst.value,
                    "largest_error": number(row.worst.difference.error()), "last_error": number(row.last.difference.error()),
                })
            })
            .collect();
        let l = &self.logits;
        let logits = json!({
            "mean_kl": number(l.mean_kl()), "max_kl": number(l.max_kl), "top1_agreement": l.top1_agreement(),
            "n_rows": l.n_rows,
        });
        let object = json!({
            "model": self.model,
            "sides": self.sides,
            "steps": self.steps,
            "tokens": self.steps.iter().sum::<usize>(),
            "piece_by_piece": self.piece_by_piece,
            "limit": self.limit,
            "first_beyond": self.first_beyond().map(node),
            "layers": layers,
            "nodes": self.found.iter().map(node).collect::<Vec<_>>(),
            "logits": logits,
        });
        writeln!(out, "{object}")
    }
}

/// Of equal errors the first.
fn worst(values: &[NodeDifference]) -> Option<&NodeDifference> {
    values.iter().reduce(|a, b| {
        if b.difference.error() > a.difference.error() {
            b
        } else {
            a
        }
    })
}

fn node(d: &NodeDifference) -> Value {
    json!({
        "node": d.node, "op": d.op.kind(), "value": d.value, "type": d.ty, "backends": d.backends,
        "error": number(d.difference.error()), "input_error": number(d.input_error),
        "max_abs": number(d.difference.max_abs()),
    })
}

/// JSON has no infinity.
fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else {
        json!(value.to_string())
    }
}

fn error(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    format!("{value:.2e}")
}
