//! What prepare and run refuse, and that the message names it; and what they take although it is not quite what the
//! graph declares.

mod toy;

use std::sync::Arc;

use glia_core::{DType, Tensor};
use glia_ir::{ExecConfig, GraphExecutor};
use toy::{Toy, executor, floats, ids, model, n_executed, toy, weights};

fn cold(tokens: &[i32]) -> Vec<f32> {
    let mut ex = executor(&toy(), ExecConfig::default());
    floats(ex.run(&[("input_ids", ids(tokens))]).unwrap().get("logits").unwrap())
}

#[test]
fn wrong_inputs_are_named() {
    let toy = toy();
    let mut ex = executor(&toy, ExecConfig::default());
    let one = || ids(&[1]);
    let matrix = Tensor::from_i32([1, 1], &[1]).unwrap();
    let float = |v: f32| Tensor::from_f32([1], &[v]).unwrap();
    let cases: Vec<(Vec<(&str, Tensor)>, &str)> = vec![
        (vec![], "input `input_ids` is missing"),
        (vec![("input_ids", one()), ("pos", one())], "input `pos` is injected"),
        (
            vec![("input_ids", one()), ("positions", one())],
            "input `positions` is injected",
        ),
        (
            vec![("input_ids", one()), ("wanted_rows", one())],
            "input `wanted_rows` is injected",
        ),
        (
            vec![("input_ids", one()), ("tokens", one())],
            "`tokens` is unknown: the graph takes input_ids",
        ),
        (vec![("input_ids", one()), ("input_ids", one())], "given twice"),
        (vec![("input_ids", ids(&[]))], "no tokens"),
        (vec![("input_ids", matrix)], "shape [1, 1]"),
        (
            vec![("input_ids", ids(&[0, 16]))],
            "element 1 is 16, outside 0..16 (the vocabulary size is 16)",
        ),
        (vec![("input_ids", ids(&[-1]))], "element 0 is -1"),
        (vec![("input_ids", float(1.5))], "whole numbers"),
        (vec![("input_ids", float(-1.0))], "whole numbers"),
        (vec![("input_ids", float(f32::NAN))], "whole numbers"),
        (
            vec![("input_ids", Tensor::zeros(DType::F16, [1]).unwrap())],
            "dtype f16",
        ),
    ];
    for (inputs, said) in cases {
        let err = ex.run(&inputs).unwrap_err().to_string();
        assert!(err.contains(said), "{err} does not say {said}");
    }
    assert_eq!(
        (n_executed(&toy), ex.default_session().pos()),
        (0, 0),
        "refused before any work"
    );
}

#[test]
fn ids_of_other_dtypes_give_the_same_bits() {
    let same: Vec<Tensor> = vec![
        Tensor::from_f32([2], &[3.0, 1.0]).unwrap(),
        Tensor::from_bytes(DType::U8, [2], &[3, 1]).unwrap(),
        Tensor::from_bytes(DType::I64, [2], &[3i64, 1].map(i64::to_le_bytes).concat()).unwrap(),
    ];
    for tensor in same {
        let out = executor(&toy(), ExecConfig::default())
            .run(&[("input_ids", tensor)])
            .unwrap();
        assert_eq!(floats(out.get("logits").unwrap()), cold(&[3, 1]));
    }
}

#[test]
fn prepare_names_what_is_wrong() {
    let graph = model(1, true);
    let prepare = |change: &dyn Fn(&mut std::collections::HashMap<String, Tensor>), config| {
        let mut all = weights(&graph);
        change(&mut all);
        GraphExecutor::prepare(graph.clone(), all, vec![toy()], config)
            .unwrap_err()
            .to_string()
    };
    let plain = ExecConfig::default;
    let name = "layers.0.q.weight";
    let said = prepare(&|w| drop(w.remove(name)), plain());
    assert!(said.contains(name) && said.contains("missing"), "{said}");
    let said = prepare(
        &|w| drop(w.insert(name.into(), Tensor::zeros(DType::F32, [4, 3]).unwrap())),
        plain(),
    );
    assert!(
        said.contains(name) && said.contains("[4, 3]") && said.contains("f32[4, 4]"),
        "{said}"
    );
    let said = prepare(
        &|w| drop(w.insert(name.into(), Tensor::zeros(DType::F16, [4, 4]).unwrap())),
        plain(),
    );
    assert!(said.contains("f16"), "{said}");
    let said = prepare(&|_| {}, plain().with_max_step_tokens(0));
    assert!(said.contains("max_step_tokens"), "{said}");
    let said = prepare(&|_| {}, plain().with_kv_dtypes([DType::Q4_0; 2]));
    assert!(said.contains("kv_dtypes") && said.contains("q4_0"), "{said}");
    let said = prepare(&|_| {}, plain().with_kv_dtypes([DType::Q8_0; 2]));
    assert!(said.contains("layers.0.cache"), "{said}");

    let none = GraphExecutor::prepare(graph.clone(), weights(&graph), vec![], plain()).unwrap_err();
    assert!(none.to_string().contains("at least one"), "{none}");
    let few: Arc<Toy> = Arc::new(Toy {
        name: "few",
        only: &["matmul"],
        space: 0,
    });
    let said = GraphExecutor::prepare(graph.clone(), weights(&graph), vec![few], plain())
        .unwrap_err()
        .to_string();
    assert!(said.contains("few") && said.contains("node `layers.0."), "{said}");
}

#[test]
fn intermediate_memory_is_limited_at_prepare_with_both_numbers() {
    let graph = model(2, true);
    let peak = executor(&toy(), ExecConfig::default())
        .plan()
        .memory()
        .unwrap()
        .peak_bytes;
    let with = |limit| {
        let config = ExecConfig::default().with_max_intermediate_bytes(limit);
        GraphExecutor::prepare(graph.clone(), weights(&graph), vec![toy()], config)
    };
    with(peak).unwrap();
    let err = with(peak - 1).unwrap_err().to_string();
    assert!(
        err.contains(&peak.to_string()) && err.contains(&(peak - 1).to_string()),
        "{err}"
    );
}
