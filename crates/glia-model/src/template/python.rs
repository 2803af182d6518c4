//! Values as Python writes them: `repr` of floats, and `json.dumps` with its separators and options.

use serde_json::Value;

/// Options of `json.dumps`.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    pub(super) indent: Option<usize>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
}

/// `repr(x)` of a float: the shortest digits, an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{x:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `json.dumps(value)`.
pub(super) fn json(value: &Value, style: &JsonStyle) -> String {
    let mut out = String::new();
    write_json(value, style, 0, &mut out);
    out
}

fn write_json(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) if n.is_f64() => out.push_str(&float(n.as_f64().unwrap_or(0.0))),
        Value::Number(n) => out.push_str(&n.to_string()),
        Value::String(s) => write_string(s, style.ensure_ascii, out),
        Value::Array(items) => write_items(('[', ']'), items.len(), style, depth, out, |i, out| {
            write_json(&items[i], style, depth + 1, out);
        }),
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            if style.sort_keys {
                entries.sort_by_key(|e| e.0);
            }
            write_items(('{', '}'), entries.len(), style, depth, out, |i, out| {
                write_string(entries[i].0, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write_json(entries[i].1, style, depth + 1, out);
            });
        }
    }
}

fn write_items(
    brackets: (char, char),
    n: usize,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    item: impl Fn(usize, &mut String),
) {
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = style.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent.saturating_mul(depth)));
        }
    };
    out.push(brackets.0);
    for i in 0..n {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        line(depth + 1, out);
        item(i, out);
    }
    if n > 0 {
        line(depth, out);
    }
    out.push(brackets.1);
}

fn write_string(s: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && !c.is_ascii()) => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units)
                    .iter()
                    .for_each(|u| out.push_str(&format!("\\u{u:04x}")));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
