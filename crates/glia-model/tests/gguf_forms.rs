//! The GGUF form and the Hugging Face form of a model give the same logits, to the bit: every tiny model of the golden
//! sets is written as llama.cpp's converter would write it, and both forms run.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::reference::ReferenceBackend;
use glia_core::{Backend, Precision};
use glia_ir::{ExecConfig, GraphExecutor, RunOptions, WantedRows};
use glia_model::gguf::GgufFile;
use glia_model::{ModelFile, Options};
use serde_json::Value;
use support::to_gguf::Form;

fn goldens() -> Vec<PathBuf> {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
    let mut folders = vec![repo.join("models")];
    folders.extend(std::env::var_os("GLIA_GOLDENS").map(|g| PathBuf::from(g).join("models")));
    let mut models: Vec<PathBuf> = folders
        .iter()
        .flat_map(|f| std::fs::read_dir(f).unwrap())
        .map(|e| e.unwrap().path())
        .collect();
    models.sort();
    models
}

fn logits(file: &ModelFile, ids: &[i32], backend: Arc<dyn Backend>) -> Vec<u32> {
    let config = ExecConfig::default()
        .with_precision(Precision::Exact)
        .with_max_context(file.spec().max_positions)
        .with_max_step_tokens(32);
    let executor = GraphExecutor::prepare(file.graph().unwrap(), file.weights(), vec![backend], config).unwrap();
    let input = glia_core::Tensor::from_i32([ids.len()], ids).unwrap();
    let options = RunOptions::default().with_wanted_rows(WantedRows::All);
    let outputs = executor
        .session()
        .unwrap()
        .run_with(&[("input_ids", input)], &options)
        .unwrap();
    let logits = outputs.get("logits").unwrap();
    logits.as_f32().unwrap().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn both_forms_give_the_same_bits() {
    let mut families = std::collections::BTreeSet::new();
    for folder in goldens() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let Some(arch) = support::to_gguf::architecture(&config) else {
            continue;
        };
        let golden: Value = serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
        if golden["kind"] != "decoder" {
            continue;
        }
        let hf = ModelFile::open(&folder, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let open = |form| {
            let bytes = support::to_gguf::convert(&hf, &config, arch, form);
            let gguf = GgufFile::from_source(&format!("{name}.gguf"), Arc::new(bytes)).unwrap();
            ModelFile::from_gguf(gguf).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let gguf = open(Form::Usual);
        assert_eq!(gguf.spec().ropes, hf.spec().ropes, "{name}");
        let ids: Vec<i32> = golden["input_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_i64().unwrap() as i32)
            .collect();
        let cpu: Arc<dyn Backend> = Arc::new(glia_backend_cpu::CpuBackend::new().unwrap());
        let other = logits(&open(Form::Other), &ids, Arc::clone(&cpu));
        assert!(other == logits(&gguf, &ids, Arc::clone(&cpu)), "{name}: other form");
        for backend in [cpu, Arc::new(ReferenceBackend) as Arc<dyn Backend>] {
            let name = format!("{name} on {}", backend.name());
            let (a, b) = (logits(&hf, &ids, Arc::clone(&backend)), logits(&gguf, &ids, backend));
            let differing = a.iter().zip(&b).filter(|(x, y)| x != y).count();
            assert!(
                a.len() == b.len() && differing == 0,
                "{name}: {differing} of {} differ",
                a.len()
            );
        }
        println!("{name}: same bits as {arch}");
        families.insert(hf.spec().family);
    }
    for family in [
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3_text",
        "phi3",
    ] {
        assert!(families.contains(family), "no model of {family} among the goldens");
    }
}
