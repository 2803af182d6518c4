//! The profile as one HTML file that needs nothing else: no script, no style sheet, no picture from elsewhere.

mod bars;
mod roofline;
mod svg;
mod timeline;

use super::units::{giga_per_s, ms, ratio, three};
use super::{Phase, Profile};

/// Colours of op kinds, the longest first; all others share the last.
const COLOURS: [&str; 9] = [
    "#3b78c2", "#d9822b", "#3f9c5c", "#b9475a", "#7a5fc0", "#2f9ba8", "#a8893a", "#c264a1", "#8a8f98",
];

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1c2024;--dim:#667079;--bg:#fcfcfb;--line:#dfe2e5;--card:#fff}
@media(prefers-color-scheme:dark){:root{--fg:#e6e8ea;--dim:#98a1a9;--bg:#15181b;--line:#32383d;--card:#1c2024}}
body{margin:2rem auto;max-width:70rem;padding:0 1rem;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.2rem;margin:2.5rem 0 .5rem;border-top:1px solid var(--line);padding-top:1.5rem}
h3{font-size:1rem;margin:1.5rem 0 .3rem}p{color:var(--dim);margin:.3rem 0}
.tiles{display:flex;flex-wrap:wrap;gap:.7rem;margin:.8rem 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.5rem .9rem}
.tile b{display:block;font-size:1.2rem}.tile span{color:var(--dim);font-size:.85rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-weight:normal;color:var(--dim);text-align:right;padding:.15rem .5rem}
td{text-align:right;padding:.15rem .5rem;border-top:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}td.bar{width:32%;padding-right:1rem}
td.bar i{display:block;height:.8rem;border-radius:.15rem;min-width:1px}
tr.sum td{font-weight:600}
svg{display:block;width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:.5rem}
svg text{fill:var(--fg);font:11px system-ui,sans-serif}svg .dim{fill:var(--dim)}
svg .grid{stroke:var(--line);fill:none}svg .roof{stroke:var(--fg);stroke-width:1.5;fill:none}
";

/// The page.
pub fn of(profile: &Profile) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    let model = escape(&profile.model);
    page += &format!("<title>glia profile: {model}</title>\n<style>\n{STYLE}</style></head>\n<body>\n");
    page += &format!("<h1>{model}</h1>\n<p>{}</p>\n", escape(&profile.machine));
    if let (Some(c), Some(all)) = (profile.ceiling(), &profile.ceilings) {
        page += &tiles(&[
            (three(c.read_huge / 1e9) + " GB/s", "reading, huge pages".to_owned()),
            (three(c.read_small / 1e9) + " GB/s", "reading, 4 KiB pages".to_owned()),
            (three(c.int8_ops / 1e9) + " Gop/s", format!("int8, {}", all.int8_kernel)),
            (three(c.f32_ops / 1e9) + " Gop/s", format!("f32, {}", all.f32_kernel)),
        ]);
        page += "<p>What this machine reached at best, measured just before.</p>\n";
    }
    let colours = Colours::of(profile);
    for phase in &profile.phases {
        page += &self::phase(profile, phase, &colours);
    }
    page += "<h2>How to read this</h2>\n<p>A profiled step waits after every op, so that it is slower than one that is \
             not. Bytes and operations are the least that the graph needs: each operand counted once, weights as the \
             file stores them. The share of the ceiling is the greater of the shares of bandwidth and of arithmetic; \
             what lies in a cache may exceed it.</p>\n</body></html>\n";
    page
}

fn phase(profile: &Profile, phase: &Phase, colours: &Colours) -> String {
    let (total, n) = (phase.total(), phase.forwards.len().max(1));
    let mut figures = vec![
        (three(ms(phase.wall()) / n as f64) + " ms", "per forward".to_owned()),
        (three(phase.tokens_per_s()), "tokens per second".to_owned()),
        (
            format!("{:.1} %", 100.0 * ratio(phase.rest(), phase.wall())),
            "in no op".to_owned(),
        ),
        (
            three(giga_per_s(total.cost.bytes(), total.time)) + " GB/s",
            "moved".to_owned(),
        ),
        (
            three(giga_per_s(total.cost.ops, total.time)) + " Gop/s",
            "computed".to_owned(),
        ),
    ];
    if let Some(c) = profile.ceiling() {
        figures.push((
            format!("{:.1} %", 100.0 * total.share_of(c)),
            "of the ceiling".to_owned(),
        ));
    }
    let mut part = format!("<h2>{}</h2>\n{}", escape(&phase.name), tiles(&figures));
    part += "<h3>Time by op</h3>\n";
    part += &bars::of(profile, phase, &phase.by_op, true, &|name| colours.get(name));
    part += "<h3>Time by layer</h3>\n";
    part += &bars::of(profile, phase, &phase.by_layer, false, &|_| COLOURS[0]);
    part += "<h3>Roofline</h3>\n";
    part += &roofline::of(profile, phase, colours);
    part += "<h3>One forward in time</h3>\n";
    part += &timeline::of(phase, colours);
    part
}

fn tiles(figures: &[(String, String)]) -> String {
    let tile = |(figure, what): &(String, String)| {
        format!(
            "<div class=\"tile\"><b>{}</b><span>{}</span></div>",
            escape(figure),
            escape(what)
        )
    };
    format!(
        "<div class=\"tiles\">{}</div>\n",
        figures.iter().map(tile).collect::<String>()
    )
}

/// A colour for each op kind, the same in all pictures.
struct Colours(Vec<String>);

impl Colours {
    fn of(profile: &Profile) -> Colours {
        let mut kinds: Vec<String> = Vec::new();
        for row in profile.phases.iter().flat_map(|p| &p.by_op) {
            if !kinds.contains(&row.name) {
                kinds.push(row.name.clone());
            }
        }
        Colours(kinds)
    }

    fn get(&self, kind: &str) -> &'static str {
        let at = self.0.iter().position(|k| k == kind).unwrap_or(usize::MAX);
        COLOURS[at.min(COLOURS.len() - 1)]
    }
}

/// Text as HTML shows it, also within attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_text_is_markup() {
        assert_eq!(
            escape("<a href=\"x\">&'\n"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}"
        );
    }
}
