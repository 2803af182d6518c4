//! The stable text form of graphs, printed by `Display` and read by `FromStr`. `docs/graph-text.md` describes it.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{Graph, Value, ValueSource};

/// Whether a name stands without quotes.
fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_bare_byte)
}

fn is_bare_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b'~')
}

/// A name as the text form writes it: bare, or quoted with escapes.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_bare(self.0) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                // Line separators of any kind would break the one-line-per-node form.
                c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

impl fmt::Display for Graph {
    /// One line per input, weight, node and output. A damaged graph prints too: unknown values as `%?7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {}", Name(&self.name))?;
        let declare = |f: &mut fmt::Formatter<'_>, word: &str, wanted: fn(&Value) -> bool| {
            let mut of_kind = self.values.iter().filter(|v| wanted(v));
            of_kind.try_for_each(|v| writeln!(f, "{word} %{} {}", Name(&v.name), v.ty))
        };
        declare(f, "input", |v| v.source == ValueSource::Input)?;
        declare(f, "inject", |v| v.source.injected().is_some())?;
        declare(f, "weight", |v| v.source == ValueSource::Weight)?;
        for node in &self.nodes {
            let named_by_output = match node.outputs.as_slice() {
                [one] => self.values.get(one.index()).is_some_and(|v| v.name == node.name),
                _ => false,
            };
            if !named_by_output {
                write!(f, "{}: ", Name(&node.name))?;
            }
            for (i, id) in node.outputs.iter().enumerate() {
                f.write_str(if i > 0 { ", " } else { "" })?;
                match self.values.get(id.index()) {
                    Some(v) => write!(f, "%{} {}", Name(&v.name), v.ty)?,
                    None => write!(f, "%?{}", id.0)?,
                }
            }
            write!(f, "{}= {}(", if node.outputs.is_empty() { "" } else { " " }, node.op)?;
            for (i, id) in node.inputs.iter().enumerate() {
                f.write_str(if i > 0 { ", " } else { "" })?;
                self.write_ref(f, id.index())?;
            }
            f.write_str(")\n")?;
        }
        for output in &self.outputs {
            write!(f, "output {} = ", Name(&output.name))?;
            self.write_ref(f, output.value.index())?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl Graph {
    fn write_ref(&self, f: &mut fmt::Formatter<'_>, index: usize) -> fmt::Result {
        match self.values.get(index) {
            Some(v) => write!(f, "%{}", Name(&v.name)),
            None => write!(f, "%?{index}"),
        }
    }
}
