//! What a run has found: counts, failures, the support table.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{Failure, Outcome};
use super::op::Timing;
use super::ran::Ran;
use crate::DType;

/// One case and what came of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Name of the case.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it is declared to fail, if it is.
    pub exception: Option<String>,
    /// How fast it ran, when that was asked for.
    pub timing: Option<Timing>,
    /// How its programs ran, if it made any.
    pub ran: Option<Ran>,
    pub(super) covers: Option<(&'static str, DType)>,
}

impl Entry {
    /// What is wrong, in words: a failure that nobody declared, or a declared one that is none.
    pub fn red(&self) -> Option<String> {
        let name = &self.name;
        match (&self.outcome, &self.exception) {
            (Outcome::Failed(failure), None) => Some(format!("{name}: {failure}")),
            (Outcome::Failed(_), Some(_)) | (_, None) => None,
            (Outcome::Passed, Some(why)) => Some(format!(
                "{name} passes: take it off the declared exceptions (declared because: {why})"
            )),
            (Outcome::Unsupported(_), Some(why)) => Some(format!(
                "{name} is not supported, so it cannot fail: take it off the declared exceptions ({why})"
            )),
        }
    }
}

/// Cases that passed with programs.
struct Group<'a> {
    name: &'a str,
    compiled: usize,
    interpreted: Vec<&'a Entry>,
}

/// What a run has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Name of the backend.
    pub backend: String,
    /// The cases that ran, in order.
    pub entries: Vec<Entry>,
    /// Declared exceptions that name no case.
    pub unknown: Vec<String>,
}

impl Report {
    /// Whether nothing is red.
    pub fn is_ok(&self) -> bool {
        self.unknown.is_empty() && self.entries.iter().all(|e| e.red().is_none())
    }

    /// The failures that nobody declared, by case.
    pub fn failures(&self) -> Vec<(&str, &Failure)> {
        self.entries
            .iter()
            .filter_map(|e| match (&e.outcome, &e.exception) {
                (Outcome::Failed(failure), None) => Some((e.name.as_str(), failure)),
                _ => None,
            })
            .collect()
    }

    /// Fails a test with the report when something is red.
    ///
    /// # Panics
    /// When something is red.
    pub fn assert_ok(&self) {
        assert!(self.is_ok(), "{self}");
    }

    /// Times of the cases that were timed, as Markdown: per case the median time, bytes moved and operations done in
    /// 10^9 a second. First ops of the sizes of real models, run several times in a call where they can be chained, and
    /// steps of whole segments, one per call; then the small cases, whose time is mostly that of a call.
    pub fn speed_table(&self) -> String {
        let is_real = |entry: &Entry| entry.name.contains("/speed");
        let rows = |real: bool| {
            let mut rows = String::new();
            for entry in &self.entries {
                let Some(timing) = entry.timing.filter(|_| is_real(entry) == real) else {
                    continue;
                };
                let micros = timing.time.as_secs_f64() * 1e6;
                let (gb, gflop) = (timing.gb_per_s(), timing.gflop_per_s());
                let times = if real {
                    format!(" {} |", timing.n_chained)
                } else {
                    String::new()
                };
                rows += &format!("| {} | {micros:.1} | {gb:.2} | {gflop:.2} |{times}\n", entry.name);
            }
            rows
        };
        let head = ("| case | µs | GB/s | GFLOP/s |", "|---|---:|---:|---:|");
        let mut text = String::new();
        let (real, small) = (rows(true), rows(false));
        if !real.is_empty() {
            text += &format!("{} per call |\n{}---:|\n{real}", head.0, head.1);
        }
        if !small.is_empty() {
            let between = if text.is_empty() { "" } else { "\n" };
            text += &format!("{between}{}\n{}\n{small}", head.0, head.1);
        }
        text
    }

    fn count(&self, is: impl Fn(&Entry) -> bool) -> usize {
        self.entries.iter().filter(|e| is(e)).count()
    }

