//! Text from stdin or a file: UTF-8, of bounded size, a byte order mark dropped, line ends kept.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::exit::CliError;

/// More text than any context holds; a runaway pipe must not fill the memory.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

/// More text than anyone scores.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// All of stdin.
pub fn stdin() -> Result<String, CliError> {
    decode("stdin", io::stdin().lock(), MAX_PROMPT_BYTES)
}

/// All of a file.
pub fn file(path: &Path) -> Result<String, CliError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| CliError::failed(format!("{name}: {e}")))?;
    decode(&name, file, MAX_FILE_BYTES)
}

fn decode(name: &str, reader: impl Read, max_bytes: u64) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    reader.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|e| {
        CliError::failed(match e.kind() {
            io::ErrorKind::IsADirectory => format!("{name}: is a folder; give a text file"),
            _ => format!("{name}: {e}"),
        })
    })?;
    if bytes.len() as u64 > max_bytes {
        return Err(CliError::failed(format!("{name}: more than {max_bytes} bytes of text")));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        CliError::failed(format!(
            "{name}: byte {at} is not UTF-8; convert the text first (iconv -t UTF-8)"
        ))
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(outcome: Result<String, CliError>) -> String {
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn text_is_taken_exactly_and_bounded() {
        assert_eq!(decode("t", &b"\xef\xbb\xbfa\r\nb"[..], 99).unwrap(), "a\r\nb");
        assert!(decode("t", &b"abc"[..], 3).is_ok());
        assert!(error(decode("t", io::repeat(b'a'), 3)).starts_with("t: more than 3 bytes"));
        let latin = error(decode("t", &b"caf\xe9"[..], 99));
        assert!(latin.contains("byte 3") && latin.contains("iconv"), "{latin}");
    }

    #[test]
    fn folders_and_missing_files_are_named() {
        let folder = std::env::temp_dir();
        assert!(error(file(&folder)).contains(&folder.display().to_string()));
        assert!(error(file(Path::new("no/such.txt"))).starts_with("no/such.txt: "));
    }
}
