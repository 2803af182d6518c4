//! Checks what the caller gives to a run and brings it into the declared types, before any work.

use glia_core::{DType, Dim, Op, Sizes, Symbol, Tensor, ValueType, read_indices, read_ints};

use super::ExecError;
use crate::graph::{Graph, RESERVED_NAMES, Vid};

/// The inputs of one sequence's run, in the order of [`Graph::inputs`].
pub(super) struct Given {
    pub tensors: Vec<Tensor>,
    pub n_tokens: usize,
    pub n_encoder_rows: usize,
}

/// What a graph takes, found once.
pub(super) struct InputRules {
    /// The inputs, in the order of [`Graph::inputs`].
    ids: Vec<Vid>,
    /// Lookups whose ids are an input: checked against the table before any work.
    lookups: Vec<Lookup>,
}

struct Lookup {
    /// Index into the inputs.
    input: usize,
    node: String,
    vocab: usize,
}

impl InputRules {
    pub fn of(graph: &Graph) -> InputRules {
        let ids: Vec<Vid> = graph.inputs().map(|(id, _)| id).collect();
        let mut lookups = Vec::new();
        for node in graph.nodes.iter().filter(|n| n.op == Op::TokenEmbed) {
            let table = &graph.value(node.inputs[1]).ty;
            let input = ids.iter().position(|&id| id == node.inputs[0]);
            if let (Some(input), Some(vocab)) = (input, table.dims[0].as_fixed()) {
                lookups.push(Lookup {
                    input,
                    node: node.name.clone(),
                    vocab,
                });
            }
        }
        InputRules { ids, lookups }
    }

    /// Which of the inputs a value is.
    pub fn position(&self, id: Vid) -> Option<usize> {
        self.ids.iter().position(|&input| input == id)
    }
}

/// Names, dtypes, shapes and ids of a run's inputs; `past` is the length of the sequence.
pub(super) fn check(
    graph: &Graph,
    rules: &InputRules,
    given: &[(&str, Tensor)],
    past: usize,
) -> Result<Given, ExecError> {
    let values = || rules.ids.iter().map(|&id| graph.value(id));
    for (i, (name, _)) in given.iter().enumerate() {
        if RESERVED_NAMES.contains(name) {
            return Err(ExecError::InjectedInput {
                name: (*name).to_owned(),
            });
        }
        if given[..i].iter().any(|(other, _)| other == name) {
            return Err(ExecError::DuplicateInput {
                name: (*name).to_owned(),
            });
        }
        if !values().any(|v| v.name == *name) {
            return Err(ExecError::UnknownInput {
                name: (*name).to_owned(),
                known: values().map(|v| v.name.clone()).collect(),
            });
        }
    }
    let mut tensors = Vec::with_capacity(given.len());
    let mut rows: [Option<usize>; 2] = [None; 2];
    for value in values() {
        let Some((_, tensor)) = given.iter().find(|(name, _)| *name == value.name) else {
            return Err(ExecError::MissingInput {
                name: value.name.clone(),
                expected: value.ty.clone(),
            });
        };
        for (symbol, n) in [Symbol::T, Symbol::S].into_iter().zip(&mut rows) {
            let at = value.ty.dims.iter().position(|d| *d == Dim::symbol(symbol));
            *n = n.or(at.and_then(|i| tensor.shape().get(i).copied()));
        }
        tensors.push((value, tensor));
    }
    // A graph whose inputs say nothing of tokens runs as a step of one row.
    let sizes = Sizes {
        t: rows[0].unwrap_or(1),
        p: past,
        r: 0,
        n: 1,
        s: rows[1].unwrap_or(0),
    };
    if sizes.t == 0 {
        return Err(ExecError::NoTokens);
    }
    let tensors = tensors
        .into_iter()
        .map(|(value, tensor)| convert(&value.name, &value.ty, &sizes, tensor))
        .collect::<Result<Vec<_>, _>>()?;
    for lookup in &rules.lookups {
        read_indices(
            "token_embed",
            &tensors[lookup.input],
            lookup.vocab,
            "the vocabulary size is",
        )
        .map_err(|e| e.at("executor", &lookup.node, "token_embed"))?;
    }
    Ok(Given {
        tensors,
        n_tokens: sizes.t,
        n_encoder_rows: sizes.s,
    })
}

/// The tensor in the declared dtype. Integers change width, exact non-negative F32 integers are taken for ids.
fn convert(name: &str, ty: &ValueType, sizes: &Sizes, tensor: &Tensor) -> Result<Tensor, ExecError> {
    let bad = |reason: String| ExecError::BadInput {
        name: name.to_owned(),
        reason,
    };
    tensor.check_on_host().map_err(|e| bad(e.to_string()))?;
    let shape = ty
        .shape(sizes)
        .ok_or_else(|| bad(format!("{ty} is too large to address")))?;
    if *tensor.shape() != shape {
        return Err(bad(format!(
            "has shape {}, but the graph takes {ty}, here {shape}",
            tensor.shape()
        )));
    }
    if tensor.dtype() == ty.dtype {
        return Ok(tensor.clone());
    }
    let values = match tensor.dtype() {
        from if from.is_int() && ty.dtype.is_int() => read_ints(name, tensor)?,
        DType::F32 if ty.dtype.is_int() => exact_ints(tensor).map_err(bad)?,
        other => return Err(bad(format!("has dtype {other}, but the graph takes {ty}"))),
    };
    let mut bytes = Vec::with_capacity(values.len().saturating_mul(8));
    for (i, v) in values.into_iter().enumerate() {
        let out_of_range = || bad(format!("element {i} is {v}, which does not fit in {}", ty.dtype));
        match ty.dtype {
            DType::I8 => bytes.extend(i8::try_from(v).map_err(|_| out_of_range())?.to_le_bytes()),
            DType::U8 => bytes.push(u8::try_from(v).map_err(|_| out_of_range())?),
            DType::I16 => bytes.extend(i16::try_from(v).map_err(|_| out_of_range())?.to_le_bytes()),
            DType::I32 => bytes.extend(i32::try_from(v).map_err(|_| out_of_range())?.to_le_bytes()),
            _ => bytes.extend(v.to_le_bytes()),
        }
    }
    Ok(Tensor::from_bytes(ty.dtype, shape, &bytes)?)
}

/// Ids that arrive as F32 must be whole and not negative, and small enough to be exact.
fn exact_ints(tensor: &Tensor) -> Result<Vec<i64>, String> {
    const LIMIT: f32 = 16_777_216.0; // 2^24: above it f32 skips integers.
    let owned;
    let values = match tensor.as_f32() {
        Ok(values) => values,
        Err(_) => {
            owned = tensor.to_owned_aligned().map_err(|e| e.to_string())?;
            owned.as_f32().map_err(|e| e.to_string())?
        }
    };
    let exact = |v: f32| (0.0..LIMIT).contains(&v) && v.fract() == 0.0;
    match values.iter().position(|&v| !exact(v)) {
        Some(i) => Err(format!(
            "element {i} is {}: f32 ids must be whole numbers from 0 below 2^24",
            values[i]
        )),
        None => Ok(values.iter().map(|&v| v as i64).collect()),
    }
}
