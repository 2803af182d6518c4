//! Chat templates: Jinja as `transformers` renders it, in a sandbox with no files, no environment and bounded work.
//!
//! Every template runs with a number of steps in proportion to what it is given. A step pays for an instruction or for 64
//! bytes; what the engine does not charge for by itself, the rewritten syntax tree does (`meter`, `work`).

mod clock;
mod depth;
mod error;
mod filters;
mod meter;
mod python;
mod work;

pub use clock::Clock;
pub use error::TemplateError;

use crate::wall::within;
use error::Raised;
use minijinja::machinery::{CodeGenerator, eval, make_string_output, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value as Jinja};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use serde_json::{Map, Value};

/// Steps of any rendering; as 64 bytes of data made cost one, this bounds memory too (64 MB).
const BASE_STEPS: u64 = 1_000_000;
/// Further steps for each byte of the conversation.
const STEPS_PER_BYTE: u64 = 16;
/// Steps of no rendering exceed this.
const MAX_STEPS: u64 = 16_000_000;
/// Bytes of a template's source.
const MAX_SOURCE_BYTES: usize = 4 << 20;
/// Names that a caller's variables must not take.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "raise_exception",
    "strftime_now",
];
/// Marks the end of a final message that is to be continued.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A compiled chat template with the model's special tokens.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    syntax: SyntaxConfig,
    special_tokens: Map<String, Value>,
}

/// What a template is rendered with.
#[derive(Clone, Debug, Default)]
pub struct ChatInput {
    /// Array of messages; keys that are null are dropped.
    pub messages: Value,
    /// Array of tools, or null.
    pub tools: Value,
    /// Further variables of the template (`enable_thinking` and the like).
    pub variables: Map<String, Value>,
    /// End with the start of an assistant's turn.
    pub add_generation_prompt: bool,
    /// End within the last message, for the model to go on.
    pub continue_final_message: bool,
}

