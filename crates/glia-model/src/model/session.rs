//! One sequence of a model: feeds ids, gives logits.

use glia_core::{CancelToken, Tensor};
use glia_ir::{ExecError, ExecStats, RunOptions, Session};

use super::{Model, ModelError};

pub use glia_ir::WantedRows;

/// A sequence: its KV cache and position.
pub struct ModelSession<'m> {
    model: &'m Model,
    session: Session,
}

impl<'m> ModelSession<'m> {
    pub(super) fn new(model: &'m Model) -> Result<ModelSession<'m>, ModelError> {
        Ok(ModelSession {
            model,
            session: model.executor.session()?,
        })
    }

    /// Tokens so far.
    pub fn pos(&self) -> usize {
        self.session.pos()
    }

    /// Runs these ids; returns the logits `[wanted, vocab]`, F32.
    ///
    /// # Errors
    /// [`ModelError`]; the session is as before.
    pub fn feed(&mut self, ids: &[u32], wanted: &WantedRows) -> Result<Tensor, ModelError> {
        self.feed_with(ids, wanted, None)
    }

    /// As [`ModelSession::feed`], with a token that can cancel it.
    ///
    /// # Errors
    /// As [`ModelSession::feed`].
    pub fn feed_with(
        &mut self,
        ids: &[u32],
        wanted: &WantedRows,
        cancel: Option<&CancelToken>,
    ) -> Result<Tensor, ModelError> {
        // Ids beyond i32 are beyond any vocabulary: the embedding names them.
        let ids: Vec<i32> = ids.iter().map(|&id| i32::try_from(id).unwrap_or(i32::MAX)).collect();
        let input = Tensor::from_i32([ids.len()], &ids)?;
        let mut options = RunOptions::default().with_wanted_rows(wanted.clone());
        if let Some(cancel) = cancel {
            options = options.with_cancel(cancel.clone());
        }
        let ran = self.session.run_with(&[("input_ids", input)], &options);
        let mut outputs = ran.map_err(|e| match e {
            ExecError::NonFinite { .. } => ModelError::in_file(self.model.path.clone(), e.into()),
            e => e.into(),
        })?;
        Ok(outputs.take("logits").expect("the decoder's graph declares `logits`"))
    }

    /// Where the time of the last [`feed`](ModelSession::feed) went, with
    /// [`Options::profile`](super::Options::profile).
    pub fn stats(&self) -> &ExecStats {
        self.session.stats()
    }

    /// Shortens the sequence; returns the length reached, at most `len`.
    pub fn truncate(&mut self, len: usize) -> usize {
        self.session.truncate(len)
    }

    /// Another sequence with the same past, which is shared, not copied.
    ///
    /// # Errors
    /// [`ModelError`] when memory is out.
    pub fn fork(&self) -> Result<ModelSession<'m>, ModelError> {
        Ok(ModelSession {
            model: self.model,
            session: self.session.fork()?,
        })
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.session.reset();
    }
}
