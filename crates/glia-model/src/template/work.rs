//! What work on values costs: functions that a rewritten template calls, and methods whose cost the engine does not see.

use minijinja::value::{Kwargs, ObjectRepr, StringInput, Value};
use minijinja::{Environment, Error, ErrorKind, State};

/// Name of [`own`] in templates; no template can write it.
pub(super) const OWN: &str = "\u{1}own";
/// Name of [`weighed`] in templates.
pub(super) const WEIGH: &str = "\u{1}weigh";
/// Name of [`list`] in templates.
pub(super) const LIST: &str = "\u{1}list";
/// Name of [`plain`] in templates.
pub(super) const PLAIN: &str = "\u{1}plain";

/// Bytes that one step of the engine pays for.
pub(super) const BYTES_PER_STEP: u64 = 64;
/// What a value costs beside its text, in bytes.
const NODE_BYTES: u64 = 32;
/// Deeper nesting is refused: some walks of the engine recurse.
const MAX_DEPTH: usize = 100;

/// What is in a value.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Weight {
    /// Values, itself included, each as often as it is reached.
    pub nodes: u64,
    /// Bytes of all texts.
    pub bytes: u64,
    /// Containers within containers.
    pub depth: usize,
}

impl Weight {
    fn total(&self) -> u64 {
        self.bytes.saturating_add(self.nodes.saturating_mul(NODE_BYTES))
    }
}

/// Adds the functions to an environment.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_function(OWN, own);
    env.add_function(WEIGH, weighed);
    env.add_function(LIST, list);
    env.add_function(PLAIN, plain);
    env.add_filter("sum", sum);
    env.add_filter("trim", trim);
}

/// Pays for as many bytes.
pub(super) fn pay(state: &State, bytes: u64) -> Result<(), Error> {
    match bytes / BYTES_PER_STEP {
        0 => Ok(()),
        steps => state.consume_fuel(steps),
    }
}

/// Walks a value as far as the remaining steps pay for, and pays.
pub(super) fn weigh(state: &State, value: &Value) -> Result<Weight, Error> {
    let most = state
        .fuel_levels()
        .map_or(u64::MAX, |(_, left)| left.saturating_mul(BYTES_PER_STEP));
    let mut weight = Weight::default();
    let fits = walk(value, 0, most, &mut weight)?;
    pay(state, if fits { weight.total() } else { u64::MAX })?;
    Ok(weight)
}

/// Whether the walk came to an end before it cost more than `most`.
fn walk(value: &Value, depth: usize, most: u64, weight: &mut Weight) -> Result<bool, Error> {
    weight.nodes += 1;
    weight.depth = weight.depth.max(depth);
    if let Some(text) = value.as_str() {
        weight.bytes = weight.bytes.saturating_add(text.len() as u64);
    }
    if weight.total() > most {
        return Ok(false);
    }
    let Some(object) = value.as_object() else {
        return Ok(true);
    };
    if depth >= MAX_DEPTH {
        let problem = format!("values are nested more than {MAX_DEPTH} deep");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    match object.repr() {
        ObjectRepr::Map => {
            for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                if !walk(&key, depth + 1, most, weight)? || !walk(&item, depth + 1, most, weight)? {
                    return Ok(false);
                }
            }
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            for item in object.try_iter().into_iter().flatten() {
                if !walk(&item, depth + 1, most, weight)? {
                    return Ok(false);
                }
            }
        }
        _ => {}
    }
    Ok(true)
}

/// A plain list of what a lazy one would give.
fn list(state: &State, value: Value) -> Result<Value, Error> {
    let Some(object) = value.as_object() else {
        return Ok(value);
    };
    let held = value.is_tuple() || value.downcast_object_ref::<Vec<Value>>().is_some();
    if held || !matches!(object.repr(), ObjectRepr::Seq | ObjectRepr::Iterable) {
        return Ok(value);
    }
    let mut items: Vec<Value> = Vec::new();
    for item in value.try_iter()?.checked() {
        items.push(item?);
        if items.len().is_multiple_of(64) {
            state.consume_fuel(64)?;
        }
    }
    Ok(Value::from(items))
}

