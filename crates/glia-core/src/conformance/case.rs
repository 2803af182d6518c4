//! One case: its name, what it runs, what came of it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::op::{OpCase, Timing};
use super::ran::{Programs, Ran};
use super::segment::StepCase;
use crate::{Backend, BackendError, DType};

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// As the vocabulary says.
    Passed,
    /// The backend says that it does not run this; its words or ours.
    Unsupported(String),
    /// Wrong.
    Failed(Failure),
}

/// What is wrong, and what kind of mistake it looks like.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// What ran: op and types, or segment and step.
    pub subject: String,
    /// Through which door of the backend: `execute`, `execute_node`, `compile, exact` ...
    pub path: String,
    /// Expected against got.
    pub what: String,
    /// A mistake that gives just this answer, if one is known.
    pub hint: Option<String>,
}

impl Failure {
    pub(super) fn new(subject: impl Into<String>, path: impl Into<String>, what: impl Into<String>) -> Failure {
        Failure {
            subject: subject.into(),
            path: path.into(),
            what: what.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: Option<String>) -> Failure {
        self.hint = hint.or(self.hint);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  through {}: {}", self.subject, self.path, self.what)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// What a case is given.
pub(super) struct Cx {
    pub backend: Arc<dyn Backend>,
    /// Name of the case: the seed of its numbers.
    pub name: String,
    /// How its programs ran.
    pub programs: Programs,
}

/// What a case does.
pub(super) enum Body {
    /// One op on tensors.
    Op(OpCase),
    /// A step of a segment, for its time.
    Steps(StepCase),
    /// Anything else.
    Check(Box<dyn Fn(&Cx) -> Outcome + Send + Sync>),
}

/// A case of the suite.
pub(super) struct Case {
    /// Module of the test: the kind of an op, or `segment`, `state`, `memory`, `methods`, `threads`.
    pub group: &'static str,
    /// Within its group.
    pub name: String,
    /// Where it counts in the support table.
    pub covers: Option<(&'static str, DType)>,
    /// Only in runs that measure speed.
    pub speed_only: bool,
    pub body: Body,
}

impl Case {
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    /// How fast it is, for a case of one op or of a step that the backend supports.
    pub fn time(&self, backend: &Arc<dyn Backend>) -> Option<Timing> {
        let case = match &self.body {
            Body::Op(case) => case,
            Body::Steps(case) => return case.time(backend).ok(),
            Body::Check(_) => return None,
        };
        let cx = Cx {
            backend: backend.clone(),
            name: self.full_name(),
            programs: Programs::default(),
        };
        let prepared = case.prepare(&cx.name).ok().filter(|p| p.is_timed(&cx))?;
        prepared.time(&cx, self.speed_only).ok()
    }

    #[cfg(test)]
    pub fn run(&self, backend: &Arc<dyn Backend>) -> Outcome {
        self.run_noting(backend).0
    }

    /// What came of it, and how its programs ran if it made any.
    pub fn run_noting(&self, backend: &Arc<dyn Backend>) -> (Outcome, Option<Ran>) {
        let cx = Cx {
            backend: backend.clone(),
            name: self.full_name(),
            programs: Programs::default(),
        };
        let ran = catch_unwind(AssertUnwindSafe(|| match &self.body {
            Body::Op(case) => case.run(&cx),
            Body::Steps(case) => case.run(&cx),
            Body::Check(check) => check(&cx),
        }));
        let outcome = ran.unwrap_or_else(|panic| {
            let said = BackendError::panicked(&*panic).to_string();
            Outcome::Failed(Failure::new(&cx.name, "a call outside any step", said))
        });
        (outcome, cx.programs.take())
    }
}

/// The list under construction.
#[derive(Default)]
pub(super) struct List {
    pub cases: Vec<Case>,
}

impl List {
    /// A check that counts in the support table.
    pub fn check_for(
        &mut self,
        covers: (&'static str, DType),
        name: impl Into<String>,
        check: impl Fn(&Cx) -> Outcome + Send + Sync + 'static,
    ) {
        self.check(covers.0, name, check);
        if let Some(last) = self.cases.last_mut() {
            last.covers = Some(covers);
        }
    }

    pub fn check(
        &mut self,
        group: &'static str,
        name: impl Into<String>,
        check: impl Fn(&Cx) -> Outcome + Send + Sync + 'static,
    ) {
        self.cases.push(Case {
            group,
            name: name.into(),
            covers: None,
            speed_only: false,
            body: Body::Check(Box::new(check)),
        });
    }
}

/// Calls the backend; a panic is an error.
pub(super) fn guarded<R>(call: impl FnOnce() -> Result<R, BackendError>) -> Result<R, BackendError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(BackendError::panicked(&*panic)))
}
