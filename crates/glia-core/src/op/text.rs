//! The text form of ops: `kind{attribute=value, ..}`, printed and parsed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{Binary, Gate, Op, Rope, RopePairing, Sdpa, Unary};
use crate::DType;

/// Why a text is no op.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {reason}")]
pub struct OpParseError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut attrs: Vec<String> = Vec::new();
        let mut put = |name: &str, value: String| attrs.push(format!("{name}={value}"));
        match self {
            Op::Scale { factor } => put("factor", factor.to_string()),
            Op::Clamp { min, max } => {
                put("min", min.to_string());
                put("max", max.to_string());
            }
            Op::RmsNorm { eps, plus_one } => {
                put("eps", format!("{eps:e}"));
                if *plus_one {
                    put("plus_one", "true".into());
                }
            }
            Op::LayerNorm { eps } => put("eps", format!("{eps:e}")),
            Op::Rope(rope) => {
                let interleaved = rope.pairing == RopePairing::Interleaved;
                put("pairing", if interleaved { "interleaved" } else { "neox" }.into());
                if rope.scale != 1.0 {
                    put("scale", rope.scale.to_string());
                }
                if let Some(n) = rope.long_from {
                    put("long_from", n.to_string());
                }
            }
            Op::Sdpa(sdpa) => {
                put("scale", sdpa.scale.to_string());
                for (name, on) in [("causal", sdpa.causal), ("mask", sdpa.mask), ("sinks", sdpa.sinks)] {
                    if on {
                        put(name, "true".into());
                    }
                }
                if let Some(w) = sdpa.window {
                    put("window", w.to_string());
                }
                if let Some(c) = sdpa.softcap {
                    put("softcap", c.to_string());
                }
            }
            Op::Reshape { dims } => put("dims", format!("{dims:?}")),
            Op::Transpose { a, b } => {
                put("a", a.to_string());
                put("b", b.to_string());
            }
            Op::Permute { perm } => put("perm", format!("{perm:?}")),
            Op::Slice { axis, start, end } => {
                put("axis", axis.to_string());
                put("start", start.to_string());
                if let Some(end) = end {
                    put("end", end.to_string());
                }
            }
            Op::Softmax { axis } | Op::Concat { axis } | Op::Gather { axis } | Op::Argmax { axis } => {
                put("axis", axis.to_string());
            }
            Op::Split { axis, sizes } => {
                put("axis", axis.to_string());
                put("sizes", format!("{sizes:?}"));
            }
            Op::Repeat { axis, n } => {
                put("axis", axis.to_string());
                put("n", n.to_string());
            }
            Op::Cast { to } => put("to", to.to_string()),
            Op::TopK { k } => put("k", k.to_string()),
            Op::Sum { axis, keep } | Op::Mean { axis, keep } => {
                put("axis", axis.to_string());
                if *keep {
                    put("keep", "true".into());
                }
            }
            Op::MatMul | Op::Binary(_) | Op::Unary(_) | Op::Gated(_) | Op::TokenEmbed | Op::KvCache => {}
        }
        f.write_str(self.kind())?;
        if !attrs.is_empty() {
            write!(f, "{{{}}}", attrs.join(", "))?;
        }
        Ok(())
    }
}

struct Attrs<'a> {
    text: &'a str,
    map: BTreeMap<&'a str, &'a str>,
}

impl<'a> Attrs<'a> {
    fn error(&self, reason: String) -> OpParseError {
        OpParseError {
            text: self.text.to_owned(),
            reason,
        }
    }

    fn optional<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, OpParseError> {
        let Some(value) = self.map.remove(name) else {
            return Ok(None);
        };
        value
            .parse()
            .map(Some)
            .map_err(|_| self.error(format!("`{value}` is no value for `{name}`")))
    }

    fn need<T: FromStr>(&mut self, name: &str) -> Result<T, OpParseError> {
        self.optional(name)?
            .ok_or_else(|| self.error(format!("attribute `{name}` is missing")))
    }

    fn flag(&mut self, name: &str) -> Result<bool, OpParseError> {
        Ok(self.optional(name)?.unwrap_or(false))
    }

    fn list<T: FromStr>(&mut self, name: &str) -> Result<Vec<T>, OpParseError> {
        let text: String = self.need(name)?;
        let bad = || self.error(format!("`{text}` is no list such as [1, 2] for `{name}`"));
        let inner = text
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .ok_or_else(bad)?;
        inner
            .split(',')
            .map(str::trim)
            .filter(|t| !t.is_empty())
            .map(|t| t.parse().map_err(|_| bad()))
            .collect()
    }
}

