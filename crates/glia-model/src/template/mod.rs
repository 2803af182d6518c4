//! Chat templates: Jinja as `transformers` renders it, in a sandbox with no files, no environment and bounded work.
//!
//! One thing is not bounded: the engine does not charge a list added to itself (`x = x + x`) over 32 times in a loop,
//! which takes memory and time without end. Templates come with the model, never from a request.

mod clock;
mod error;
mod python;

pub use clock::Clock;
pub use error::TemplateError;

use error::Raised;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value as Jinja};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use serde_json::{Map, Value};

/// Steps that a rendering may take; 64 bytes of data made cost one as well, so this bounds memory too (256 MB).
const MAX_STEPS: u64 = 4_000_000;
/// Bytes that a rendering may give.
const MAX_OUTPUT_BYTES: usize = 256 << 20;
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
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| TemplateError::Parse(describe(&e)))?);
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_fuel(Some(MAX_STEPS));
        env.set_recursion_limit(100);
        env.set_unknown_method_callback(unknown_method);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_formatter(|out, state, value| {
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
        env.add_template_owned("chat", source)
            .map_err(|e| TemplateError::Parse(describe(&e)))?;
        Ok(Self { env, special_tokens })
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
        let template = self
            .env
            .get_template("chat")
            .map_err(|e| TemplateError::Parse(describe(&e)))?;
        let mut out = Bounded(Vec::new());
        template
            .render_captured_to(Jinja::from(Serde(context)), &mut out)
            .map_err(|e| failure(&e))?;
        String::from_utf8(out.0).map_err(|e| TemplateError::Render(e.to_string()))
    }
}

/// Methods that Python's types have and the engine's do not.
fn unknown_method(state: &mut minijinja::State, value: &Jinja, name: &str, args: &[Jinja]) -> Result<Jinja, Error> {
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

/// Output that refuses to grow without end.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
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
fn tojson(value: &Jinja, indent: Option<usize>, options: Kwargs) -> Result<Jinja, Error> {
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
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::FileTooLarge
        {
            return TemplateError::Limit {
                limit: "256 MiB of output",
            };
        }
        if let Some(inner) = error.downcast_ref::<Error>()
            && inner.kind() == ErrorKind::OutOfFuel
        {
            return TemplateError::Limit {
                limit: "4 million steps",
            };
        }
        cause = error.source();
    }
    TemplateError::Render(describe(e))
}
