//! The profile as one JSON object. Numbers of a phase are sums over its forwards.

use glia_backend_cpu::ceiling::Ceilings;
use serde_json::{Value, json};

use super::units::{giga_per_s, ms};
use super::{Phase, Profile, collect::Row};

/// The object.
pub fn of(profile: &Profile) -> Value {
    json!({
        "model": profile.model,
        "machine": profile.machine,
        "ceiling": profile.ceilings.as_ref().map_or(Value::Null, ceilings),
        "phases": profile.phases.iter().map(|p| phase(profile, p)).collect::<Vec<_>>(),
    })
}

/// The ceilings of the most threads measured.
fn ceilings(all: &Ceilings) -> Value {
    all.most_threads().map_or(Value::Null, |c| {
        json!({
            "threads": c.n_threads,
            "read_huge_gb_per_s": c.read_huge / 1e9,
            "read_small_gb_per_s": c.read_small / 1e9,
            "int8_gop_per_s": c.int8_ops / 1e9,
            "int8_kernel": all.int8_kernel,
            "f32_gop_per_s": c.f32_ops / 1e9,
            "f32_kernel": all.f32_kernel,
        })
    })
}

fn phase(profile: &Profile, phase: &Phase) -> Value {
    let rows = |rows: &[Row]| rows.iter().map(|r| row(profile, r)).collect::<Vec<_>>();
    json!({
        "name": phase.name,
        "forwards": phase.forwards.len(),
        "tokens": phase.n_tokens * phase.forwards.len(),
        "ms": ms(phase.wall()),
        "tok_per_s": phase.tokens_per_s(),
        "no_op_ms": ms(phase.rest()),
        "total": row(profile, &phase.total()),
        "ops": rows(&phase.by_op),
        "layers": rows(&phase.by_layer),
    })
}

fn row(profile: &Profile, row: &Row) -> Value {
    let cost = &row.cost;
    json!({
        "name": row.name,
        "calls": row.n_calls,
        "ms": ms(row.time),
        "bytes": cost.bytes(),
        "weight_bytes": cost.weight_bytes,
        "read_bytes": cost.read_bytes,
        "written_bytes": cost.written_bytes,
        "cache_bytes": cost.cache_bytes,
        "ops": cost.ops,
        "gb_per_s": giga_per_s(cost.bytes(), row.time),
        "gop_per_s": giga_per_s(cost.ops, row.time),
        "share_of_ceiling": profile.ceiling().map(|c| row.share_of(c)),
    })
}