impl ChatTemplate {
    /// Compiles a template. `special_tokens` holds `bos_token`, `eos_token` and such as strings.
    ///
    /// # Errors
    /// [`TemplateError::Parse`] with the line at fault.
    pub fn new(source: &str, special_tokens: Map<String, Value>, clock: Clock) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(TemplateError::Limit {
                limit: "4 MiB of source",
            });
        }
        depth::check(source)?;
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| TemplateError::Parse(describe(&e)))?;
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_recursion_limit(100);
        env.set_unknown_method_callback(unknown_method);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        work::install(&mut env);
        filters::install(&mut env);
        env.set_formatter(|out, state, value| {
            if value.as_object().is_some() {
                work::weigh(state, value)?;
            }
            if value.kind() == minijinja::value::ValueKind::Number && !value.is_integer() {
                let number = f64::try_from(value.clone())?;
                out.write_str(&python::float(number)).map_err(Error::from)
            } else {
                minijinja::escape_formatter(out, state, value)
            }
        });
        env.add_filter("tojson", tojson);
        env.add_function("raise_exception", |message: String| -> Result<Jinja, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
        });
        env.add_function("strftime_now", move |format: String| clock.format(&format));
        let source = without_generation_tags(source);
        within(|| parse(&source, "chat", syntax.clone()).map(drop))
            .map_err(TemplateError::Parse)?
            .map_err(|e| TemplateError::Parse(describe(&e)))?;
        Ok(Self {
            env,
            source,
            syntax,
            special_tokens,
        })
    }

    /// Chooses a template as `transformers` does: a `chat_template.jinja` beside the model wins over
    /// `tokenizer_config.json`; of a named list, `tool_use` is for conversations with tools, `default` for the rest.
    ///
    /// # Errors
    /// [`TemplateError::Missing`] when there is none, [`TemplateError::BadInput`] when the field is something else.
    pub fn select(config: &Value, side_file: Option<&str>, with_tools: bool) -> Result<String, TemplateError> {
        if let Some(source) = side_file {
            return Ok(source.into());
        }
        match &config["chat_template"] {
            Value::String(source) => Ok(source.clone()),
            Value::Null => Err(TemplateError::Missing),
            Value::Array(named) => {
                let find = |name: &str| {
                    named
                        .iter()
                        .find(|t| t["name"] == name)
                        .and_then(|t| t["template"].as_str())
                };
                let tool_use = if with_tools { find("tool_use") } else { None };
                let names = || {
                    named
                        .iter()
                        .filter_map(|t| t["name"].as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                tool_use
                    .or_else(|| find("default"))
                    .map(str::to_string)
                    .ok_or_else(|| TemplateError::BadInput {
                        field: "chat_template".into(),
                        problem: format!("has no template named `default` (there are: {})", names()),
                    })
            }
            _ => Err(TemplateError::BadInput {
                field: "chat_template".into(),
                problem: "is neither text nor list".into(),
            }),
        }
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] with the template's own words when it refuses the conversation; the other variants
    /// when the template or the input is at fault.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let mut context = self.special_tokens.clone();
        for (name, value) in &input.variables {
            if RESERVED.contains(&name.as_str()) || self.special_tokens.contains_key(name) {
                return Err(TemplateError::Reserved(name.clone()));
            }
            context.insert(name.clone(), value.clone());
        }
        let mut messages = clean(&input.messages)?;
        if input.continue_final_message {
            if input.add_generation_prompt {
                let problem = "excludes add_generation_prompt".into();
                return Err(TemplateError::BadInput {
                    field: "continue_final_message".into(),
                    problem,
                });
            }
            tag_final_message(&mut messages)?;
        }
        context.insert("messages".into(), Value::Array(messages));
        context.insert("tools".into(), input.tools.clone());
        context.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        let mut text = self.render_raw(&Value::Object(context))?;
        if input.continue_final_message {
            cut_at_tag(&mut text)?;
        }
        Ok(text)
    }

    /// Renders with a context of any shape.
    pub(crate) fn render_raw(&self, context: &Value) -> Result<String, TemplateError> {
        within(|| self.render_within(context)).map_err(TemplateError::Render)?
    }

    fn render_within(&self, context: &Value) -> Result<String, TemplateError> {
        let parsed =
            parse(&self.source, "chat", self.syntax.clone()).map_err(|e| TemplateError::Parse(describe(&e)))?;
        let mut generator = CodeGenerator::new("chat", &self.source);
        generator.compile_stmt(&meter::template(&parsed));
        let (instructions, blocks) = generator.finish();
        let mut env = self.env.clone();
        let steps = BASE_STEPS.saturating_add(STEPS_PER_BYTE.saturating_mul(size_bytes(context)));
        env.set_fuel(Some(steps.min(MAX_STEPS)));
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let root = Jinja::from(Serde(context));
        eval(&env, &instructions, root, &blocks, &mut out, AutoEscape::None).map_err(|e| failure(&e))?;
        Ok(text)
    }
}

/// About the bytes of a value as JSON.
fn size_bytes(value: &Value) -> u64 {
    match value {
        Value::String(s) => s.len() as u64 + 2,
        Value::Array(items) => items.iter().map(|v| size_bytes(v) + 1).sum::<u64>() + 2,
        Value::Object(map) => map.iter().map(|(k, v)| k.len() as u64 + 4 + size_bytes(v)).sum::<u64>() + 2,
        _ => 4,
    }
}

