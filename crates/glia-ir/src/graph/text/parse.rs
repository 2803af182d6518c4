//! Reads the text form. Takes any text: a fault is an error with its line, and memory stays within a small multiple
//! of the text.

use std::collections::HashMap;
use std::str::FromStr;

use glia_core::{DType, Dim, Op, ValueType};

use super::is_bare_byte;
use crate::graph::{Graph, GraphError, NameKind, Node, NodeId, Output, Value, ValueSource, Vid};

impl FromStr for Graph {
    type Err = GraphError;

    /// Reads what `Display` writes. Only the form is checked here: [`Graph::verify`] proves the rest.
    ///
    /// # Errors
    /// [`GraphError::Parse`] with the line; [`GraphError::DuplicateName`] for two values of one name.
    fn from_str(text: &str) -> Result<Graph, GraphError> {
        let mut parser = Parser::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            parser.line(i + 1, line)?;
        }
        parser.finish(text.lines().count())
    }
}

/// A node whose operands are still names.
struct PendingNode<'a> {
    line: usize,
    inputs: Vec<std::borrow::Cow<'a, str>>,
}

#[derive(Default)]
struct Parser<'a> {
    has_header: bool,
    graph: Graph,
    ids: HashMap<String, Vid>,
    pending: Vec<PendingNode<'a>>,
    outputs: Vec<(usize, String, std::borrow::Cow<'a, str>)>,
}

impl<'a> Parser<'a> {
    fn line(&mut self, line: usize, text: &'a str) -> Result<(), GraphError> {
        let mut c = Cursor { line, rest: text };
        if !self.has_header {
            c.expect_word("graph")?;
            self.graph.name = c.name()?.into_owned();
            self.has_header = true;
            return c.end();
        }
        if c.eat_word("input") {
            return self.declare(c, ValueSource::Input);
        }
        if c.eat_word("weight") {
            return self.declare(c, ValueSource::Weight);
        }
        if c.eat_word("inject") {
            let name = c.peek_reference()?;
            let source = [ValueSource::Pos, ValueSource::Positions, ValueSource::WantedRows]
                .into_iter()
                .find(|s| s.injected().is_some_and(|(n, _)| n == name));
            let source = source
                .ok_or_else(|| c.error(format!("`{name}` is not injected: pos, positions and wanted_rows are")))?;
            return self.declare(c, source);
        }
        if c.eat_word("output") {
            let name = c.name()?.into_owned();
            c.expect("=")?;
            let value = c.reference()?;
            self.outputs.push((line, name, value));
            return c.end();
        }
        self.node(c)
    }

    fn declare(&mut self, mut c: Cursor<'a>, source: ValueSource) -> Result<(), GraphError> {
        let name = c.reference()?.into_owned();
        let ty = c.ty()?;
        self.define(&c, name, ty, source)?;
        c.end()
    }

    fn define(&mut self, c: &Cursor<'_>, name: String, ty: ValueType, source: ValueSource) -> Result<Vid, GraphError> {
        let id = u32::try_from(self.graph.values.len()).map_err(|_| c.error("too many values"))?;
        if self.ids.insert(name.clone(), Vid(id)).is_some() {
            return Err(GraphError::duplicate(NameKind::Value, &name));
        }
        self.graph.values.push(Value { name, ty, source });
        Ok(Vid(id))
    }

    /// `[name:] %a type, %b type = op(%x, %y)`.
    fn node(&mut self, mut c: Cursor<'a>) -> Result<(), GraphError> {
        let id = NodeId(u32::try_from(self.graph.nodes.len()).map_err(|_| c.error("too many nodes"))?);
        let mut name = None;
        if !c.rest.starts_with('%') {
            name = Some(c.name()?.into_owned());
            c.expect(":")?;
        }
        let mut outputs = Vec::new();
        if !c.eat("=") {
            loop {
                let value = c.reference()?.into_owned();
                let ty = c.ty()?;
                let output = outputs.len();
                if name.is_none() && output == 0 {
                    name = Some(value.clone());
                }
                outputs.push(self.define(&c, value, ty, ValueSource::Node { node: id, output })?);
                if !c.eat(",") {
                    break;
                }
            }
            c.expect("=")?;
        }
        let op = c.op()?;
        c.expect("(")?;
        let mut inputs = Vec::new();
        while !c.eat(")") {
            if !inputs.is_empty() {
                c.expect(",")?;
            }
            inputs.push(c.reference()?);
        }
        c.end()?;
        let name = name.ok_or_else(|| c.error("a node without outputs needs a name"))?;
        self.pending.push(PendingNode { line: c.line, inputs });
        self.graph.nodes.push(Node {
            name,
            op,
            inputs: Vec::new(),
            outputs,
        });
        Ok(())
    }

    fn finish(mut self, n_lines: usize) -> Result<Graph, GraphError> {
        if !self.has_header {
            return Err(parse_error(
                n_lines.max(1),
                "the text is empty: it begins with `graph NAME`",
            ));
        }
        let find = |line: usize, name: &str| {
            self.ids
                .get(name)
                .copied()
                .ok_or_else(|| parse_error(line, format!("no line defines `%{name}`")))
        };
        for (node, pending) in self.graph.nodes.iter_mut().zip(&self.pending) {
            for name in &pending.inputs {
                node.inputs.push(find(pending.line, name)?);
            }
        }
        for (line, name, value) in self.outputs {
            let value = find(line, &value)?;
            self.graph.outputs.push(Output { name, value });
        }
        Ok(self.graph)
    }
}

