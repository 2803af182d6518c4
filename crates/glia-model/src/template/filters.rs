//! Filters, tests and functions that Jinja2 has and the engine has not, or has otherwise.

use std::borrow::Cow;

use minijinja::value::{Kwargs, ObjectRepr, StringInput, Value};
use minijinja::{Environment, Error, ErrorKind, State};

use super::work::pay;

/// Attributes that Python's dicts have without holding them.
const DICT_METHODS: &[&str] = &[
    "get",
    "items",
    "keys",
    "values",
    "pop",
    "update",
    "copy",
    "setdefault",
    "clear",
];
/// Name of [`has_attribute`] in rewritten templates.
pub(super) const HAS: &str = "\u{1}has";

/// Adds them to an environment.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_filter("sort", sort);
    env.add_filter("join", join);
    env.add_filter("indent", indent);
    env.add_filter("truncate", truncate);
    env.add_filter("wordcount", wordcount);
    env.add_test("sameas", same_as);
    env.add_function("dict", dict);
    env.add_function(HAS, has_attribute);
}

/// Whether a method of Python's dicts is meant, which is there though no key is.
pub(super) fn is_dict_method(name: &str) -> bool {
    DICT_METHODS.contains(&name)
}

fn has_attribute(value: Value, name: &str) -> bool {
    let map = value.as_object().is_some_and(|o| o.repr() == ObjectRepr::Map);
    map || value.get_attr(name).is_ok_and(|v| !v.is_undefined())
}

/// An `attribute` argument as the engine wants it: numbers as text, without leading zeros.
fn attribute(value: &Value) -> Option<Value> {
    if value.is_none() || value.is_undefined() {
        return None;
    }
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let part = |p: &str| match p.trim().parse::<u64>() {
        Ok(n) => n.to_string(),
        Err(_) => p.to_owned(),
    };
    let key = |k: &str| k.split('.').map(part).collect::<Vec<_>>().join(".");
    Some(Value::from(text.split(',').map(key).collect::<Vec<_>>().join(",")))
}

fn named(kwargs: &Kwargs, name: &str) -> Result<Option<Value>, Error> {
    kwargs.get::<Option<Value>>(name)
}

/// `sort(reverse=false, case_sensitive=false, attribute=none)`, by position as well.
fn sort(
    state: &State,
    value: Value,
    reverse: Option<bool>,
    case_sensitive: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let mut options: Vec<(&str, Value)> = Vec::new();
    for (name, given) in [("reverse", reverse), ("case_sensitive", case_sensitive)] {
        if let Some(value) = given.map(Value::from).or(named(&kwargs, name)?) {
            options.push((name, value));
        }
    }
    if let Some(value) = named(&kwargs, "attribute")?.as_ref().and_then(attribute) {
        options.push(("attribute", value));
    }
    kwargs.assert_all_used()?;
    minijinja::filters::sort(state, value, options.into_iter().collect())
}

/// `join(d='', attribute=none)`; an attribute may be a number, also from the end.
fn join(
    state: &mut State,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    of: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let joiner = match joiner {
        Some(joiner) => Some(joiner),
        None => kwargs.get::<Option<StringInput<'_>>>("d")?,
    };
    let of = of.or(named(&kwargs, "attribute")?).filter(|a| !a.is_none());
    kwargs.assert_all_used()?;
    let none = || Kwargs::from_iter(std::iter::empty::<(&str, Value)>());
    let Some(of) = of else {
        return minijinja::filters::join(state, value, joiner, None, none());
    };
    if of.is_integer() {
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            pay(state, 64)?;
            items.push(item?.get_item(&of).unwrap_or_default());
        }
        return minijinja::filters::join(state, &Value::from(items), joiner, None, none());
    }
    let path = attribute(&of).and_then(|p| p.as_str().map(str::to_owned));
    minijinja::filters::join(state, value, joiner, path.as_deref(), none())
}