/// `a=1, b=[1, 2]` at the commas outside brackets.
fn split_attrs(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|p| !p.is_empty()).collect()
}

impl FromStr for Op {
    type Err = OpParseError;

    fn from_str(text: &str) -> Result<Op, OpParseError> {
        let error = |reason: &str| OpParseError {
            text: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (kind, inner) = match text.split_once('{') {
            Some((kind, rest)) => (kind, rest.strip_suffix('}').ok_or_else(|| error("`}` is missing"))?),
            None => (text, ""),
        };
        let mut map = BTreeMap::new();
        for part in split_attrs(inner) {
            let (name, value) = part.split_once('=').ok_or_else(|| error("an attribute needs `=`"))?;
            if map.insert(name.trim(), value.trim()).is_some() {
                return Err(error("an attribute is given twice"));
            }
        }
        let mut a = Attrs { text, map };
        let op = match kind {
            "matmul" => Op::MatMul,
            "add" => Op::Binary(Binary::Add),
            "sub" => Op::Binary(Binary::Sub),
            "mul" => Op::Binary(Binary::Mul),
            "div" => Op::Binary(Binary::Div),
            "silu" => Op::Unary(Unary::Silu),
            "gelu" => Op::Unary(Unary::Gelu),
            "gelu_tanh" => Op::Unary(Unary::GeluTanh),
            "relu" => Op::Unary(Unary::Relu),
            "sigmoid" => Op::Unary(Unary::Sigmoid),
            "tanh" => Op::Unary(Unary::Tanh),
            "exp" => Op::Unary(Unary::Exp),
            "scale" => Op::Scale {
                factor: a.need("factor")?,
            },
            "clamp" => Op::Clamp {
                min: a.need("min")?,
                max: a.need("max")?,
            },
            "swiglu" => Op::Gated(Gate::Silu),
            "geglu" => Op::Gated(Gate::Gelu),
            "geglu_tanh" => Op::Gated(Gate::GeluTanh),
            "rms_norm" => Op::RmsNorm {
                eps: a.need("eps")?,
                plus_one: a.flag("plus_one")?,
            },
            "layer_norm" => Op::LayerNorm { eps: a.need("eps")? },
            "softmax" => Op::Softmax { axis: a.need("axis")? },
            "token_embed" => Op::TokenEmbed,
            "rope" => {
                let pairing = match a.need::<String>("pairing")?.as_str() {
                    "neox" => RopePairing::NeoX,
                    "interleaved" => RopePairing::Interleaved,
                    _ => return Err(error("pairing is neox or interleaved")),
                };
                Op::Rope(Rope {
                    pairing,
                    scale: a.optional("scale")?.unwrap_or(1.0),
                    long_from: a.optional("long_from")?,
                })
            }
            "sdpa" => Op::Sdpa(Sdpa {
                scale: a.need("scale")?,
                causal: a.flag("causal")?,
                window: a.optional("window")?,
                softcap: a.optional("softcap")?,
                mask: a.flag("mask")?,
                sinks: a.flag("sinks")?,
            }),
            "kv_cache" => Op::KvCache,
            "reshape" => Op::Reshape { dims: a.list("dims")? },
            "transpose" => Op::Transpose {
                a: a.need("a")?,
                b: a.need("b")?,
            },
            "permute" => Op::Permute { perm: a.list("perm")? },
            "slice" => Op::Slice {
                axis: a.need("axis")?,
                start: a.need("start")?,
                end: a.optional("end")?,
            },
            "concat" => Op::Concat { axis: a.need("axis")? },
            "split" => Op::Split {
                axis: a.need("axis")?,
                sizes: a.list("sizes")?,
            },
            "gather" => Op::Gather { axis: a.need("axis")? },
            "repeat" => Op::Repeat {
                axis: a.need("axis")?,
                n: a.need("n")?,
            },
            "cast" => {
                let name: String = a.need("to")?;
                Op::Cast {
                    to: DType::from_name(&name).ok_or_else(|| error("unknown dtype"))?,
                }
            }
            "argmax" => Op::Argmax { axis: a.need("axis")? },
            "topk" => Op::TopK { k: a.need("k")? },
            "sum" => Op::Sum {
                axis: a.need("axis")?,
                keep: a.flag("keep")?,
            },
            "mean" => Op::Mean {
                axis: a.need("axis")?,
                keep: a.flag("keep")?,
            },
            _ => return Err(error("unknown op")),
        };
        if let Some(name) = a.map.keys().next() {
            return Err(error(&format!("unknown attribute `{name}`")));
        }
        Ok(op)
    }
}
