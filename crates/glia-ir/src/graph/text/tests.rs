//! Round trips and refusals of the text form.

use glia_core::{Binary, DType, Dim, Op, ValueType};
use proptest::prelude::*;

use crate::graph::{Graph, GraphBuilder, ValueSource};

const TINY: &str = "\
graph tiny
input %input_ids i32[T]
inject %positions i32[T]
weight %embed.weight q8_0[50, 32]
weight %freqs f32[4]
%embed f32[T, 32] = token_embed(%input_ids, %embed.weight)
%heads f32[T, 4, 8] = reshape{dims=[-1, 4, 8]}(%embed)
%rope f32[T, 4, 8] = rope{pairing=neox}(%heads, %positions, %freqs)
cache: %cache.k f32[P+T, 4, 8], %cache.v f32[P+T, 4, 8] = kv_cache(%rope, %heads)
%attn f32[T, 4, 8] = sdpa{scale=0.35355338, causal=true}(%rope, %cache.k, %cache.v)
%flat f32[T, 32] = reshape{dims=[-1, 32]}(%attn)
%lm_head f32[T, 50] = matmul(%flat, %embed.weight)
output logits = %lm_head
";

#[test]
fn a_printed_graph_reads_back() {
    let graph: Graph = TINY.parse().unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.to_string(), TINY);
    assert_eq!(
        graph.value(graph.find_value("freqs").unwrap()).source,
        ValueSource::Weight
    );
}

#[test]
fn comments_blank_lines_and_spaces_are_free() {
    let loose = TINY.replace(" = ", "   =\t").replace('\n', "\n\n  # remark\n");
    assert_eq!(loose.parse::<Graph>().unwrap(), TINY.parse::<Graph>().unwrap());
}

#[test]
fn faults_name_their_line() {
    let cases = [
        ("", "line 1: the text is empty: it begins with `graph NAME`"),
        ("input %x f32[T]", "line 1: `graph` expected at `input %x f32[T]`"),
        (
            "graph g\ninput x f32[T]",
            "line 2: a value such as `%name` expected at `x f32[T]`",
        ),
        (
            "graph g\ninput %x f32",
            "line 2: a type such as `f32[T, 64]` expected at `f32`",
        ),
        (
            "graph g\ninput %x f32]T[",
            "line 2: a type such as `f32[T, 64]` expected at `f32]T[`",
        ),
        (
            "graph g\ninput %x q99[T]",
            "line 2: a type such as `f32[T, 64]` expected at `q99[T]`",
        ),
        (
            "graph g\ninput %x f32[99999999999999999999]",
            "line 2: `99999999999999999999` is no dimension such as `64`, `T`, `P+T` or `2*T-1`",
        ),
        (
            "graph g\ninject %now i32[1]",
            "line 2: `now` is not injected: pos, positions and wanted_rows are",
        ),
        ("graph g\n%y f32[T] = silu(%x)", "line 2: no line defines `%x`"),
        ("graph g\n%y f32[T] = jump(%x)", "line 2: `jump`: unknown op"),
        ("graph g\n%y f32[T] = scale{factor=2(%x)", "line 2: `}` is missing"),
        (
            "graph g\n%y f32[T] = silu(%x",
            "line 2: `,` expected at the end of the line",
        ),
        ("graph g\n%y f32[T] silu(%x)", "line 2: `=` expected at `silu(%x)`"),
        ("graph g\n= silu(%x)", "line 2: a name expected at `= silu(%x)`"),
        ("graph g\ninput %\"x f32[T]", "line 2: a quoted name does not end"),
        (
            "graph g\ninput %\"\\u{d800}\" f32[T]",
            "line 2: `\\u{d800}` is no character",
        ),
        (
            "graph g\ninput %x f32[T] f32[T]",
            "line 2: the line should end before `f32[T]`",
        ),
        (
            "graph g\ninput %x f32[T]\ninput %x f32[T]",
            "two values are named `x`: names must be unique",
        ),
        ("graph g\noutput y = %x", "line 2: no line defines `%x`"),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<Graph>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn odd_names_are_quoted() {
    for name in [
        "a b",
        "%",
        "\"\\",
        "line\nbreak",
        "ü",
        "\u{2028}",
        "input",
        "x{y}",
        "a:b",
        "(",
        "\u{85}",
    ] {
        let mut b = GraphBuilder::new(name);
        let x = b.input(name, ValueType::new(DType::F32, [Dim::T])).unwrap();
        let y = b.add(&format!("{name}+"), x, x).unwrap();
        b.output(name, y).unwrap();
        let graph = b.finish().unwrap();
        assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph, "{graph}");
    }
}

#[test]
fn keywords_are_no_trap_for_node_names() {
    let mut b = GraphBuilder::new("graph");
    let x = b.input("weight", ValueType::fixed(DType::F32, &[1, 2])).unwrap();
    let parts = b.split("output", x, 1, &[1, 1]).unwrap();
    let y = b.node1("input", Op::Binary(Binary::Add), &parts).unwrap();
    b.output("inject", y).unwrap();
    let graph = b.finish().unwrap();
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
}

proptest! {
    #[test]
    fn mutated_text_never_panics(at in 0..TINY.len(), cut in 0usize..6, insert in "[ -~]{0,3}") {
        let mut text = TINY.to_owned();
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &insert);
        if let Ok(graph) = text.parse::<Graph>() {
            let printed = graph.to_string();
            prop_assert_eq!(printed.parse::<Graph>().unwrap().to_string(), printed);
            let _ = graph.verify();
            let _ = graph.to_dot();
        }
    }

    #[test]
    fn any_text_is_an_answer(text in "(?s).{0,200}") {
        let _ = text.parse::<Graph>();
        let _ = format!("graph g\n{text}").parse::<Graph>();
    }
}
