//! The forwards that are profiled: a prefill, then tokens one at a time.

use std::time::{Duration, Instant};

use glia_ir::ExecStats;
use glia_model::{Model, ModelSession, WantedRows};

use crate::args::ProfileArgs;
use crate::cmd::bench::work::tokens;
use crate::exit::CliError;

/// One profiled call of the model.
pub struct Forward {
    /// When it began, since the profile did.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
    /// Its steps and nodes.
    pub stats: ExecStats,
}

/// The forwards of one kind.
pub struct Runs {
    /// What they did, for people: `prefill of 512 tokens`.
    pub name: String,
    /// Tokens of each forward.
    pub n_tokens: usize,
    /// In the order in which they ran.
    pub forwards: Vec<Forward>,
}

/// Runs what the arguments ask for; each kind is warmed up once.
pub fn run(model: &Model, args: &ProfileArgs) -> Result<Vec<Runs>, CliError> {
    let began = Instant::now();
    let mut all = Vec::new();
    if args.prefill > 0 {
        let ids = tokens(model, 0, args.prefill);
        model.session()?.feed(&ids, &WantedRows::Last)?;
        let mut session = model.session()?;
        all.push(Runs {
            name: format!("prefill of {}", count(args.prefill, "token")),
            n_tokens: args.prefill,
            forwards: vec![forward(&mut session, &ids, began)?],
        });
    }
    if args.decode > 0 {
        let ids = tokens(model, 0, args.depth + args.decode);
        let (past, rest) = ids.split_at(args.depth);
        let mut session = model.session()?;
        if !past.is_empty() {
            session.feed(past, &WantedRows::Last)?;
        }
        session.feed(&rest[..1], &WantedRows::Last)?;
        session.truncate(args.depth);
        let mut forwards = Vec::with_capacity(rest.len());
        for id in rest {
            forwards.push(forward(&mut session, std::slice::from_ref(id), began)?);
        }
        let behind = match args.depth {
            0 => String::new(),
            depth => format!(" behind {depth}"),
        };
        all.push(Runs {
            name: format!("decode of {}{behind}", count(args.decode, "token")),
            n_tokens: 1,
            forwards,
        });
    }
    Ok(all)
}

fn forward(session: &mut ModelSession<'_>, ids: &[u32], began: Instant) -> Result<Forward, CliError> {
    let started = Instant::now();
    session.feed(ids, &WantedRows::Last)?;
    Ok(Forward {
        start: started.duration_since(began),
        time: started.elapsed(),
        stats: session.stats().clone(),
    })
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
