//! Generated blocks in documents: kept true by a test, rewritten when asked.

use std::path::Path;

/// Fails a test when the block `name` of a document is not `text`. A block stands between the lines
/// `<!-- name -->` and `<!-- end of name -->`. With the variable `GLIA_BLESS` set, it is rewritten instead.
///
/// # Panics
/// When the block is missing or stale, naming the cure, and when the document cannot be read or written.
pub fn keep_block(document: impl AsRef<Path>, name: &str, text: &str, cure: &str) {
    let bless = std::env::var_os("GLIA_BLESS").is_some();
    keep(document.as_ref(), name, text, cure, bless);
}

fn keep(path: &Path, name: &str, text: &str, cure: &str, bless: bool) {
    let said = path.display();
    let old = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{said}: {e}"));
    let new = replaced(&old, name, text).unwrap_or_else(|| panic!("{said} has no block `<!-- {name} -->`"));
    if old == new {
        return;
    }
    assert!(
        bless,
        "{said}: the block `{name}` is stale: run `GLIA_BLESS=1 {cure}` and commit the document"
    );
    std::fs::write(path, new).unwrap_or_else(|e| panic!("{said}: {e}"));
}

fn replaced(document: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_replaced_between_their_marks() {
        let document = "a\n<!-- t -->\nold\n<!-- end of t -->\nb\n";
        let new = replaced(document, "t", "| x |\n").unwrap();
        assert_eq!(new, "a\n<!-- t -->\n\n| x |\n\n<!-- end of t -->\nb\n");
        assert_eq!(replaced(&new, "t", "| x |").as_deref(), Some(new.as_str()));
        assert_eq!(replaced(document, "u", ""), None);
    }

    #[test]
    #[should_panic(expected = "GLIA_BLESS=1 cargo test -p x")]
    fn stale_blocks_name_the_cure() {
        let path = std::env::temp_dir().join(format!("glia-block-{}.md", std::process::id()));
        std::fs::write(&path, "<!-- t -->\n<!-- end of t -->\n").unwrap();
        keep(&path, "t", "new", "cargo test -p x", false);
    }
}
