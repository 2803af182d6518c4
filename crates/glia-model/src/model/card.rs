//! Summaries of model files, as `inspect` prints them.

use std::fmt;

use super::ModelFile;
use super::source::Files;
use crate::printable::printable;
use crate::tokenizer::Tokenizer;

/// The summary of a model file.
pub struct Card<'a>(pub(super) &'a ModelFile);

impl fmt::Display for Card<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, s) = (self.0, self.0.spec());
        let architecture = match file.files() {
            Files::Gguf { arch, .. } => format!(" (architecture {arch})"),
            Files::Safetensors(_) => String::new(),
        };
        head(f, file.path(), file.files(), &format!("{}{architecture}", s.family))?;
        writeln!(f, "layers      {}", s.n_layers)?;
        writeln!(f, "hidden      {}  (MLP {})", s.hidden, s.intermediate)?;
        writeln!(
            f,
            "heads       {} of {}, {} key/value",
            s.n_heads, s.head_dim, s.n_kv_heads
        )?;
        let tied = if s.tied { ", head tied to the embeddings" } else { "" };
        writeln!(f, "vocabulary  {}{tied}", s.vocab)?;
        writeln!(f, "context     {}", s.max_positions)?;
        weights(f, file.files())?;
        match file.tokenizer(&super::Options::default()) {
            Ok(tokenizer) => {
                writeln!(f, "tokenizer   {} tokens", tokenizer.vocab_size())?;
                writeln!(f, "template    {}", template(file, &tokenizer))?;
                let warnings = file.warnings().iter().chain(tokenizer.warnings());
                warnings.into_iter().try_for_each(|w| writeln!(f, "note        {w}"))
            }
            Err(e) => writeln!(f, "tokenizer   {e}"),
        }
    }
}

fn template(file: &ModelFile, tokenizer: &Tokenizer) -> String {
    let names = match (file.chat_template(tokenizer), file.chat_template_names()) {
        (Ok(None), _) => return "none: use raw prompts".to_owned(),
        (Err(e), _) | (_, Err(e)) => return e.to_string(),
        (Ok(Some(_)), Ok(names)) => names,
    };
    match names.len() {
        0 | 1 => "yes".to_owned(),
        _ => format!("yes: {}", names.join(", ")),
    }
}

/// File, format and size; what can be said of any file.
pub(super) fn head(f: &mut fmt::Formatter<'_>, path: &str, files: &Files, family: &str) -> fmt::Result {
    writeln!(f, "file        {path}")?;
    match files {
        Files::Gguf { file, .. } => {
            writeln!(f, "format      GGUF v{}, {} file(s)", file.version(), file.n_parts())?;
            for key in ["general.name", "general.license"] {
                if let Ok(Some(text)) = file.opt_str(key) {
                    writeln!(f, "{:<11} {}", key.trim_start_matches("general."), printable(text))?;
                }
            }
        }
        Files::Safetensors(_) => writeln!(f, "format      safetensors")?,
    }
    writeln!(f, "family      {family}")?;
    writeln!(f, "size        {:.1} MB", files.size_bytes() as f64 / 1e6)
}

/// A line per type of weights.
pub(super) fn weights(f: &mut fmt::Formatter<'_>, files: &Files) -> fmt::Result {
    for kind in files.dtypes() {
        let size = match kind.supported {
            true => format!("{:>10.1} MB", kind.size_bytes as f64 / 1e6),
            false => "  not supported".to_owned(),
        };
        writeln!(f, "weights     {:<8} {:>5} tensors {size}", kind.name, kind.n_tensors)?;
    }
    Ok(())
}
