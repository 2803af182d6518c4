//! Tables of sums with a bar each.

use super::super::collect::Row;
use super::super::units::{giga_per_s, ms, ratio, scaled, three};
use super::super::{Phase, Profile};
use super::escape;

/// Rows with a bar as long as their share of the time; `with_sum` adds all ops and what is none.
pub fn of(
    profile: &Profile,
    phase: &Phase,
    rows: &[Row],
    with_sum: bool,
    colour: &dyn Fn(&str) -> &'static str,
) -> String {
    let mut table = String::from(
        "<table><tr><th></th><th></th><th>calls</th><th>ms</th><th>share</th><th>moved</th><th>computed</th><th>GB/s</th>\
         <th>Gop/s</th><th>ceiling</th></tr>\n",
    );
    let longest = rows.iter().map(|r| r.time).max().unwrap_or_default();
    for row in rows {
        let width = 100.0 * ratio(row.time, longest);
        let bar = format!("<i style=\"width:{width:.1}%;background:{}\"></i>", colour(&row.name));
        table += &line(profile, phase, row, &bar, "");
    }
    let n = phase.forwards.len().max(1);
    if with_sum {
        table += &line(profile, phase, &phase.total(), "", " class=\"sum\"");
        table += &format!(
            "<tr><td>no op</td><td></td><td></td><td>{:.4}</td><td>{:.1} %</td><td colspan=\"5\"></td></tr>\n",
            ms(phase.rest()) / n as f64,
            100.0 * ratio(phase.rest(), phase.wall())
        );
    }
    table += "</table>\n";
    if n > 1 {
        table += &format!("<p>Means of {n} forwards.</p>\n");
    }
    table
}

fn line(profile: &Profile, phase: &Phase, row: &Row, bar: &str, class: &str) -> String {
    let n = phase.forwards.len().max(1);
    let ceiling = match profile.ceiling() {
        Some(c) => format!("{:.1} %", 100.0 * row.share_of(c)),
        None => "-".to_owned(),
    };
    let cells = [
        (row.n_calls / n).to_string(),
        format!("{:.4}", ms(row.time) / n as f64),
        format!("{:.1} %", 100.0 * ratio(row.time, phase.wall())),
        scaled(row.cost.bytes() as f64 / n as f64, "B"),
        scaled(row.cost.ops as f64 / n as f64, "op"),
        three(giga_per_s(row.cost.bytes(), row.time)),
        three(giga_per_s(row.cost.ops, row.time)),
        ceiling,
    ];
    let cells: String = cells.iter().map(|c| format!("<td>{c}</td>")).collect();
    format!(
        "<tr{class}><td>{}</td><td class=\"bar\">{bar}</td>{cells}</tr>\n",
        escape(&row.name)
    )
}
