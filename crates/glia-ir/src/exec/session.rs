//! Sessions: handles of one sequence each. A run is checked as a whole first, then goes step by step; if one fails,
//! every sequence is brought back to where it was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use glia_core::{BackendError, SeqId, Tensor};

use super::compiled::Compiled;
use super::inputs::{self, Given};
use super::outputs::{join_rows, pick_rows};
use super::prepare::Shared;
use super::schedule::{self, Piece};
use super::step::StepRun;
use super::{ExecError, ExecStats, Outputs, RunOptions, WantedRows};

/// One sequence: its position and its share of the programs' states. Dropping it frees them.
pub struct Session {
    shared: Arc<Shared>,
    /// Where its states are; after a loss, where they were.
    compiled: Arc<Compiled>,
    seq: SeqId,
    pos: usize,
    stats: ExecStats,
}

impl Session {
    pub(super) fn open(shared: Arc<Shared>) -> Result<Session, ExecError> {
        let (compiled, seq) = place(&shared)?;
        Ok(Session {
            shared,
            compiled,
            seq,
            pos: 0,
            stats: ExecStats::default(),
        })
    }

    pub(super) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Tokens so far: position of the next one.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Where the time of the last run went.
    pub fn stats(&self) -> &ExecStats {
        &self.stats
    }

    /// Runs the tokens given behind those so far and returns every declared output. More rows than a step takes are
    /// split, where the graph is proved causal.
    ///
    /// # Errors
    /// [`ExecError`]; the session is then as before, and the call can be repeated. Only after
    /// [`DeviceLost`](BackendError::DeviceLost) a session that held tokens fails until it is reset.
    pub fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Outputs, ExecError> {
        self.run_with(inputs, &RunOptions::default())
    }

    /// As [`Session::run`], with options.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_with(&mut self, inputs: &[(&str, Tensor)], options: &RunOptions) -> Result<Outputs, ExecError> {
        let shared = self.shared.clone();
        let mut outputs = run_all(&shared, &mut [(self, inputs)], options)?;
        Ok(outputs.swap_remove(0))
    }

    /// Forgets all but the first `n` tokens. Returns the position reached, at most `n`: states that rewind to
    /// checkpoints only may reach less, and the tokens from there on are to be fed again.
    pub fn truncate(&mut self, n: usize) -> usize {
        if n < self.pos {
            self.pos = self.compiled.pool.lock().truncate(self.seq, n);
        }
        self.pos
    }

    /// A session with the same past, shared rather than copied.
    ///
    /// # Errors
    /// When a program cannot hold another sequence.
    pub fn fork(&self) -> Result<Session, ExecError> {
        if self.pos == 0 && self.compiled.is_lost() {
            return Session::open(self.shared.clone());
        }
        let seq = self.compiled.pool.next_id();
        let pos = self.compiled.add(&self.shared.plan, seq, Some((self.seq, self.pos)))?;
        Ok(Session {
            shared: self.shared.clone(),
            compiled: self.compiled.clone(),
            seq,
            pos,
            stats: ExecStats::default(),
        })
    }

    /// Begins a new conversation.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Moves a session that holds nothing to the programs that came after a loss.
    fn move_if_lost(&mut self) -> Result<(), ExecError> {
        if self.pos == 0 && self.compiled.is_lost() {
            (self.compiled, self.seq) = place(&self.shared)?;
        }
        Ok(())
    }
}

/// An empty sequence on the programs of now. A loss that shows itself here costs nobody anything, so that the programs
/// that come after it are asked as well, once.
fn place(shared: &Shared) -> Result<(Arc<Compiled>, SeqId), ExecError> {
    let on = |compiled: Arc<Compiled>| {
        let seq = compiled.pool.next_id();
        compiled.add(&shared.plan, seq, None)?;
        Ok((compiled, seq))
    };
    match on(shared.current()?) {
        Err(e) if ExecError::is_device_lost(&e) => on(shared.current()?),
        other => other,
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.compiled.pool.release(self.seq);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({}, {} tokens)", self.seq.0, self.pos)
    }
}

/// One sequence's part of a run: what goes in, and what has come out so far.
pub(super) struct Run {
    pub seq: SeqId,
    pub past: usize,
    pub given: Given,
    pub wanted: Vec<usize>,
    /// For each declared output, its pieces.
    pub outputs: Vec<Vec<Tensor>>,
}