/// The lines as Python's `splitlines` cuts them.
fn lines(text: &str) -> Vec<&str> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        lines.push(&rest[..at]);
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// `indent(width=4, first=false, blank=false)`: a width is a number of blanks or a text.
fn indent(
    state: &State,
    text: StringInput<'_>,
    width: Option<Value>,
    first: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let flag = |name: &str| kwargs.get::<Option<bool>>(name).map(|f| f.unwrap_or(false));
    let first = match first {
        Some(first) => first,
        None => flag("first")?,
    };
    let blank = flag("blank")?;
    let width = match width.or(named(&kwargs, "width")?) {
        None => Cow::Borrowed("    "),
        Some(width) => match (width.as_str(), width.as_usize()) {
            (Some(text), _) => Cow::Owned(text.to_owned()),
            (None, Some(n)) => {
                pay(state, n as u64)?;
                Cow::Owned(" ".repeat(n))
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "indent: width must be a number or a text",
                ));
            }
        },
    };
    kwargs.assert_all_used()?;
    let source = format!("{}\n", text.as_str());
    let lines = lines(&source);
    pay(state, (lines.len() as u64).saturating_mul(width.len() as u64 + 1))?;
    let mut out = String::with_capacity(source.len());
    for (i, line) in lines.iter().enumerate() {
        let wanted = if i == 0 { first } else { blank || !line.is_empty() };
        if i > 0 {
            out.push('\n');
        }
        if wanted {
            out.push_str(&width);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// `truncate(length=255, killwords=false, end='...', leeway=5)`.
fn truncate(
    text: StringInput<'_>,
    length: Option<usize>,
    killwords: Option<bool>,
    end: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let length = length.or(kwargs.get("length")?).unwrap_or(255);
    let killwords = killwords.or(kwargs.get("killwords")?).unwrap_or(false);
    let end: String = end.or(kwargs.get("end")?).unwrap_or_else(|| "...".to_owned());
    let leeway: usize = kwargs.get::<Option<usize>>("leeway")?.unwrap_or(5);
    kwargs.assert_all_used()?;
    let text = text.as_str();
    let n_end = end.chars().count();
    if length < n_end {
        let problem = format!("truncate: expected length >= {n_end}, got {length}");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(text));
    }
    let cut: String = text.chars().take(length - n_end).collect();
    let kept = match cut.rsplit_once(' ') {
        Some((whole, _)) if !killwords => whole,
        _ => &cut,
    };
    Ok(Value::from(format!("{kept}{end}")))
}

/// Number of words: runs of letters, digits and underscores.
fn wordcount(text: StringInput<'_>) -> usize {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.as_str().split(|c| !word(c)).filter(|w| !w.is_empty()).count()
}

/// Whether two values are the same object; what is undefined is never the same.
fn same_as(value: &Value, other: &Value) -> bool {
    !value.is_undefined() && !other.is_undefined() && minijinja::tests::is_sameas(value, other)
}

/// `dict(mapping or pairs, name=value, ..)`.
fn dict(state: &State, value: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let Some(pairs) = value
        .as_ref()
        .filter(|v| v.as_object().is_some_and(|o| o.repr() != ObjectRepr::Map))
    else {
        return minijinja::functions::dict(value, kwargs);
    };
    let mut entries: Vec<(String, Value)> = Vec::new();
    for pair in pairs.try_iter()?.checked() {
        pay(state, 64)?;
        let pair: Vec<Value> = pair?.try_iter()?.take(3).collect();
        let Ok([key, item]) = <[Value; 2]>::try_from(pair) else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "dict: expected pairs of key and value",
            ));
        };
        let key = key
            .as_str()
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "dict: keys must be texts"))?;
        entries.push((key.to_owned(), item));
    }
    let names: Vec<String> = kwargs.args().map(str::to_owned).collect();
    for name in names {
        let value = kwargs.get::<Value>(&name)?;
        entries.push((name, value));
    }
    minijinja::functions::dict(None, entries.into_iter().collect())
}
