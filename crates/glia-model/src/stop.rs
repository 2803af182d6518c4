//! Stop strings over a stream of text pieces: nothing of a stop string, and nothing after it, ever leaves.

/// Watches a stream for stop strings and holds back what may become one.
#[derive(Clone, Debug)]
pub struct StopFilter {
    stops: Vec<String>,
    held: String,
}

/// What a push lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Text that is safe to show.
    pub text: String,
    /// Whether a stop string was met: the stream is over.
    pub stopped: bool,
}

impl StopFilter {
    /// A filter for these strings; empty ones are ignored.
    pub fn new(stops: &[String]) -> StopFilter {
        StopFilter {
            stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(),
            held: String::new(),
        }
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = first {
            self.held.truncate(at);
            return Passed {
                text: std::mem::take(&mut self.held),
                stopped: true,
            };
        }
        let keep = self
            .stops
            .iter()
            .map(|stop| overlap(&self.held, stop))
            .max()
            .unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        Passed {
            text: std::mem::replace(&mut self.held, rest),
            stopped: false,
        }
    }

    /// What was held back when the stream ended otherwise.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest proper prefix of `stop` that ends `text`.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest)
        .rev()
        .find(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut filter = StopFilter::new(&stops.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let mut out = String::new();
        for piece in pieces {
            let passed = filter.push(piece);
            out += &passed.text;
            if passed.stopped {
                return (out, true);
            }
        }
        (out + &filter.finish(), false)
    }

    #[test]
    fn stops_over_several_pieces_never_leak() {
        let letters: Vec<&str> = "A B C D E F G H I J K L".split(' ').collect();
        assert_eq!(stream(&["DEFGHIJ"], &letters), ("ABC".to_owned(), true));
        assert_eq!(
            stream(&["own fox"], &["the br", "own", " f", "ox"]),
            ("the br".to_owned(), true)
        );
        assert_eq!(
            stream(&["\nUser:"], &["hi\n", "Us", "er", "!"]),
            ("hi\nUser!".to_owned(), false)
        );
        assert_eq!(
            stream(&["five"], &["four, ", "fi", "ve, six"]),
            ("four, ".to_owned(), true)
        );
    }

    #[test]
    fn the_earliest_of_several_wins() {
        assert_eq!(stream(&["cd", "b"], &["abcd"]), ("a".to_owned(), true));
        assert_eq!(stream(&["aab"], &["aa", "aab"]), ("aa".to_owned(), true));
    }

    #[test]
    fn characters_stay_whole() {
        assert_eq!(stream(&["éé"], &["xé", "ü"]), ("xéü".to_owned(), false));
        // A stop that shares its first byte with another character.
        assert_eq!(stream(&["è"], &["é", "a"]), ("éa".to_owned(), false));
        assert_eq!(stream(&[""], &["a"]), ("a".to_owned(), false));
    }
}