/// Runs several sequences, all or nothing.
pub(super) fn run_all(
    shared: &Arc<Shared>,
    batch: &mut [(&mut Session, &[(&str, Tensor)])],
    options: &RunOptions,
) -> Result<Vec<Outputs>, ExecError> {
    let started = shared.config.profile.then(Instant::now);
    let wanted_outputs = wanted_outputs(shared, options)?;
    batch.iter_mut().try_for_each(|(session, _)| session.move_if_lost())?;
    let compiled = batch.first().map_or_else(|| shared.held(), |(s, _)| s.compiled.clone());
    if let Some((elsewhere, _)) = batch.iter().find(|(s, _)| !Arc::ptr_eq(&s.compiled, &compiled)) {
        // Of programs that differ all but the last are lost.
        elsewhere.compiled.pool.lock().check_alive()?;
    }
    let mut runs = Vec::with_capacity(batch.len());
    for (session, given) in batch.iter() {
        runs.push(check(shared, session, given, options)?);
    }
    let n_tokens: Vec<usize> = runs.iter().map(|r| r.given.n_tokens).collect();
    let steps = schedule::steps(&shared.plan, &n_tokens)?;

    let mut stats = ExecStats::default();
    let mut states = compiled.pool.lock();
    states.check_alive()?;
    states.begin(runs.iter().map(|r| (r.seq, r.past)));
    for pieces in &steps {
        let mut step = StepRun::new(shared, &runs, pieces, options, &wanted_outputs, started);
        // A backend that panics fails the step like one that returns an error.
        let ran = catch_unwind(AssertUnwindSafe(|| step.run(&mut states, &mut stats)));
        let ran = ran.unwrap_or_else(|panic| Err(BackendError::panicked(&*panic).into()));
        let outputs = ran.inspect_err(|e| {
            states.restore();
            compiled.note(&shared.plan, &mut states, step.backend_at_fault(), e);
        })?;
        if shared.counts_tokens {
            states.programs.iter_mut().for_each(|p| p.commit());
        } else {
            states.programs.iter_mut().for_each(|p| p.rollback());
        }
        for (piece, outputs) in pieces.iter().zip(outputs) {
            for (all, tensor) in runs[piece.run].outputs.iter_mut().zip(outputs) {
                all.push(tensor);
            }
        }
    }
    let results = runs
        .iter_mut()
        .map(|run| collect(shared, run, options, &wanted_outputs))
        .collect::<Result<Vec<_>, _>>();
    let results = results.inspect_err(|_| states.restore())?;
    states.finish();
    drop(states);

    if let Some(started) = started {
        stats.total_ms = started.elapsed().as_secs_f64() * 1e3;
        stats.n_steps = steps.len();
        stats.n_tokens = n_tokens.iter().sum();
        stats.per_node_ms.retain(|(name, _)| !name.is_empty());
    }
    for ((session, _), n) in batch.iter_mut().zip(n_tokens) {
        if shared.counts_tokens {
            session.pos += n;
        }
        session.stats = stats.clone();
    }
    Ok(results)
}

/// Checks one sequence's inputs and limits, before any work.
fn check(shared: &Shared, session: &Session, given: &[(&str, Tensor)], options: &RunOptions) -> Result<Run, ExecError> {
    let given = inputs::check(&shared.plan.graph, &shared.inputs, given, session.pos)?;
    let max = shared.config.max_context;
    let needed = session.pos.saturating_add(given.n_tokens);
    if needed > max {
        return Err(ExecError::ContextOverflow { needed, max });
    }
    Ok(Run {
        seq: session.seq,
        past: session.pos,
        wanted: schedule::wanted(&options.wanted_rows, given.n_tokens)?,
        given,
        outputs: vec![Vec::new(); shared.plan.outputs.len()],
    })
}

/// For each declared output, whether it is to be returned.
fn wanted_outputs(shared: &Shared, options: &RunOptions) -> Result<Vec<bool>, ExecError> {
    let declared = &shared.plan.graph.outputs;
    let Some(names) = &options.wanted_outputs else {
        return Ok(vec![true; declared.len()]);
    };
    if let Some(name) = names.iter().find(|n| declared.iter().all(|o| o.name != **n)) {
        return Err(ExecError::UnknownOutput {
            name: name.clone(),
            declared: declared.iter().map(|o| o.name.clone()).collect(),
        });
    }
    Ok(declared.iter().map(|o| names.contains(&o.name)).collect())
}

/// Joins the pieces of each wanted output. Outputs with a row per token, which the graph did not cut to the wanted rows
/// itself, are cut here.
fn collect(shared: &Shared, run: &mut Run, options: &RunOptions, wanted: &[bool]) -> Result<Outputs, ExecError> {
    let graph = &shared.plan.graph;
    let mut outputs = Outputs::default();
    let all = graph.outputs.iter().zip(std::mem::take(&mut run.outputs)).zip(wanted);
    for ((output, pieces), _) in all.filter(|(_, wanted)| **wanted) {
        let ty = &graph.value(output.value).ty;
        let mut tensor = join_rows(pieces)?;
        let per_token = ty.is_by_rows() && ty.dims.first() == Some(&glia_core::Dim::T);
        if per_token && options.wanted_rows != WantedRows::All {
            tensor = pick_rows(&tensor, &run.wanted)?;
        }
        outputs.named.push((output.name.clone(), tensor));
    }
    Ok(outputs)
}

impl Piece {
    /// The wanted rows of a run that lie in this piece, counted from the piece's first row.
    pub(super) fn wanted<'a>(&self, run: &'a Run) -> impl Iterator<Item = usize> + 'a {
        let (start, end) = (self.start, self.start + self.n_rows);
        let range = run.wanted.partition_point(|&w| w < start)..run.wanted.partition_point(|&w| w < end);
        run.wanted[range].iter().map(move |&w| w - start)
    }
}