/// A value that was just made: plain, and paid for with all that is in it.
fn own(state: &State, value: Value) -> Result<Value, Error> {
    if value.as_object().is_none() {
        return Ok(value);
    }
    let value = list(state, value)?;
    weigh(state, &value)?;
    Ok(value)
}

/// Pays for a walk over a value, or a comparison of a text.
fn weighed(state: &State, value: Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => pay(state, text.len() as u64 / 16)?,
        None if value.as_object().is_some() => drop(weigh(state, &value)?),
        None => {}
    }
    Ok(value)
}

/// A value to be kept in a namespace: not one itself.
fn plain(state: &State, value: Value) -> Result<Value, Error> {
    fn holds_namespace(value: &Value) -> bool {
        let Some(object) = value.as_object() else { return false };
        if object.type_name().ends_with("::Namespace") {
            return true;
        }
        match object.repr() {
            ObjectRepr::Map => object
                .try_iter_pairs()
                .into_iter()
                .flatten()
                .any(|(_, v)| holds_namespace(&v)),
            ObjectRepr::Seq | ObjectRepr::Iterable => {
                object.try_iter().into_iter().flatten().any(|v| holds_namespace(&v))
            }
            _ => false,
        }
    }
    if value.as_object().is_some() {
        // Bounds the search.
        weigh(state, &value)?;
        if holds_namespace(&value) {
            let problem = "a namespace cannot be kept in a namespace";
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    }
    Ok(value)
}

/// `sum` of numbers; the engine's would add lists as well.
fn sum(
    state: &State,
    values: Value,
    attribute: Option<&str>,
    start: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let named: Option<Value> = kwargs.get("start")?;
    if start.iter().chain(&named).any(|s| s.as_object().is_some()) {
        let problem = "sum: start must be a number";
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    minijinja::filters::sum(state, values, attribute, start, kwargs)
}

/// `trim`, paid for by the product of text and characters.
fn trim(state: &State, value: StringInput<'_>, chars: Option<std::borrow::Cow<'_, str>>) -> Result<Value, Error> {
    let n_chars = chars.as_ref().map_or(1, |c| c.len()) as u64;
    pay(state, (value.as_str().len() as u64).saturating_mul(n_chars))?;
    Ok(minijinja::filters::trim(value, chars))
}

/// Pays for methods of texts before they run, where that is more than what they give.
pub(super) fn pay_for_method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<(), Error> {
    let Some(text) = value.as_str() else { return Ok(()) };
    let n = text.len() as u64;
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let n_chars = args.first().and_then(Value::as_str).map_or(1, str::len) as u64;
            pay(state, n.saturating_mul(n_chars))
        }
        "format" => {
            let mut each = 0u64;
            for arg in args {
                each = each.saturating_add(weigh(state, arg)?.total());
            }
            let n_fields = text.matches('{').count() as u64;
            // Widths and precisions: every run of digits, whatever it stands for.
            let widths = text.split(|c: char| !c.is_ascii_digit()).filter(|d| !d.is_empty());
            let widths = widths
                .map(|d| d.parse::<u64>().unwrap_or(u64::MAX))
                .fold(0u64, u64::saturating_add);
            if nested_fields(text) {
                let problem = "format: fields within fields are not supported";
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
            pay(state, n_fields.saturating_mul(each).saturating_add(widths))
        }
        _ => Ok(()),
    }
}

/// Whether a replacement field holds another, which could ask for any width.
fn nested_fields(text: &str) -> bool {
    let mut open = 0usize;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' if open == 0 && chars.peek() == Some(&'{') => {
                chars.next();
            }
            '{' if open > 0 => return true,
            '{' => open = 1,
            '}' => open = 0,
            _ => {}
        }
    }
    false
}
