//! What several tests share.

pub mod to_gguf;
