//! Sequences of a model: feed ids, one sequence or several at once, and get logits.

use glia_core::{CancelToken, Tensor};
use glia_ir::{ExecError, ExecStats, Outputs, RunOptions, Session};

use super::{Model, ModelError};
use crate::sample::Choices;

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
        let ran = self.session.run_with(&[input(ids)?], &run_options(wanted, cancel));
        Ok(logits(ran.map_err(|e| self.model.run_error(e))?))
    }

    /// Runs these ids and returns the `k` likeliest tokens after the last, chosen on the device; `None`, and nothing is
    /// run, when the model's backend leaves that to the host or has no choice of so many.
    pub(crate) fn choose(
        &mut self,
        ids: &[u32],
        k: usize,
        cancel: Option<&CancelToken>,
    ) -> Option<Result<Choices, ModelError>> {
        let count = self.model.choices.iter().copied().find(|&n| n >= k)?;
        Some(self.choose_of(ids, count, cancel))
    }

    fn choose_of(&mut self, ids: &[u32], count: usize, cancel: Option<&CancelToken>) -> Result<Choices, ModelError> {
        let (logits, tokens) = (format!("choices.{count}.logits"), format!("choices.{count}.ids"));
        let options = run_options(&WantedRows::Last, cancel);
        let options = options.with_wanted_outputs(&[&logits, &tokens, "choices.total"]);
        let ran = self.session.run_with(&[input(ids)?], &options);
        let outputs = ran.map_err(|e| self.model.run_error(e))?;
        let get = |name: &str| {
            outputs
                .get(name)
                .expect("the graph declares the choices that were asked for")
        };
        Ok(Choices {
            logits: get(&logits).as_f32()?.to_vec(),
            ids: get(&tokens).as_i32()?.iter().map(|&id| id as u32).collect(),
            total: get("choices.total").as_f32()?.first().copied().unwrap_or(1.0),
        })
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

impl Model {
    /// Runs each session's ids, of several sequences, in one step; returns the logits `[wanted, vocab]`, F32, of each. The
    /// weights are read once for all of them, and every sequence gets the bits that it gets alone. `wanted` counts rows of
    /// each sequence's own ids. Ids that do not fit in a step ([`Options::max_step_tokens`](super::Options)) run in
    /// several.
    ///
    /// ```
    /// # #[cfg(all(feature = "cpu", feature = "demo"))] {
    /// use glia_model::{Model, WantedRows};
    ///
    /// let model = Model::open_demo()?;
    /// let (mut romeo, mut juliet) = (model.session()?, model.session()?);
    /// let mut batch = [(&mut romeo, &[3, 5, 8][..]), (&mut juliet, &[13])];
    /// let logits = model.feed_batch(&mut batch, &WantedRows::Last)?;
    /// assert_eq!((logits.len(), romeo.pos(), juliet.pos()), (2, 3, 1));
    /// # }
    /// # Ok::<(), glia_model::ModelError>(())
    /// ```
    ///
    /// # Errors
    /// [`ModelError`], also when a session is of another model; all sessions are then as before.
    pub fn feed_batch(
        &self,
        batch: &mut [(&mut ModelSession<'_>, &[u32])],
        wanted: &WantedRows,
    ) -> Result<Vec<Tensor>, ModelError> {
        self.feed_batch_with(batch, wanted, None)
    }

    /// As [`Model::feed_batch`], with a token that can cancel it.
    ///
    /// # Errors
    /// As [`Model::feed_batch`].
    pub fn feed_batch_with(
        &self,
        batch: &mut [(&mut ModelSession<'_>, &[u32])],
        wanted: &WantedRows,
        cancel: Option<&CancelToken>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let inputs: Vec<_> = batch
            .iter()
            .map(|(_, ids)| Ok([input(ids)?]))
            .collect::<Result<_, ModelError>>()?;
        let mut runs: Vec<(&mut Session, &[(&str, Tensor)])> = batch
            .iter_mut()
            .zip(&inputs)
            .map(|((session, _), input)| (&mut session.session, &input[..]))
            .collect();
        let ran = self.executor.run_batch_with(&mut runs, &run_options(wanted, cancel));
        let outputs = ran.map_err(|e| self.run_error(e))?;
        Ok(outputs.into_iter().map(logits).collect())
    }

    fn run_error(&self, error: ExecError) -> ModelError {
        match error {
            ExecError::NonFinite { .. } => ModelError::in_file(self.path.clone(), error.into()),
            error => error.into(),
        }
    }
}

fn input(ids: &[u32]) -> Result<(&'static str, Tensor), ModelError> {
    // Ids beyond i32 are beyond any vocabulary: the embedding names them.
    let ids: Vec<i32> = ids.iter().map(|&id| i32::try_from(id).unwrap_or(i32::MAX)).collect();
    Ok(("input_ids", Tensor::from_i32([ids.len()], &ids)?))
}

fn run_options(wanted: &WantedRows, cancel: Option<&CancelToken>) -> RunOptions {
    let options = RunOptions::default()
        .with_wanted_rows(wanted.clone())
        .with_wanted_outputs(&["logits"]);
    match cancel {
        Some(cancel) => options.with_cancel(cancel.clone()),
        None => options,
    }
}

fn logits(mut outputs: Outputs) -> Tensor {
    outputs.take("logits").expect("the decoder's graph declares `logits`")
}