    /// What the backend supports, as Markdown: a row per op with the dtypes of its first input, then a row per dtype
    /// of weights. `yes` where every case passes, `no` where the backend declines, `fails` where a case fails, and
    /// `n of m` where it takes some of the cases.
    pub fn support_table(&self) -> String {
        let mut cells: BTreeMap<(&str, DType), [usize; 3]> = BTreeMap::new();
        let mut ops: Vec<&str> = Vec::new();
        for entry in &self.entries {
            let Some((op, dtype)) = entry.covers else { continue };
            if !ops.contains(&op) {
                ops.push(op);
            }
            let cell = cells.entry((op, dtype)).or_default();
            match entry.outcome {
                Outcome::Passed => cell[0] += 1,
                Outcome::Unsupported(_) => cell[1] += 1,
                Outcome::Failed(_) => cell[2] += 1,
            }
        }
        let cell = |op, dtype| match cells.get(&(op, dtype)) {
            None => String::new(),
            Some([_, _, failed]) if *failed > 0 => "fails".to_owned(),
            Some([_, 0, _]) => "yes".to_owned(),
            Some([0, _, _]) => "no".to_owned(),
            Some([passed, declined, _]) => format!("{passed} of {}", passed + declined),
        };
        let present = |dtype: DType, among: &[&str]| among.iter().any(|op| cells.contains_key(&(op, dtype)));
        let (weighty, plain): (Vec<&str>, Vec<&str>) = ops
            .into_iter()
            .partition(|op| cells.keys().any(|(o, d)| o == op && d.is_quantized()));
        let mut text = String::new();
        let mut table = |first: &str, rows: Vec<String>, columns: Vec<String>, at: &dyn Fn(usize, usize) -> String| {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &format!(
                "| {first} | {} |\n|---|{}\n",
                columns.join(" | "),
                "---|".repeat(columns.len())
            );
            for (i, row) in rows.iter().enumerate() {
                let line: Vec<String> = (0..columns.len()).map(|j| at(i, j)).collect();
                text += &format!("| {row} | {} |\n", line.join(" | "));
            }
        };
        let of = |among: &[&str]| -> Vec<DType> { DType::ALL.iter().copied().filter(|&d| present(d, among)).collect() };
        let (columns, rows) = (of(&plain), of(&weighty));
        let names = |list: &[&str]| list.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>();
        let dtypes = |list: &[DType]| list.iter().map(DType::to_string).collect::<Vec<_>>();
        if !plain.is_empty() {
            table("op", names(&plain), dtypes(&columns), &|i, j| {
                cell(plain[i], columns[j])
            });
        }
        if !weighty.is_empty() {
            table("dtype", dtypes(&rows), names(&weighty), &|i, j| {
                cell(weighty[j], rows[i])
            });
        }
        text
    }

    /// How programs ran, as Markdown: per group of cases how many passed compiled, and how many interpreted, because
    /// `compile` returned `None` or was not asked. Empty where no case made a program.
    pub fn program_table(&self) -> String {
        let groups = self.programs();
        let rows = groups
            .iter()
            .map(|g| format!("| `{}` | {} | {} |\n", g.name, g.compiled, g.interpreted.len()));
        let rows: String = rows.collect();
        match rows.is_empty() {
            true => rows,
            false => format!("| programs | compiled | interpreted |\n|---|---:|---:|\n{rows}"),
        }
    }

    /// The cases that passed with programs, by group; those of single ops are one.
    fn programs(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for entry in &self.entries {
            let (Outcome::Passed, Some(ran)) = (&entry.outcome, &entry.ran) else {
                continue;
            };
            let name = match entry.name.split('/').next().unwrap_or_default() {
                group @ ("segment" | "state" | "memory" | "methods" | "threads") => group,
                _ => "ops",
            };
            let at = groups.iter().position(|g| g.name == name).unwrap_or_else(|| {
                groups.push(Group {
                    name,
                    compiled: 0,
                    interpreted: Vec::new(),
                });
                groups.len() - 1
            });
            match ran {
                Ran::Compiled => groups[at].compiled += 1,
                _ => groups[at].interpreted.push(entry),
            }
        }
        groups
    }

    /// What was compiled and what was not, one line each.
    fn write_programs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.programs();
        let compiled: usize = groups.iter().map(|g| g.compiled).sum();
        let interpreted: usize = groups.iter().map(|g| g.interpreted.len()).sum();
        if compiled + interpreted == 0 {
            return Ok(());
        }
        // A backend that compiles nothing has no case to name.
        for entry in groups.iter().filter(|_| compiled > 0).flat_map(|g| &g.interpreted) {
            if let Some(ran) = &entry.ran {
                writeln!(f, "passed, {ran}: {}", entry.name)?;
            }
        }
        writeln!(
            f,
            "programs of the cases that passed: {compiled} compiled, {interpreted} interpreted"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.unknown {
            writeln!(f, "RED expect_failures names no case: {name}")?;
        }
        for red in self.entries.iter().filter_map(Entry::red) {
            writeln!(f, "RED {red}")?;
        }
        for entry in &self.entries {
            if let (Outcome::Failed(_), Some(why)) = (&entry.outcome, &entry.exception) {
                writeln!(f, "fails as declared: {} ({why})", entry.name)?;
            }
        }
        self.write_programs(f)?;
        let (passed, unsupported) = (
            self.count(|e| matches!(e.outcome, Outcome::Passed)),
            self.count(|e| matches!(e.outcome, Outcome::Unsupported(_))),
        );
        let failed = |e: &Entry| matches!(e.outcome, Outcome::Failed(_));
        let declared = self.count(|e| failed(e) && e.exception.is_some());
        let failed = self.count(failed) - declared;
        let declared = match declared {
            0 => String::new(),
            n => format!(", {n} as declared"),
        };
        write!(
            f,
            "{}: {} cases: {passed} passed, {failed} failed{declared}, {unsupported} not supported",
            self.backend,
            self.entries.len()
        )
    }
}
