//! `cargo xtask device-check`: what a machine with a real GPU has to show, within a time. Builds, runs the conformance
//! suite on the device, compares whole models with the CPU, and prints speeds beside the device's copy bandwidth.
//!
//! On a machine that cannot build, `--prepare DIR` before makes a folder with everything, and its `run.sh` runs there.

mod budget;
pub mod first;
mod judge;
mod prepare;
mod steps;
mod synthetic;
mod vulkan;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Outcome, sh};
use budget::{Budget, Ended, Ran};
use judge::Facts;
use steps::Step;
use vulkan::{Attempt, Machine};

/// `cargo xtask device-check`.
#[derive(clap::Args)]
pub struct Args {
    /// Build into this folder and stop: it then holds all that `run.sh` in it needs, the models of --model too
    #[arg(long, value_name = "DIR", conflicts_with = "prepared")]
    prepare: Option<PathBuf>,
    /// Run what `--prepare` has built, without cargo
    #[arg(long, value_name = "DIR")]
    prepared: Option<PathBuf>,
    /// Also compare and measure these models; the demo model and those that were carried always are
    #[arg(long = "model", value_name = "FILE")]
    models: Vec<PathBuf>,
    /// A folder of golden files to carry instead of the repository's
    #[arg(long, value_name = "DIR", conflicts_with = "prepared")]
    goldens: Option<PathBuf>,
    /// Layers of a model of random weights that is made, compared and measured; 16 have some 10^9 weights, 0 makes none
    /// [default: 16, on software 0]
    #[arg(long, value_name = "N")]
    synthetic: Option<u32>,
    /// How cargo builds the programs
    #[arg(long, value_name = "NAME", default_value = "release", conflicts_with = "prepared")]
    profile: String,
    /// Accept an adapter that is software on the processor
    #[arg(long)]
    allow_software: bool,
    /// Time for all checks, in seconds: one that takes more than its share is stopped, and the rest still runs
    #[arg(long, value_name = "N", default_value_t = 460, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Where all that the checks print is kept [default: `results` in the folder of the programs]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// Lines of a failed check's output that are shown.
const SHOWN_LINES: usize = 30;

/// Builds and runs, or one of both.
pub fn run(args: &Args) -> Outcome {
    if let Some(folder) = &args.prepared {
        return check(folder, args);
    }
    let folder = match &args.prepare {
        Some(folder) => folder.clone(),
        None => {
            let target = sh::metadata()?["target_directory"]
                .as_str()
                .unwrap_or("target")
                .to_owned();
            Path::new(&target).join("device-check")
        }
    };
    if args.prepare.is_some() {
        prepare::prepare(&folder, &args.models, args)?;
        let folder = folder.display();
        println!("{folder} is ready: carry it to the machine and run ./run.sh in it");
        return Ok(());
    }
    prepare::prepare(&folder, &[], args)?;
    check(&folder, args)
}

/// A line of the last table.
struct Row {
    name: String,
    result: &'static str,
    seconds: f64,
    said: String,
}

/// What every program of a check is given.
struct Setting {
    results: PathBuf,
    attempt: Attempt,
}

impl Setting {
    fn run(&self, mut command: Command, limit: Duration, name: &str) -> Ran {
        command.envs(self.attempt.env.iter().map(|(name, value)| (name, value)));
        // Caches of this check alone: what an earlier one has compiled would flatter the first start.
        command.env("GLIA_CACHE", self.results.join("cache"));
        if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
            command.env("XDG_RUNTIME_DIR", &self.results);
        }
        budget::run(command, limit, &self.results, name)
    }
}

/// Runs everything; the first failure does not hide the others.
fn check(folder: &Path, args: &Args) -> Outcome {
    let budget = Budget::new(Duration::from_secs(args.seconds));
    let results = results_folder(folder, args)?;
    let mut facts = Facts::default();
    let (setting, is_software) = find_device(folder, &results, &budget, args, &mut facts)?;
    let mut models = steps::models(folder, &args.models);
    let made = match args.synthetic.unwrap_or(if is_software { 0 } else { 16 }) {
        0 => None,
        n => Some(make_model(&results, n)?),
    };
    models.extend(made.clone());
    let plan = steps::Plan {
        folder,
        results: &results,
        models: &models,
        is_software,
    };
    let rows = run_all(plan.steps(), &setting, &budget, &mut facts);
    // It is large, and can be made again.
    made.iter().for_each(|path| drop(std::fs::remove_file(path)));
    let text = format!("{}\n{}", facts.speed_table(), table(&rows));
    println!("\n{text}");
    let kept = results.join("summary.txt");
    std::fs::write(&kept, &text).map_err(|e| format!("{}: {e}", kept.display()))?;
    println!(
        "{:.0} s in all; everything that was printed is in {}",
        budget.spent().as_secs_f64(),
        results.display()
    );
    let failed: Vec<&str> = rows
        .iter()
        .filter(|r| r.result != "passed")
        .map(|r| r.name.as_str())
        .collect();
    if failed.is_empty() {
        println!("device-check: all passed");
        return Ok(());
    }
    Err(format!(
        "device-check: {} of {} did not pass: {}",
        failed.len(),
        rows.len(),
        failed.join("; ")
    ))
}

