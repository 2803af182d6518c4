//! `glia profile`: where the time of a forward goes, beside what its bytes and operations would take on this machine.

mod collect;
mod files;
mod html;
mod json;
mod measure;
mod table;
mod trace;
mod units;

use std::io::Write;

use glia_backend_cpu::ceiling::{self, Ceilings};
use glia_core::MemorySpace;

pub use self::collect::Layers;
use self::collect::{Phase, Profile};
use super::{backends, engine};
use crate::args::ProfileArgs;
use crate::exit::CliError;
use crate::ui;

/// Measures, prints the tables, writes the files that were asked for.
pub fn run(args: &ProfileArgs) -> Result<(), CliError> {
    check(args)?;
    let ctx = args
        .depth
        .saturating_add(args.decode)
        .max(args.prefill)
        .saturating_add(1);
    let (mut options, machine) = engine::options_and_machine(&args.engine, ctx)?;
    options.profile = true;
    // The ceilings are the processor's: they say nothing of a device.
    let first = options.backends.as_deref().and_then(<[_]>::first);
    let on_device = first.is_some_and(|b| b.space() != MemorySpace::HOST);
    let (model, _) =
        engine::open_with(Some(&args.model), options, false, ctx).map_err(|e| match e.is_of_context() {
            true => e.with_help("here the context is the longer of --prefill and of --depth with --decode, and one"),
            false => e,
        })?;
    let bar = ui::spinner("measuring");
    let ceilings = match args.no_ceiling || on_device {
        true => None,
        false => ceilings(backends::cpu(&[], &args.engine)?.n_threads()),
    };
    let runs = measure::run(&model, args)?;
    bar.finish_and_clear();
    let profile = Profile {
        model: args.model.to_string_lossy().into_owned(),
        machine,
        precision: args.engine.precision.into(),
        ceilings,
        phases: Vec::new(),
    }
    .with_phases(model.executor(), runs);
    let mut out = ui::stdout();
    if args.json {
        writeln!(out, "{}", json::of(&profile))?;
    } else {
        table::write(&mut out, &profile)?;
    }
    if let Some(path) = &args.trace {
        files::write(path, &trace::of(&profile).to_string())?;
    }
    if let Some(path) = &args.html {
        files::write(path, &html::of(&profile))?;
    }
    Ok(out.finish()?)
}

/// Refuses what cannot be measured or written before anything is loaded.
fn check(args: &ProfileArgs) -> Result<(), CliError> {
    if args.prefill == 0 && args.decode == 0 {
        return Err(CliError::usage(
            "nothing to measure: give --prefill or --decode a number above 0",
        ));
    }
    if args.decode == 0 && args.depth > 0 {
        return Err(CliError::usage("--depth is of decoding, which --decode 0 leaves out"));
    }
    files::check(args)
}

/// The machine's ceilings; a profile does without where they cannot be measured.
fn ceilings(n_threads: usize) -> Option<Ceilings> {
    ceiling::measure(&[n_threads])
        .inspect_err(|e| ui::note(format!("the machine's ceilings are left out: {e}")))
        .ok()
}
