//! The roofline (Williams, Waterman & Patterson 2009): what each op kind reaches over how much it computes per byte,
//! below what bandwidth and arithmetic allow.

use super::super::units::{giga_per_s, ms, three};
use super::super::{Phase, Profile};
use super::svg::{self, Log};
use super::{Colours, escape};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 50.0;

/// The picture and a line that says what is left out.
pub fn of(profile: &Profile, phase: &Phase, colours: &Colours) -> String {
    let rows: Vec<_> = phase
        .by_op
        .iter()
        .filter(|r| r.cost.ops > 0 && r.cost.bytes() > 0 && !r.time.is_zero())
        .collect();
    let intensity = |ops: u64, bytes: u64| ops as f64 / bytes as f64;
    let points: Vec<(f64, f64)> = rows
        .iter()
        .map(|r| (intensity(r.cost.ops, r.cost.bytes()), giga_per_s(r.cost.ops, r.time)))
        .collect();
    let (mut xs, mut ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let roofs: Vec<(f64, String)> = profile.ceiling().map_or(Vec::new(), |c| {
        let roof = |ops: f64, what: &str| (ops / 1e9, format!("{what}, {} Gop/s", three(ops / 1e9)));
        vec![roof(c.int8_ops, "int8"), roof(c.f32_ops, "f32")]
    });
    let bandwidth = profile.ceiling().map(|c| c.read() / 1e9);
    for (peak, _) in &roofs {
        ys.push(*peak);
        xs.extend(bandwidth.map(|b| 4.0 * peak / b));
    }
    let (Some(x), Some(y)) = (
        scale(&xs, MARGIN, WIDTH - MARGIN / 2.0),
        scale(&ys, HEIGHT - MARGIN, MARGIN / 2.0),
    ) else {
        return "<p>No op computes anything.</p>\n".to_owned();
    };
    let mut content = axes(&x, &y);
    for (peak, name) in &roofs {
        let Some(bandwidth) = bandwidth else { break };
        let ridge = peak / bandwidth;
        // Where bandwidth enters the picture, where arithmetic takes over.
        let (first, ridge) = (x.low.max(y.low / bandwidth), ridge.clamp(x.low, x.high));
        let line = [(first, first * bandwidth), (ridge, ridge * bandwidth), (x.high, *peak)];
        content += &svg::path("roof", &line.map(|(a, b)| (x.at(a), y.at(b))));
        content += &svg::text(x.to - 4.0, y.at(*peak) - 5.0, "end", "", name);
    }
    if let Some(bandwidth) = bandwidth {
        let lowest = roofs.iter().map(|(peak, _)| *peak).fold(y.high, f64::min);
        let middle = (x.low.max(y.low / bandwidth) * lowest / bandwidth).sqrt();
        let label = format!("reading, {} GB/s", three(bandwidth));
        content += &svg::text(x.at(middle) - 10.0, y.at(middle * bandwidth) - 8.0, "end", "", &label);
    }
    let most = phase.by_op.iter().map(|r| r.time.as_secs_f64()).fold(1e-12, f64::max);
    for (row, (ops_per_byte, gops)) in rows.iter().zip(&points) {
        let radius = 4.0 + 8.0 * (row.time.as_secs_f64() / most).sqrt();
        let (cx, cy) = (x.at(*ops_per_byte), y.at(*gops));
        let title = format!(
            "{}: {} operations per byte, {} Gop/s, {} ms in all",
            row.name,
            three(*ops_per_byte),
            three(*gops),
            three(ms(row.time))
        );
        content += &format!(
            "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius:.1}\" fill=\"{}\" fill-opacity=\"0.8\"><title>{}</title></circle>\n",
            colours.get(&row.name),
            escape(&title)
        );
        content += &svg::text(cx + radius + 3.0, cy + 4.0, "start", "", &row.name);
    }
    let label = "operations per byte against billions of operations per second";
    let mut part = svg::picture(WIDTH, HEIGHT, label, &content);
    let left_out: Vec<&str> = phase
        .by_op
        .iter()
        .filter(|r| r.cost.ops == 0)
        .map(|r| r.name.as_str())
        .collect();
    if !left_out.is_empty() {
        part += &format!(
            "<p>Not shown, as they compute nothing: {}.</p>\n",
            escape(&left_out.join(", "))
        );
    }
    part
}

/// A scale with some room around these values; `None` without a value that a logarithm takes.
fn scale(values: &[f64], from: f64, to: f64) -> Option<Log> {
    let usable = || values.iter().copied().filter(|v| *v > 0.0 && v.is_finite());
    let (low, high) = (usable().reduce(f64::min)?, usable().reduce(f64::max)?);
    Some(Log {
        low: low / 2.0,
        high: high * 2.0,
        from,
        to,
    })
}

fn axes(x: &Log, y: &Log) -> String {
    let mut out = String::new();
    for tick in x.ticks() {
        out += &svg::path("grid", &[(x.at(tick), y.from), (x.at(tick), y.to)]);
        out += &svg::text(x.at(tick), y.from + 16.0, "middle", "dim", &tick.to_string());
    }
    for tick in y.ticks() {
        out += &svg::path("grid", &[(x.from, y.at(tick)), (x.to, y.at(tick))]);
        out += &svg::text(x.from - 6.0, y.at(tick) + 4.0, "end", "dim", &tick.to_string());
    }
    out += &svg::text(
        (x.from + x.to) / 2.0,
        y.from + 36.0,
        "middle",
        "dim",
        "operations per byte",
    );
    out += &svg::text(6.0, 14.0, "start", "dim", "Gop/s");
    out
}
