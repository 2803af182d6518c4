//! Bounds the depth of a template's syntax tree before it is parsed: the engine limits brackets and blocks, but reads
//! chains of operators, filters and branches of any length, whose trees are as deep as they are long.

use super::TemplateError;

/// Tokens of one `{{ }}` or `{% %}` that may lie below each other: a tree so deep fits the 2 MiB stack of a thread.
const MAX_TOKENS: usize = 1000;
/// Branches of a template: each `elif` is one level below the one before.
const MAX_ELIFS: usize = 250;

/// Refuses a template with longer chains.
///
/// # Errors
/// [`TemplateError::Limit`].
pub(super) fn check(source: &str) -> Result<(), TemplateError> {
    let bytes = source.as_bytes();
    let (mut at, mut n_elifs) = (0, 0);
    while let Some(found) = source[at..].find('{') {
        at += found + 1;
        let close = match bytes.get(at) {
            Some(b'{') => b'}',
            Some(b'%') => b'%',
            Some(b'#') => {
                at = source[at..].find("#}").map_or(bytes.len(), |end| at + end + 2);
                continue;
            }
            _ => continue,
        };
        let tag = Tag::read(&bytes[at + 1..], close);
        n_elifs += usize::from(tag.is_elif);
        if tag.deepest > MAX_TOKENS {
            return Err(TemplateError::Limit {
                limit: "1000 words and signs of one expression",
            });
        }
        if n_elifs > MAX_ELIFS {
            return Err(TemplateError::Limit { limit: "250 elif" });
        }
        at += 1 + tag.len;
    }
    Ok(())
}

/// What lies between the marks of a tag.
struct Tag {
    len: usize,
    /// Most tokens of one chain, with those around its brackets.
    deepest: usize,
    is_elif: bool,
}

impl Tag {
    /// Reads up to `close` and `}`, outside of texts and braces.
    fn read(bytes: &[u8], close: u8) -> Tag {
        let (mut at, mut n_tokens, mut braces) = (0, 0, 0usize);
        // Tokens above and before this one; those at the open brackets.
        let (mut depth, mut opened, mut deepest) = (0, Vec::new(), 0);
        let mut is_elif = false;
        while let Some(&byte) = bytes.get(at) {
            if byte == close && braces == 0 && bytes.get(at + 1) == Some(&b'}') {
                break;
            }
            let start = at;
            at += match byte {
                b'\'' | b'"' => text_len(&bytes[at..], byte),
                _ if is_word(byte) => bytes[at..].iter().take_while(|b| is_word(**b)).count(),
                _ => 1,
            };
            match byte {
                b'{' => braces += 1,
                b'}' => braces = braces.saturating_sub(1),
                _ if byte.is_ascii_whitespace() => continue,
                _ => {}
            }
            is_elif |= n_tokens <= 1 && &bytes[start..at] == b"elif";
            n_tokens += 1;
            depth += 1;
            match byte {
                b'(' | b'[' | b'{' => opened.push(depth),
                b')' | b']' | b'}' => depth = opened.pop().map_or(depth, |before| before + 1),
                // The next element lies beside this one, not below.
                b',' => depth = opened.last().copied().unwrap_or(0),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        Tag {
            len: at,
            deepest,
            is_elif,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Bytes of a text with its quotes, or of all that is left.
fn text_len(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += match byte {
            b'\\' => 2,
            _ => 1,
        };
        if byte == quote {
            break;
        }
    }
    at.min(bytes.len())
}
