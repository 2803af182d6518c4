//! Metadata values: small ones held, arrays kept as ranges of the file.

use super::GgufError;
use super::cursor::Cursor;

/// Arrays nested deeper than this are refused.
const MAX_DEPTH: usize = 4;
/// A text is at most so long: templates and whole tokenizers are texts, tensors are not.
const MAX_TEXT_BYTES: usize = 256 << 20;
/// What messages call a text.
const TEXT: &str = "a text value";
/// Elements that are walked one by one (texts, booleans, arrays) in one file. Vocabularies have up to a million.
pub(super) const MAX_WALK: usize = 1 << 24;

/// A metadata value that borrows the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// u8, u16, u32, u64.
    Uint(u64),
    /// i8, i16, i32, i64.
    Int(i64),
    /// f32, f64.
    Float(f64),
    /// bool.
    Bool(bool),
    /// A text.
    Str(&'a str),
    /// An array.
    Array(Array<'a>),
}

/// An array: its elements are read as they are asked for.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    pub(super) type_id: u32,
    pub(super) len: usize,
    pub(super) bytes: &'a [u8],
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Array({} of {})", self.len, type_name(self.type_id))
    }
}

impl<'a> Array<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Name of the element type.
    pub fn type_name(&self) -> &'static str {
        type_name(self.type_id)
    }

    /// The elements; the reader has walked them once, so each is well formed.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut cursor = self.cursor();
        let type_id = self.type_id;
        (0..self.len).map_while(move |_| scalar(&mut cursor, type_id, 1).ok())
    }

    /// The elements of an array of texts.
    pub fn strs(&self) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        (self.type_id == 8).then(|| {
            self.iter().map(|v| match v {
                Value::Str(s) => s,
                _ => "",
            })
        })
    }

    /// The bytes of the elements of an array of texts, which the reader has found to be UTF-8: vocabularies have
    /// hundreds of thousands, and checking them again takes longer than anything else that is done with them.
    pub(crate) fn texts(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let (mut cursor, len) = (self.cursor(), self.len);
        (self.type_id == 8).then(|| (0..len).map_while(move |_| cursor.string_bytes("a text").ok()))
    }

    /// Bytes of all elements, with the lengths of texts: no more than the file has.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn cursor(&self) -> Cursor<'a> {
        Cursor {
            file: "",
            bytes: self.bytes,
            at: 0,
            walk: usize::MAX,
        }
    }

    /// The elements of an array of numbers.
    pub fn numbers(&self) -> Option<impl Iterator<Item = f64> + use<'a>> {
        (self.type_id < 8 || self.type_id > 9).then(|| self.iter().map(|v| v.as_f64().unwrap_or(0.0)))
    }
}

impl<'a> Value<'a> {
    /// A number of any type; booleans are none.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Uint(n) => Some(n as f64),
            Value::Int(n) => Some(n as f64),
            Value::Float(x) => Some(x),
            Value::Bool(b) => Some(f64::from(u8::from(b))),
            _ => None,
        }
    }

    /// A whole number that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::Uint(n) => Some(n),
            Value::Int(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    /// A text.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }
}

/// Bytes of a text that are shown within a message, and of one that is listed (`{:#}`).
const SHOWN_BYTES: [usize; 2] = [200, 1 << 16];

/// The beginning of a text: whole characters, at most so many bytes.
pub(crate) fn clip(text: &str, most_bytes: usize) -> &str {
    let ends = (0..=most_bytes.min(text.len())).rev();
    let end = ends.into_iter().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

/// Shows a value in one line of bounded length; `{:#}` shows longer texts.
impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Uint(n) => write!(f, "{n}"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Float(x) => write!(f, "{x}"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Str(s) => {
                let shown = clip(s, SHOWN_BYTES[usize::from(f.alternate())]);
                write!(f, "{shown:?}")?;
                match s.len() - shown.len() {
                    0 => Ok(()),
                    more => write!(f, ".. and {more} more bytes"),
                }
            }
            Value::Array(a) => {
                write!(f, "[")?;
                for (i, v) in a.iter().take(6).enumerate() {
                    write!(f, "{}{v}", if i > 0 { ", " } else { "" })?;
                }
                write!(
                    f,
                    "{}]",
                    if a.len() > 6 {
                        format!(", .. {} of {}", a.len(), a.type_name())
                    } else {
                        String::new()
                    }
                )
            }
        }
    }
}

/// Name of a value type.
pub fn type_name(type_id: u32) -> &'static str {
    const NAMES: [&str; 13] = [
        "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64",
    ];
    NAMES.get(type_id as usize).copied().unwrap_or("unknown")
}

fn fixed_size(type_id: u32) -> Option<u64> {
    Some(match type_id {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

/// Reads a value; walks arrays once, so that what is kept is well formed.
pub(super) fn read<'a>(cursor: &mut Cursor<'a>, type_id: u32) -> Result<Value<'a>, GgufError> {
    scalar(cursor, type_id, 0)
}

fn scalar<'a>(cursor: &mut Cursor<'a>, type_id: u32, depth: usize) -> Result<Value<'a>, GgufError> {
    let at = cursor.at;
    if let Some(size) = fixed_size(type_id) {
        let bytes = cursor.take(size, "a metadata value")?;
        let mut wide = [0u8; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(wide);
        let shift = 64 - 8 * size as u32;
        return Ok(match type_id {
            6 => Value::Float(f64::from(f32::from_bits(unsigned as u32))),
            12 => Value::Float(f64::from_bits(unsigned)),
            7 => match unsigned {
                0 | 1 => Value::Bool(unsigned == 1),
                other => return Err(cursor.malformed(at, format!("a bool is 0 or 1, not {other}"))),
            },
            1 | 3 | 5 | 11 => Value::Int((unsigned << shift) as i64 >> shift),
            _ => Value::Uint(unsigned),
        });
    }
    match type_id {
        8 => Ok(Value::Str(cursor.short_string(MAX_TEXT_BYTES, TEXT)?)),
        9 if depth < MAX_DEPTH => {
            let element = cursor.u32("the element type of an array")?;
            let count = cursor.u64("the length of an array")?;
            let least = match element {
                8 => 8,
                9 => 12,
                _ => fixed_size(element)
                    .ok_or_else(|| cursor.malformed(at, format!("unknown element type {element} of an array")))?,
            };
            let len = cursor.checked_count(count, least, "array length")?;
            let start = cursor.at;
            match fixed_size(element) {
                Some(size) if element != 7 => {
                    cursor.take(len as u64 * size, "an array")?;
                }
                _ => {
                    cursor.walk = cursor.walk.checked_sub(len).ok_or_else(|| {
                        let reason =
                            format!("an array has {len} elements; all arrays together hold at most {MAX_WALK}");
                        cursor.malformed(at, reason)
                    })?;
                    for _ in 0..len {
                        match element {
                            8 => cursor.walk_string(MAX_TEXT_BYTES, TEXT)?,
                            _ => scalar(cursor, element, depth + 1).map(drop)?,
                        }
                    }
                }
            }
            Ok(Value::Array(Array {
                type_id: element,
                len,
                bytes: &cursor.bytes[start..cursor.at],
            }))
        }
        9 => Err(cursor.malformed(at, "arrays are nested too deeply")),
        other => Err(cursor.malformed(at, format!("unknown value type {other}"))),
    }
}