fn parse_error(line: usize, reason: impl Into<String>) -> GraphError {
    GraphError::Parse {
        line,
        reason: reason.into(),
    }
}

/// What is left of a line. Every method skips the spaces behind what it took.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    line: usize,
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn error(&self, reason: impl Into<String>) -> GraphError {
        parse_error(self.line, reason)
    }

    /// What stands here, cut short for a message.
    fn here(&self) -> String {
        let start: String = self.rest.chars().take(24).collect();
        if start.is_empty() {
            "the end of the line".to_owned()
        } else {
            format!("`{start}`")
        }
    }

    fn advance(&mut self, n_bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(n_bytes);
        self.rest = rest.trim_start();
        taken
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest.starts_with(token);
        if found {
            self.advance(token.len());
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), GraphError> {
        if self.eat(token) {
            return Ok(());
        }
        Err(self.error(format!("`{token}` expected at {}", self.here())))
    }

    /// A keyword that is followed by something other than `:`, which would make it a node's name.
    fn eat_word(&mut self, word: &str) -> bool {
        let Some(behind) = self.rest.strip_prefix(word) else {
            return false;
        };
        let found = behind.starts_with(|c: char| c.is_whitespace()) && !behind.trim_start().starts_with(':');
        if found {
            self.advance(word.len());
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), GraphError> {
        if self.eat_word(word) {
            return Ok(());
        }
        Err(self.error(format!("`{word}` expected at {}", self.here())))
    }

    fn end(&self) -> Result<(), GraphError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.error(format!("the line should end before {}", self.here())))
    }

    fn name(&mut self) -> Result<std::borrow::Cow<'a, str>, GraphError> {
        if self.rest.starts_with('"') {
            return self.quoted().map(Into::into);
        }
        let len = self.rest.bytes().take_while(|&b| is_bare_byte(b)).count();
        if len == 0 {
            return Err(self.error(format!("a name expected at {}", self.here())));
        }
        Ok(self.advance(len).into())
    }

    fn quoted(&mut self) -> Result<String, GraphError> {
        let mut name = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.advance(i + 1);
                    return Ok(name);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\\'))) => name.push(c),
                    Some((_, 'u')) => {
                        let digits: String = chars
                            .by_ref()
                            .map(|(_, c)| c)
                            .skip_while(|&c| c == '{')
                            .take_while(|&c| c != '}')
                            .take(9)
                            .collect();
                        let c = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                        name.push(c.ok_or_else(|| self.error(format!("`\\u{{{digits}}}` is no character")))?);
                    }
                    _ => return Err(self.error("escapes in names are \\\", \\\\ and \\u{hex}")),
                },
                c => name.push(c),
            }
        }
        Err(self.error("a quoted name does not end"))
    }

    /// `%name`.
    fn reference(&mut self) -> Result<std::borrow::Cow<'a, str>, GraphError> {
        // No space between: `expect` would skip it.
        let Some(rest) = self.rest.strip_prefix('%') else {
            return Err(self.error(format!("a value such as `%name` expected at {}", self.here())));
        };
        self.rest = rest;
        self.name()
    }

    fn peek_reference(&self) -> Result<std::borrow::Cow<'a, str>, GraphError> {
        let mut copy = *self;
        copy.reference()
    }

    /// `f32[T, 64]`.
    fn ty(&mut self) -> Result<ValueType, GraphError> {
        let bad = |c: &Cursor<'_>| c.error(format!("a type such as `f32[T, 64]` expected at {}", c.here()));
        let open = self.rest.find('[').ok_or_else(|| bad(self))?;
        let close = self.rest.find(']').filter(|&c| c > open).ok_or_else(|| bad(self))?;
        let dtype = DType::from_name(self.rest[..open].trim()).ok_or_else(|| bad(self))?;
        let inner = self.rest[open + 1..close].trim();
        let mut dims = Vec::new();
        if !inner.is_empty() {
            for dim in inner.split(',') {
                dims.push(dim.trim().parse::<Dim>().map_err(|e| self.error(e))?);
            }
        }
        self.advance(close + 1);
        Ok(ValueType { dtype, dims })
    }

    /// `kind` or `kind{a=1}`; `(` follows.
    fn op(&mut self) -> Result<Op, GraphError> {
        let paren = self.rest.find('(').unwrap_or(self.rest.len());
        let len = match self.rest[..paren].find('{') {
            None => paren,
            // Attributes hold no braces and no parentheses.
            Some(_) => match self.rest.find('}') {
                Some(close) => close + 1,
                None => return Err(self.error("`}` is missing")),
            },
        };
        let text = self.rest[..len].trim_end();
        let op = text.parse::<Op>().map_err(|e| self.error(e.to_string()))?;
        self.advance(len);
        Ok(op)
    }
}
