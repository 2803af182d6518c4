//! Bounds-checked reading of little-endian values.

use super::GgufError;

/// A position in the bytes of a file.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub file: &'a str,
    pub bytes: &'a [u8],
    pub at: usize,
    /// Array elements that may still be walked one by one.
    pub walk: usize,
}

impl<'a> Cursor<'a> {
    /// Bytes after the position.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], GgufError> {
        let short = || GgufError::ShortRead {
            file: self.file.to_owned(),
            what: what.to_owned(),
            offset: self.at,
            needed: n,
            len: self.bytes.len(),
        };
        let n_bytes = usize::try_from(n).map_err(|_| short())?;
        let end = self
            .at
            .checked_add(n_bytes)
            .filter(|&end| end <= self.bytes.len())
            .ok_or_else(short)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length, then as many bytes.
    pub fn string_bytes(&mut self, what: &str) -> Result<&'a [u8], GgufError> {
        let len = self.u64(what)?;
        self.take(len, what)
    }

    pub fn string(&mut self, what: &str) -> Result<&'a str, GgufError> {
        let at = self.at;
        let bytes = self.string_bytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed(at, format!("{what} is not UTF-8")))
    }

    pub fn malformed(&self, offset: usize, reason: impl Into<String>) -> GgufError {
        GgufError::Malformed {
            file: self.file.to_owned(),
            offset,
            reason: reason.into(),
        }
    }

    /// As [`Cursor::string`], of at most `most` bytes.
    pub fn short_string(&mut self, most: usize, what: &str) -> Result<&'a str, GgufError> {
        let (mut ahead, at) = (*self, self.at);
        let len = ahead.u64(what)?;
        // What the file does not hold is told of as such.
        if len > most as u64 && len <= ahead.left() as u64 {
            return Err(self.malformed(at, format!("{what} has {len} bytes, at most {most} are allowed")));
        }
        self.string(what)
    }

    /// Steps over what [`Cursor::short_string`] reads. Vocabularies are hundreds of thousands of short texts, most of them
    /// ASCII, which is soon seen.
    pub fn walk_string(&mut self, most: usize, what: &str) -> Result<(), GgufError> {
        let mut ahead = *self;
        if let Ok(bytes) = ahead.string_bytes(what)
            && bytes.len() <= most
            && (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok())
        {
            *self = ahead;
            return Ok(());
        }
        self.short_string(most, what).map(drop)
    }

    /// A count of things of at least `least_bytes` each, checked against the bytes left.
    pub fn checked_count(&self, count: u64, least_bytes: u64, what: &str) -> Result<usize, GgufError> {
        let fits = count.checked_mul(least_bytes).is_some_and(|n| n <= self.left() as u64);
        match usize::try_from(count) {
            Ok(n) if fits => Ok(n),
            _ => Err(GgufError::Count {
                file: self.file.to_owned(),
                what: what.to_owned(),
                count,
                len: self.bytes.len(),
            }),
        }
    }
}
