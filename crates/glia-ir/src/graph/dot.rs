//! Graphviz export: `dot -Tsvg graph.dot`.

use std::fmt::Write;

use super::{Graph, ValueSource};

impl Graph {
    /// The graph in the DOT language: boxes are nodes, with their weights inside; ellipses are inputs and outputs;
    /// edges carry names' types. A damaged graph prints too, without the edges that lead nowhere.
    pub fn to_dot(&self) -> String {
        let mut dot = format!(
            "digraph {} {{\n  node [shape=box, fontname=\"monospace\"];\n",
            quote(&self.name)
        );
        for (id, value) in self.iter_values() {
            let given = value.source == ValueSource::Input || value.source.injected().is_some();
            if given {
                let label = quote(&format!("{}\n{}", value.name, value.ty));
                let _ = writeln!(dot, "  {id} [shape=ellipse, label={label}];");
            }
        }
        for (id, node) in self.iter_nodes() {
            let mut label = format!("{}\n{}", node.name, node.op);
            for value in node.inputs.iter().filter_map(|v| self.values.get(v.index())) {
                if value.source == ValueSource::Weight {
                    let _ = write!(label, "\n{} {}", value.name, value.ty);
                }
            }
            let _ = writeln!(dot, "  {id} [label={}];", quote(&label));
            for &input in &node.inputs {
                self.edge(&mut dot, input.index(), &id.to_string());
            }
        }
        for (i, output) in self.outputs.iter().enumerate() {
            let _ = writeln!(dot, "  out{i} [shape=ellipse, label={}];", quote(&output.name));
            self.edge(&mut dot, output.value.index(), &format!("out{i}"));
        }
        dot.push_str("}\n");
        dot
    }

    fn edge(&self, dot: &mut String, value: usize, to: &str) {
        let Some(of) = self.values.get(value) else { return };
        let from = match of.source {
            ValueSource::Weight if to.starts_with("out") => {
                let _ = writeln!(dot, "  v{value} [shape=ellipse, label={}];", quote(&of.name));
                format!("v{value}")
            }
            ValueSource::Weight => return,
            ValueSource::Node { node, .. } => node.to_string(),
            _ => format!("v{value}"),
        };
        let _ = writeln!(dot, "  {from} -> {to} [label={}];", quote(&of.ty.to_string()));
    }
}

fn quote(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;

    #[test]
    fn boxes_ellipses_and_typed_edges() {
        let text = "graph g\ninput %x f32[T, 2]\nweight %w f32[3, 2]\n%y f32[T, 3] = matmul(%x, %w)\noutput out = %y\n";
        insta::assert_snapshot!(text.parse::<Graph>().unwrap().to_dot(), @r#"
        digraph "g" {
          node [shape=box, fontname="monospace"];
          v0 [shape=ellipse, label="x\nf32[T, 2]"];
          n0 [label="y\nmatmul\nw f32[3, 2]"];
          v0 -> n0 [label="f32[T, 2]"];
          out0 [shape=ellipse, label="out"];
          n0 -> out0 [label="f32[T, 3]"];
        }
        "#);
    }
}