/// Methods that Python's types have and the engine's do not.
fn unknown_method(state: &mut State, value: &Jinja, name: &str, args: &[Jinja]) -> Result<Jinja, Error> {
    work::pay_for_method(state, value, name, args)?;
    if let (Some(text), "rsplit") = (value.as_str(), name) {
        let separator = args.first().and_then(Jinja::as_str).filter(|s| !s.is_empty());
        let limit = args
            .get(1)
            .and_then(Jinja::as_i64)
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(usize::MAX - 1);
        if let Some(separator) = separator {
            let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
            parts.reverse();
            return Ok(parts.into_iter().map(Jinja::from).collect());
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// The messages without keys that are null.
fn clean(messages: &Value) -> Result<Vec<Value>, TemplateError> {
    let bad = |field: String, problem: &str| TemplateError::BadInput {
        field,
        problem: problem.into(),
    };
    let messages = messages
        .as_array()
        .ok_or_else(|| bad("messages".into(), "is not an array"))?;
    let clean_one = |(i, message): (usize, &Value)| {
        let map = message
            .as_object()
            .ok_or_else(|| bad(format!("messages[{i}]"), "is not an object"))?;
        Ok(Value::Object(
            map.iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        ))
    };
    messages.iter().enumerate().map(clean_one).collect()
}

fn tag_final_message(messages: &mut [Value]) -> Result<(), TemplateError> {
    let last = messages.last_mut().and_then(|m| m.get_mut("content"));
    let text = match last {
        Some(Value::String(text)) => Some(text),
        Some(Value::Array(parts)) => parts.iter_mut().rev().find_map(|p| match p.get_mut("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    };
    match text {
        Some(text) => text.push_str(CONTINUE_TAG),
        None => {
            let problem = "has no text to continue".into();
            return Err(TemplateError::BadInput {
                field: "messages[-1].content".into(),
                problem,
            });
        }
    }
    Ok(())
}

/// Cuts where the final message ends. A template that trims the message has trimmed the tag's blank as well.
fn cut_at_tag(text: &mut String) -> Result<(), TemplateError> {
    let Some(at) = text.rfind(CONTINUE_TAG.trim_end()) else {
        return Err(TemplateError::Render(
            "the final message to continue is not in the prompt".into(),
        ));
    };
    let kept = text[at..].starts_with(CONTINUE_TAG);
    text.truncate(at);
    if !kept {
        text.truncate(text.trim_end().len());
    }
    Ok(())
}

/// `{% generation %}` marks what was generated, for training; the text is the same without.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let body = tag[2..end]
            .trim_start_matches(['-', '+'])
            .trim_end_matches(['-', '+'])
            .trim();
        let replacement = match body {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match replacement {
            Some(with) => out.push_str(&tag[..end + 2].replace(body, with)),
            None => out.push_str(&tag[..end + 2]),
        }
        rest = &tag[end + 2..];
    }
    out.push_str(rest);
    out
}

/// `tojson` as `transformers` defines it: Python's `json.dumps` with `ensure_ascii=False`.
fn tojson(state: &State, value: &Jinja, indent: Option<usize>, options: Kwargs) -> Result<Jinja, Error> {
    let fail = |e: String| Error::new(ErrorKind::BadSerialization, e);
    if value.is_undefined() {
        return Err(fail("Object of type Undefined is not JSON serializable".into()));
    }
    let flag = |name: &str| options.get::<Option<bool>>(name).map(|f| f.unwrap_or(false));
    let indent = match options.get::<Option<usize>>("indent")? {
        Some(n) => Some(n),
        None => indent,
    };
    if indent.is_some_and(|n| n > 64) {
        return Err(fail("indent is over 64".into()));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = match separators.as_deref() {
        None => (item.to_string(), ": ".to_string()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(fail("separators must be two texts".into())),
    };
    let style = python::JsonStyle {
        indent,
        item_separator,
        key_separator,
        ensure_ascii: flag("ensure_ascii")?,
        sort_keys: flag("sort_keys")?,
    };
    options.assert_all_used()?;
    let weight = work::weigh(state, value)?;
    // Each value as JSON takes its separators and the blanks before it; a byte may become six.
    let blanks = style.indent.unwrap_or(0).saturating_mul(weight.depth + 1);
    let around = blanks.saturating_add(style.item_separator.len() + style.key_separator.len()) as u64;
    let values = weight.nodes.saturating_mul(around.saturating_add(256));
    work::pay(state, weight.bytes.saturating_mul(6).saturating_add(values))?;
    let value = serde_json::to_value(value).map_err(|e| fail(e.to_string()))?;
    Ok(Jinja::from_safe_string(python::json(&value, &style)))
}

/// An error in one line, with the line of the template.
fn describe(e: &Error) -> String {
    let line = e.line().map_or_else(String::new, |n| format!(" (line {n})"));
    match e.detail() {
        Some(detail) => format!("{}: {detail}{line}", e.kind()),
        None => format!("{}{line}", e.kind()),
    }
}

/// Sorts a failed rendering by its cause.
fn failure(e: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref::<Raised>() {
            return TemplateError::Raised(message.clone());
        }
        if let Some(inner) = error.downcast_ref::<Error>()
            && inner.kind() == ErrorKind::OutOfFuel
        {
            return TemplateError::Limit {
                limit: "the work that a conversation of this size may take",
            };
        }
        cause = error.source();
    }
    TemplateError::Render(describe(e))
}
