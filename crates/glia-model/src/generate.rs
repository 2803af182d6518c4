//! Generation: an iterator of events over one session, from prompt ids to the end.

use std::collections::VecDeque;

use glia_core::CancelToken;

use crate::model::{ModelError, ModelSession, WantedRows};
use crate::sample::{SampleParams, Sampled, Sampler};
use crate::stop::StopFilter;
use crate::tokenizer::{DecodeStream, Tokenizer};

/// How to generate.
#[derive(Clone, Debug, Default)]
pub struct GenerateParams {
    /// Most tokens; `None` goes on until the model or the context ends, 0 generates nothing.
    pub max_tokens: Option<usize>,
    /// How to choose tokens.
    pub sample: SampleParams,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Go on past end-of-generation tokens.
    pub ignore_eos: bool,
    /// Cancels the generation from another thread.
    pub cancel: Option<CancelToken>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model said so, or a stop string was met.
    Stop,
    /// `max_tokens`, or the context, is used up.
    Length,
    /// Someone cancelled.
    Cancelled,
}

/// What a generation yields.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A token, and the text that became certain with it: whole characters, possibly none.
    Token {
        /// Its id.
        id: u32,
        /// New text.
        text: String,
        /// Natural logarithm of its probability in the unfiltered distribution.
        logprob: f32,
    },
    /// The end. Nothing follows.
    End {
        /// Why.
        reason: FinishReason,
        /// Text that was held back.
        text: String,
        /// Tokens of the prompt.
        n_prompt: usize,
        /// Tokens generated, the end-of-generation token not counted.
        n_generated: usize,
    },
}

/// A running generation. Each `next` runs at most one step; an error ends it and leaves the session as before the step.
pub struct Generation<'m> {
    tokenizer: &'m Tokenizer,
    session: ModelSession<'m>,
    sampler: Sampler,
    stream: Option<DecodeStream<&'m Tokenizer>>,
    filter: StopFilter,
    params: GenerateParams,
    pending: VecDeque<u32>,
    n_prompt: usize,
    n_generated: usize,
    max_context: usize,
    done: bool,
}

impl<'m> Generation<'m> {
    /// Begins after `prompt` on a session.
    ///
    /// # Errors
    /// [`ModelError::PromptTooLong`] with both numbers, [`ModelError::EmptyPrompt`], and bad parameters.
    pub(crate) fn new(
        tokenizer: &'m Tokenizer,
        session: ModelSession<'m>,
        prompt: &[u32],
        params: GenerateParams,
        max_context: usize,
    ) -> Result<Generation<'m>, ModelError> {
        if prompt.is_empty() {
            return Err(ModelError::EmptyPrompt);
        }
        // One position must be left for a first token, where one is asked for.
        let n_total = session.pos() + prompt.len();
        let wanted = usize::from(params.max_tokens != Some(0));
        if n_total + wanted > max_context {
            return Err(ModelError::PromptTooLong {
                n_prompt: n_total,
                max_context,
            });
        }
        let mut sampler = Sampler::new(params.sample.clone())?;
        prompt.iter().for_each(|&id| sampler.accept(id));
        Ok(Generation {
            tokenizer,
            session,
            sampler,
            stream: Some(tokenizer.decode_stream(true).continuing()),
            filter: StopFilter::new(&params.stop),
            pending: prompt.iter().copied().collect(),
            n_prompt: prompt.len(),
            n_generated: 0,
            max_context,
            done: false,
            params,
        })
    }

    /// The session, for another turn.
    pub fn into_session(self) -> ModelSession<'m> {
        self.session
    }

    fn end(&mut self, reason: FinishReason, flush: bool) -> Event {
        self.done = true;
        let mut text = String::new();
        if flush {
            let rest = self.stream.take().map(DecodeStream::finish).unwrap_or_default();
            let passed = self.filter.push(&rest);
            text = passed.text;
            if !passed.stopped {
                text += &self.filter.finish();
            }
        }
        Event::End {
            reason,
            text,
            n_prompt: self.n_prompt,
            n_generated: self.n_generated,
        }
    }

    /// Runs the ids and chooses the next: on the device where it can, for fewer bytes to come back.
    fn sampled(&mut self, ids: &[u32]) -> Result<Sampled, ModelError> {
        let cancel = self.params.cancel.as_ref();
        if let Some(k) = self.sampler.n_choices()
            && let Some(choices) = self.session.choose(ids, k, cancel)
        {
            return Ok(self.sampler.sample_of(&choices?)?);
        }
        let logits = self.session.feed_with(ids, &WantedRows::Last, cancel)?;
        Ok(self.sampler.sample(logits.as_f32()?)?)
    }

    fn step(&mut self) -> Result<Event, ModelError> {
        if self.params.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Ok(self.end(FinishReason::Cancelled, true));
        }
        let full = self.session.pos() + self.pending.len() >= self.max_context;
        if full || self.params.max_tokens.is_some_and(|most| self.n_generated >= most) {
            return Ok(self.end(FinishReason::Length, true));
        }
        let ids: Vec<u32> = self.pending.iter().copied().collect();
        let sampled = match self.sampled(&ids) {
            Err(e) if e.is_cancelled() => return Ok(self.end(FinishReason::Cancelled, true)),
            other => other?,
        };
        self.pending.clear();
        if !self.params.ignore_eos && self.tokenizer.is_eog(sampled.token) {
            return Ok(self.end(FinishReason::Stop, true));
        }
        self.sampler.accept(sampled.token);
        self.pending.push_back(sampled.token);
        self.n_generated += 1;
        let piece = match &mut self.stream {
            Some(stream) => stream.push(sampled.token)?,
            None => String::new(),
        };
        let passed = self.filter.push(&piece);
        if passed.stopped {
            self.done = true;
            let (n_prompt, n_generated) = (self.n_prompt, self.n_generated);
            return Ok(Event::End {
                reason: FinishReason::Stop,
                text: passed.text,
                n_prompt,
                n_generated,
            });
        }
        Ok(Event::Token {
            id: sampled.token,
            text: passed.text,
            logprob: sampled.logprob,
        })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, ModelError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let event = self.step();
        self.done |= event.is_err();
        Some(event)
    }
}
