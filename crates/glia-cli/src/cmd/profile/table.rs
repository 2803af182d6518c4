//! The profile as text.

use std::io::{self, Write};

use super::units::{giga_per_s, ms, ratio, scaled, three};
use super::{Phase, Profile, collect::Row};

/// Writes the whole profile.
pub fn write(out: &mut impl Write, profile: &Profile) -> io::Result<()> {
    writeln!(out, "model      {}", profile.model)?;
    writeln!(out, "runs on    {}", profile.machine)?;
    if let (Some(c), Some(all)) = (profile.ceiling(), &profile.ceilings) {
        writeln!(
            out,
            "ceiling    reading {} GB/s in huge pages, {} GB/s in 4 KiB pages; int8 {} Gop/s ({}), f32 {} Gop/s ({})",
            three(c.read_huge / 1e9),
            three(c.read_small / 1e9),
            three(c.int8_ops / 1e9),
            all.int8_kernel,
            three(c.f32_ops / 1e9),
            all.f32_kernel
        )?;
    }
    for phase in &profile.phases {
        self::phase(out, profile, phase)?;
    }
    writeln!(
        out,
        "\nA profiled step waits after every op, so that it is slower than one of `glia bench`. Bytes and operations are\n\
         the least that the graph needs; what lies in a cache may exceed the ceiling."
    )
}

fn phase(out: &mut impl Write, profile: &Profile, phase: &Phase) -> io::Result<()> {
    let n = phase.forwards.len();
    let each = match n {
        1 => String::new(),
        n => format!(", mean of {n} forwards"),
    };
    writeln!(
        out,
        "\n{}: {} ms{each}, {} tok/s",
        phase.name,
        three(ms(phase.wall()) / n.max(1) as f64),
        three(phase.tokens_per_s())
    )?;
    for (what, rows) in [("op", &phase.by_op), ("layer", &phase.by_layer)] {
        writeln!(
            out,
            "  {what:<14} {:>6} {:>10} {:>7} {:>9} {:>10} {:>7} {:>7} {:>8}",
            "calls", "ms", "share", "moved", "computed", "GB/s", "Gop/s", "ceiling"
        )?;
        for r in rows {
            row(out, profile, phase, r)?;
        }
        if what == "op" {
            row(out, profile, phase, &phase.total())?;
            writeln!(
                out,
                "  {:<14} {:>6} {:>10.4} {:>6.1}%",
                "no op",
                "",
                ms(phase.rest()) / n.max(1) as f64,
                100.0 * ratio(phase.rest(), phase.wall())
            )?;
        }
    }
    Ok(())
}

/// A row, per forward.
fn row(out: &mut impl Write, profile: &Profile, phase: &Phase, row: &Row) -> io::Result<()> {
    let n = phase.forwards.len().max(1);
    let ceiling = match profile.ceiling() {
        Some(c) => format!("{:.1}%", 100.0 * row.share_of(c)),
        None => "-".to_owned(),
    };
    writeln!(
        out,
        "  {:<14} {:>6} {:>10.4} {:>6.1}% {:>9} {:>10} {:>7} {:>7} {ceiling:>8}",
        row.name,
        row.n_calls / n,
        ms(row.time) / n as f64,
        100.0 * ratio(row.time, phase.wall()),
        scaled(row.cost.bytes() as f64 / n as f64, "B"),
        scaled(row.cost.ops as f64 / n as f64, "op"),
        three(giga_per_s(row.cost.bytes(), row.time)),
        three(giga_per_s(row.cost.ops, row.time)),
    )
}
