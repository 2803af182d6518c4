//! What can be wrong with a graph; every error names the node or value and says the cure where there is one.

use std::fmt;

use glia_core::{BackendError, ValueType};

/// What a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it all.
pub enum NameKind {
    Node,
    Value,
    Output,
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameKind::Node => "node",
            NameKind::Value => "value",
            NameKind::Output => "output",
        })
    }
}

/// Why a graph is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum GraphError {
    #[error("the name `{name}` is reserved for the input that the executor injects: choose another")]
    ReservedName { name: String },
    #[error("two {kind}s are named `{name}`: names must be unique")]
    DuplicateName { kind: NameKind, name: String },
    #[error("a {kind} has an empty name")]
    EmptyName { kind: NameKind },
    #[error("weight `{name}` is asked for as {second}, but was declared as {first}")]
    WeightConflict {
        name: String,
        first: ValueType,
        second: ValueType,
    },
    #[error("weight `{name}` has type {ty}: dimensions of weights must be fixed")]
    WeightNotFixed { name: String, ty: ValueType },
    #[error("value `{value}` has type {ty}: {reason}")]
    BadType {
        value: String,
        ty: ValueType,
        reason: String,
    },
    #[error("node `{node}`: {source}")]
    Infer {
        node: String,
        #[source]
        source: BackendError,
    },
    #[error("node `{node}` ({op}) has {got} outputs instead of {expected}")]
    WrongOutputs {
        node: String,
        op: String,
        expected: usize,
        got: usize,
    },
    #[error("node `{node}` ({op}) declares `{value}` as {declared}, but computes {inferred}")]
    TypeMismatch {
        node: String,
        op: String,
        value: String,
        declared: Box<ValueType>,
        inferred: Box<ValueType>,
    },
    #[error("{by} refers to value {id}, but the graph has {n_values} values")]
    UnknownValue { by: String, id: u32, n_values: usize },
    #[error("value `{value}` names node {node} output {output} as its source, which does not list it")]
    BadSource { value: String, node: u32, output: usize },
    #[error("node `{node}` lists `{value}` as output {output}, but that value comes from elsewhere")]
    NotItsOutput { node: String, value: String, output: usize },
    #[error("node `{node}` reads `{value}`, which node `{producer}` makes later: put `{producer}` before `{node}`")]
    UseBeforeDefinition {
        node: String,
        value: String,
        producer: String,
    },
    #[error("the graph has a cycle: {}", nodes.join(" -> "))]
    Cycle { nodes: Vec<String> },
    #[error("the injected value `{name}` has type {ty} instead of {expected}")]
    BadInjected {
        name: String,
        ty: ValueType,
        expected: ValueType,
    },
    #[error("node `{node}` ({op}) carries state: {reason}")]
    BadState { node: String, op: String, reason: String },
    #[error("graph `{graph}` has no output: declare at least one")]
    NoOutputs { graph: String },
    #[error("the graph has more than {max} {what}")]
    TooMany { what: &'static str, max: u32 },
    #[error("a pass reads `{value}`, which it has not made yet: the graph was not verified")]
    UnmappedValue { value: String },
    #[error("pass `{pass}` left a wrong graph: {source}")]
    AfterPass {
        pass: &'static str,
        #[source]
        source: Box<GraphError>,
    },
    #[error("line {line}: {reason}")]
    Parse { line: usize, reason: String },
}

impl GraphError {
    pub(crate) fn infer(node: &str, source: BackendError) -> GraphError {
        GraphError::Infer {
            node: node.to_owned(),
            source,
        }
    }

    pub(crate) fn duplicate(kind: NameKind, name: &str) -> GraphError {
        GraphError::DuplicateName {
            kind,
            name: name.to_owned(),
        }
    }
}
