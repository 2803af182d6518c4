//! Reads SentencePiece `.model` files (a protocol buffer) into the same form as GGUF metadata.

use super::GgufVocab;
use super::error::{Result, TokenizerError};

fn bad(problem: impl Into<String>) -> TokenizerError {
    TokenizerError::BadFile {
        file: "tokenizer.model",
        problem: problem.into(),
    }
}

/// A field of a message: its number and value.
enum Field<'a> {
    Varint(u64, u64),
    Fixed32(u64, u32),
    Bytes(u64, &'a [u8]),
}

/// Takes fields off a message one by one.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(|| bad("ends within a number"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(bad("has a number of more than ten bytes"))
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|n| *n <= self.0.len());
        let (head, rest) = self.0.split_at(n.ok_or_else(|| bad("ends within a field"))?);
        self.0 = rest;
        Ok(head)
    }

    fn next(&mut self) -> Result<Option<Field<'a>>> {
        while !self.0.is_empty() {
            let tag = self.varint()?;
            match tag & 7 {
                0 => return Ok(Some(Field::Varint(tag >> 3, self.varint()?))),
                1 => drop(self.take(8)?),
                2 => {
                    let n = self.varint()?;
                    return Ok(Some(Field::Bytes(tag >> 3, self.take(n)?)));
                }
                5 => {
                    let b = self.take(4)?;
                    return Ok(Some(Field::Fixed32(
                        tag >> 3,
                        u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
                    )));
                }
                other => return Err(bad(format!("is no SentencePiece model (wire type {other})"))),
            }
        }
        Ok(None)
    }
}

/// Reads the model.
pub(crate) fn read(model: &[u8]) -> Result<GgufVocab> {
    let mut vocab = GgufVocab {
        add_space_prefix: Some(true),
        remove_extra_whitespaces: Some(true),
        unk: Some(0),
        prefix_once: true,
        ..GgufVocab::default()
    };
    let (mut bos, mut eos, mut pad) = (1i64, 2i64, -1i64);
    let mut model_type = 1;
    let mut fields = Fields(model);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, piece) => read_piece(piece, &mut vocab)?,
            Field::Bytes(2, trainer) => {
                let mut fields = Fields(trainer);
                while let Some(field) = fields.next()? {
                    // Negative ids are sign-extended to 64 bits.
                    match field {
                        Field::Varint(3, v) => model_type = v,
                        Field::Varint(40, v) => vocab.unk = u32::try_from(v as i64).ok(),
                        Field::Varint(41, v) => bos = v as i64,
                        Field::Varint(42, v) => eos = v as i64,
                        Field::Varint(43, v) => pad = v as i64,
                        _ => {}
                    }
                }
            }
            Field::Bytes(3, normalizer) => {
                let mut fields = Fields(normalizer);
                while let Some(field) = fields.next()? {
                    match field {
                        Field::Bytes(2, map) => vocab.precompiled_charsmap = map.to_vec(),
                        Field::Varint(3, v) => vocab.add_space_prefix = Some(v != 0),
                        Field::Varint(4, v) => vocab.remove_extra_whitespaces = Some(v != 0),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    vocab.model = match model_type {
        1 => "t5".into(),
        2 => "llama".into(),
        other => {
            return Err(bad(format!(
                "is of model type {other}; 1 (Unigram) and 2 (BPE) are supported"
            )));
        }
    };
    let n = vocab.tokens.len();
    let id = |v: i64| u32::try_from(v).ok().filter(|id| (*id as usize) < n);
    (vocab.bos, vocab.eos, vocab.pad) = (id(bos), id(eos), id(pad));
    vocab.add_bos = Some(vocab.model == "llama" && vocab.bos.is_some());
    vocab.add_eos = Some(vocab.model == "t5" && vocab.eos.is_some());
    Ok(vocab)
}

fn read_piece(piece: &[u8], vocab: &mut GgufVocab) -> Result<()> {
    let (mut text, mut score, mut kind) = (&[][..], 0.0, 1);
    let mut fields = Fields(piece);
    while let Some(field) = fields.next()? {
        match field {
            Field::Bytes(1, t) => text = t,
            Field::Fixed32(2, bits) => score = f32::from_bits(bits),
            Field::Varint(3, k) => kind = i32::try_from(k).unwrap_or(-1),
            _ => {}
        }
    }
    vocab.tokens.push(text);
    vocab.scores.push(score);
    vocab.token_types.push(kind);
    Ok(())
}
