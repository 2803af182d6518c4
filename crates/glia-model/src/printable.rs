//! Texts of files as they may go to a terminal.

use crate::gguf::clip;

/// A text of a file as it may go to a terminal: no control characters, no pages of it.
pub(crate) fn printable(text: &str) -> String {
    const MOST: usize = 200;
    let shown = clip(text, MOST);
    let mut line: String = shown
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if shown.len() < text.len() {
        line += &format!(".. and {} more bytes", text.len() - shown.len());
    }
    line
}
