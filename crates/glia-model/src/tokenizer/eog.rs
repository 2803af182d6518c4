//! Which tokens end generation. Files name one EOS; models also stop at end-of-turn tokens known by their text.

use super::vocab::{TokenKind, Vocab};

/// Texts that end generation wherever they are tokens.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "[e~[",
    // Padding, repository and file separators of fill-in-the-middle.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Channel markers of the harmony format, which are shown.
const SHOWN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// The ids that end a generation, in order. Marks them as control tokens, whatever the file calls them.
pub(crate) fn find(vocab: &mut Vocab, named: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let table = &vocab.table;
    let mut ids = from_texts(|text| table.id(text.as_bytes()));
    for id in &ids {
        vocab.kinds[*id as usize] = TokenKind::Control;
    }
    for shown in SHOWN.iter().filter_map(|text| vocab.table.id(text.as_bytes())) {
        vocab.kinds[shown as usize] = TokenKind::UserDefined;
    }
    let before = [vocab.table.id(b"<|end|>"), vocab.table.id(b"</s>")];
    ids.extend(named);
    let table = &vocab.table;
    let kept = settle(ids, |text| table.id(text.as_bytes()));
    if let Some(end) = before[0].filter(|id| !kept.contains(id)) {
        vocab.kinds[end as usize] = TokenKind::UserDefined;
    }
    if let Some(s) = before[1].filter(|id| !kept.contains(id)) {
        vocab.kinds[s as usize] = TokenKind::Normal;
    }
    kept
}

/// The ids of the known texts.
pub(crate) fn from_texts(id_of: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    ENDS.iter().filter_map(|text| id_of(text)).collect()
}

/// Sorts, and removes what only looks like an end: `<|end|>` closes a message, not a turn, where `<|return|>` and
/// `<|call|>` exist; `</s>` is plain markup beside `<|tool_response>`.
pub(crate) fn settle(mut ids: Vec<u32>, id_of: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids.dedup();
    let has = |ids: &[u32], text: &str| id_of(text).is_some_and(|id| ids.contains(&id));
    let call = has(&ids, "<|call|>") || has(&ids, "<|calls|>");
    if call && (has(&ids, "<|return|>") || has(&ids, "<|flush|>")) {
        ids.retain(|id| Some(*id) != id_of("<|end|>"));
    }
    if has(&ids, "<|tool_response>") || has(&ids, "<|plamo:eos|>") {
        ids.retain(|id| Some(*id) != id_of("</s>"));
    }
    ids
}
