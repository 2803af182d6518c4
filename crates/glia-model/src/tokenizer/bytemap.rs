//! The GPT-2 alphabet: each of the 256 bytes as one printable character, so that a vocabulary of byte strings is text.

use std::sync::OnceLock;

/// The character that stands for a byte.
pub(crate) fn byte_to_char(b: u8) -> char {
    static TABLE: OnceLock<[char; 256]> = OnceLock::new();
    TABLE.get_or_init(build)[b as usize]
}

/// The byte that a character stands for.
pub(crate) fn char_to_byte(c: char) -> Option<u8> {
    match c as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

fn build() -> [char; 256] {
    let mut table = ['\0'; 256];
    for code in 0..0x144 {
        if let Some(c) = char::from_u32(code)
            && let Some(b) = char_to_byte(c)
        {
            table[b as usize] = c;
        }
    }
    table
}

/// Appends the bytes of a token's text; false when a character is outside the alphabet.
pub(crate) fn decode(text: &str, out: &mut Vec<u8>) -> bool {
    text.chars()
        .try_for_each(|c| {
            out.push(char_to_byte(c)?);
            Some(())
        })
        .is_some()
}

#[cfg(test)]
mod tests {
    #[test]
    fn alphabet_is_a_bijection() {
        let chars: std::collections::HashSet<char> = (0..=255).map(super::byte_to_char).collect();
        assert_eq!(chars.len(), 256);
        assert!((0..=255u8).all(|b| super::char_to_byte(super::byte_to_char(b)) == Some(b)));
        assert_eq!((super::byte_to_char(b' '), super::byte_to_char(b'\n')), ('Ġ', 'Ċ'));
    }
}
