//! Cases in a zip: `NAME/model.onnx`, `NAME/input_I.pb`, `NAME/output_I.pb`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use prost::Message;

use crate::array::{self, Elem, Read};
use crate::proto;

/// One node test.
pub struct Case {
    pub name: String,
    pub graph: proto::Graph,
    /// Opset of the default domain.
    pub opset: i64,
    pub inputs: Vec<Given>,
    pub outputs: Vec<Given>,
}

/// A declared input or output and its value.
pub struct Given {
    pub name: String,
    pub value: Value,
}

/// What stands behind a name.
pub enum Value {
    Tensor(Read),
    /// A tensor of elements that glia has no dtype for.
    Foreign(Elem),
    /// A sequence, an optional or a map.
    NoTensor,
}

/// The cases of an archive, by name.
pub fn load(path: &Path) -> Result<Vec<Case>, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| at(&e))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| at(&e))?;
    let mut files: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(|e| at(&e))?;
        let name = entry.name().map_err(|e| at(&e))?.into_owned();
        let Some((case, part)) = name.split_once('/') else {
            continue;
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(|e| at(&e))?;
        files.entry(case.to_owned()).or_default().insert(part.to_owned(), bytes);
    }
    files
        .into_iter()
        .map(|(name, parts)| case(&name, &parts).map_err(|e| format!("{name}: {e}")))
        .collect()
}

fn case(name: &str, parts: &BTreeMap<String, Vec<u8>>) -> Result<Case, String> {
    let model = parts.get("model.onnx").ok_or("no model.onnx")?;
    let model = proto::Model::decode(model.as_slice()).map_err(|e| e.to_string())?;
    let graph = model.graph.ok_or("the model has no graph")?;
    let opset = model.opset_import.iter().find(|o| o.domain.is_empty());
    let given = |kind: &str, infos: &[proto::ValueInfo]| {
        infos
            .iter()
            .enumerate()
            .map(|(i, info)| {
                let value =
                    value(parts.get(&format!("{kind}_{i}.pb")), info).map_err(|e| format!("{kind} {i}: {e}"))?;
                Ok(Given {
                    name: info.name.clone(),
                    value,
                })
            })
            .collect::<Result<Vec<_>, String>>()
    };
    Ok(Case {
        name: name.to_owned(),
        opset: opset.map_or(0, |o| o.version),
        inputs: given("input", &graph.input)?,
        outputs: given("output", &graph.output)?,
        graph,
    })
}

fn value(bytes: Option<&Vec<u8>>, info: &proto::ValueInfo) -> Result<Value, String> {
    let Some(bytes) = bytes else { return Ok(Value::NoTensor) };
    if info.r#type.as_ref().is_none_or(|t| t.tensor_type.is_none()) {
        return Ok(Value::NoTensor);
    }
    let tensor = proto::Tensor::decode(bytes.as_slice()).map_err(|e| e.to_string())?;
    Ok(match array::read(&tensor)? {
        Ok(read) => Value::Tensor(read),
        Err(elem) => Value::Foreign(elem),
    })
}