/// Empty, and never the one of an earlier check: `results` beside the programs, else a folder for temporary files.
fn results_folder(folder: &Path, args: &Args) -> Result<PathBuf, String> {
    let own = |folder: &Path| -> std::io::Result<PathBuf> {
        // Only what a check has made is removed.
        for name in ["cache", "pipelines", "vulkan"] {
            match std::fs::remove_dir_all(folder.join(name)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("summary.txt"), "this check has not ended\n")?;
        folder.canonicalize()
    };
    if let Some(folder) = &args.results {
        return own(folder).map_err(|e| format!("{}: {e}", folder.display()));
    }
    let temporary = std::env::temp_dir().join(format!("glia-device-check-{}", std::process::id()));
    own(&folder.join("results"))
        .or_else(|_| own(&temporary))
        .map_err(|e| format!("{}: {e}; name another folder with --results", temporary.display()))
}

/// The first way to run Vulkan that shows a device; says which, and refuses what is not wanted.
fn find_device(
    folder: &Path,
    results: &Path,
    budget: &Budget,
    args: &Args,
    facts: &mut Facts,
) -> Result<(Setting, bool), String> {
    let (machine, carried) = (Machine::of_this(), folder.join("lib"));
    println!("== device");
    machine.describe(&carried).iter().for_each(|line| println!("   {line}"));
    let attempts = machine.attempts(&carried, &results.join("vulkan"))?;
    let mut software = None;
    for (i, attempt) in attempts.into_iter().enumerate() {
        let setting = Setting {
            results: results.to_owned(),
            attempt,
        };
        let glia = |args: &[&str]| {
            let mut command = Command::new(folder.join("glia"));
            command.arg("devices").args(args);
            setting.run(command, budget.share(&[1, 7]), &format!("00-devices-{i}"))
        };
        let ran = glia(&[]);
        if let Err(ended) = &ran.ended {
            println!("   {}: {}", setting.attempt.what, why(ended));
            print!("{}", last_lines(&ran.stderr));
            continue;
        }
        let found = judge::adapter(&ran.stdout).map(str::to_owned);
        println!(
            "   {}: {}",
            setting.attempt.what,
            found.as_deref().unwrap_or("no adapter")
        );
        match found {
            Some(adapter) if !judge::is_software(&adapter) => {
                measure(&glia(&["--measure"]), facts);
                return Ok((setting, false));
            }
            Some(_) if software.is_none() => software = Some(setting),
            _ => {}
        }
    }
    let Some(setting) = software else {
        return Err("no adapter: the lines above say what is there and what is missing".to_owned());
    };
    if !args.allow_software {
        return Err("the only adapter is software on the processor (--allow-software accepts it)".to_owned());
    }
    let mut command = Command::new(folder.join("glia"));
    command.args(["devices", "--measure"]);
    measure(&setting.run(command, budget.share(&[1, 7]), "00-measure"), facts);
    Ok((setting, true))
}

fn make_model(results: &Path, n_layers: u32) -> Result<PathBuf, String> {
    let path = results.join(format!("random-{n_layers}-layers.Q8_0.gguf"));
    println!("== making {}", path.display());
    synthetic::write(&path, synthetic::Sizes::of_layers(n_layers))?;
    Ok(path)
}

fn measure(ran: &Ran, facts: &mut Facts) {
    print!("{}", ran.stdout);
    facts.copy_bandwidth = judge::copy_bandwidth(&ran.stdout);
    if facts.copy_bandwidth.is_none() {
        println!("   the copy bandwidth could not be measured");
        print!("{}", last_lines(&ran.stderr));
    }
}

fn run_all(steps: Vec<Step>, setting: &Setting, budget: &Budget, facts: &mut Facts) -> Vec<Row> {
    let weights: Vec<u32> = steps.iter().map(|s| s.weight).collect();
    let mut rows = Vec::new();
    for (i, mut step) in steps.into_iter().enumerate() {
        let limit = budget.share(&weights[i..]);
        println!("== {} (at most {:.0} s)", step.name, limit.as_secs_f64());
        let command = std::mem::replace(&mut step.command, Command::new(""));
        let ran = setting.run(command, limit, &format!("{:02}-{}", i + 1, slug(&step.name)));
        let judged = match &ran.ended {
            Ok(()) => step.judge(facts, &ran.stdout).map_err(|why| ("failed", why)),
            Err(Ended::Stopped(_)) => Err(("stopped", format!("took more than {:.0} s", limit.as_secs_f64()))),
            Err(ended) => Err(("failed", why(ended))),
        };
        let (result, said) = match judged {
            Ok(said) => ("passed", said),
            Err((result, why)) => {
                print!("{}{}", last_lines(&ran.stdout), last_lines(&ran.stderr));
                (result, why)
            }
        };
        if step.is_shown() {
            print!("{}", ran.stdout);
        }
        let seconds = ran.time.as_secs_f64();
        println!("   {result} in {seconds:.1} s: {said}");
        rows.push(Row {
            name: step.name,
            result,
            seconds,
            said,
        });
    }
    rows
}

fn why(ended: &Ended) -> String {
    match ended {
        Ended::Failed(why) => why.clone(),
        Ended::Stopped(after) => format!("stopped after {:.0} s", after.as_secs_f64()),
    }
}

/// The end of an output, indented; lines of any length are cut.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    let cut = |line: &str| line.chars().take(200).collect::<String>();
    shown.iter().map(|line| format!("   | {}\n", cut(line))).collect()
}

/// A file name of a step's name.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let text: String = name.chars().map(plain).collect();
    let parts: Vec<&str> = text.split('-').filter(|p| !p.is_empty()).collect();
    parts.join("-").to_lowercase()
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:<width$} {:<8} {:>7}  what\n", "check", "result", "s");
    for row in rows {
        text += &format!(
            "{:<width$} {:<8} {:>7.1}  {}\n",
            row.name, row.result, row.seconds, row.said
        );
    }
    text
}

#[cfg(test)]
mod tests;
