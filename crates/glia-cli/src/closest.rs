//! What somebody may have meant: the known word that is closest to one that is not.

/// Most characters of a caller's word that a message repeats.
const SHOWN_CHARS: usize = 60;

/// A text of the caller's, cut to what a line of a message or a table can hold.
pub fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// `; did you mean X?` for the candidate that a slip or two turns into `word`, or that `word` is a part of; else nothing.
pub fn hint(word: &str, candidates: &[&str]) -> String {
    match closest(word, candidates) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => String::new(),
    }
}

fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let n_chars = word.chars().count();
    if n_chars == 0 || n_chars > SHOWN_CHARS {
        return None;
    }
    let of = |candidate: &&'a str| {
        let is_part = n_chars > 1 && candidate.contains(word.as_str());
        let slips = if is_part { 0 } else { distance(&word, candidate) };
        (slips, *candidate)
    };
    let (slips, best) = candidates.iter().map(of).min_by_key(|(slips, _)| *slips)?;
    (slips <= (n_chars / 3).max(1)).then_some(best)
}

/// Insertions, deletions and exchanges of characters from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_parts_are_understood_and_no_more() {
        let names = ["cpu", "wgpu", "reference"];
        for (word, meant) in [
            ("gpu", Some("wgpu")),
            ("cpuu", Some("cpu")),
            ("CPU", Some("cpu")),
            ("ref", Some("reference")),
            ("refrence", Some("reference")),
            ("frob", None),
            ("", None),
            (&"x".repeat(10_000), None),
        ] {
            assert_eq!(closest(word, &names), meant, "{word}");
        }
        assert_eq!(shortened(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
