//! Running the cases: all at once, or one per `#[test]`.

use std::sync::Arc;

use super::case::{Case, Outcome};
use super::cases;
use super::report::{Entry, Report};
use crate::Backend;

/// What [`run`] does.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Only cases whose name contains this.
    pub filter: Option<String>,
    /// Time the cases of single ops, larger ones among them, and steps of segments.
    pub bench: bool,
    /// Names of cases that are known to fail, with the reason. One that does not fail is reported as red.
    pub expect_failures: Vec<(String, String)>,
}

impl Options {
    /// Only the cases whose name contains this.
    pub fn only(filter: &str) -> Options {
        Options {
            filter: Some(filter.to_owned()),
            ..Options::default()
        }
    }
}

/// What can be tested: a backend, or one that is shared already.
pub trait IntoBackend {
    /// The backend as executors hold it.
    fn into_backend(self) -> Arc<dyn Backend>;
}

impl<B: Backend + 'static> IntoBackend for B {
    fn into_backend(self) -> Arc<dyn Backend> {
        Arc::new(self)
    }
}

impl<B: Backend + 'static> IntoBackend for Arc<B> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self
    }
}

impl<B: Backend + 'static> IntoBackend for &Arc<B> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self.clone()
    }
}

impl IntoBackend for Arc<dyn Backend> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self
    }
}

impl IntoBackend for &Arc<dyn Backend> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self.clone()
    }
}

/// Names of all cases: `group/case`, where the group of an op's cases is its kind.
pub fn names() -> Vec<String> {
    cases().iter().filter(|c| !c.speed_only).map(Case::full_name).collect()
}

/// Runs the cases on a backend, one after the other.
pub fn run(backend: impl IntoBackend, options: &Options) -> Report {
    run_each(backend, options, |_, _| {})
}

/// As [`run`]; `seen` is told of each case that has run, and how many there are.
pub(super) fn run_each(backend: impl IntoBackend, options: &Options, mut seen: impl FnMut(&Entry, usize)) -> Report {
    let suite = Suite {
        backend: backend.into_backend(),
        exceptions: options.expect_failures.clone(),
    };
    let mut cases = cases();
    let is_meant = |name: &str| options.filter.as_ref().is_none_or(|f| name.contains(f.as_str()));
    cases.retain(|case| (options.bench || !case.speed_only) && is_meant(&case.full_name()));
    let mut entries = Vec::new();
    for case in &cases {
        let mut entry = suite.entry(case);
        if options.bench && entry.outcome == Outcome::Passed {
            entry.timing = case.time(&suite.backend);
        }
        seen(&entry, cases.len());
        entries.push(entry);
    }
    Report {
        backend: suite.backend.name().to_owned(),
        entries,
        unknown: suite.unknown_exceptions(),
    }
}

/// A backend under test, with its declared exceptions: what
/// [`conformance_tests!`](crate::conformance_tests) makes one of.
pub struct Suite {
    backend: Arc<dyn Backend>,
    exceptions: Vec<(String, String)>,
}

impl Suite {
    /// A suite of this backend; exceptions are names of cases and reasons.
    pub fn new(backend: impl IntoBackend, exceptions: &[(&str, &str)]) -> Suite {
        let exceptions = exceptions
            .iter()
            .map(|(n, r)| ((*n).to_owned(), (*r).to_owned()))
            .collect();
        Suite {
            backend: backend.into_backend(),
            exceptions,
        }
    }

    fn entry(&self, case: &Case) -> Entry {
        let name = case.full_name();
        let exception = self.exceptions.iter().find(|(n, _)| *n == name).map(|(_, r)| r.clone());
        let (outcome, ran) = case.run_noting(&self.backend);
        Entry {
            outcome,
            ran,
            covers: case.covers,
            name,
            exception,
            timing: None,
        }
    }

    fn unknown_exceptions(&self) -> Vec<String> {
        let known = names();
        let unknown = self.exceptions.iter().filter(|(n, _)| !known.contains(n));
        unknown.map(|(n, _)| n.clone()).collect()
    }

    /// Runs one case as a test.
    ///
    /// # Panics
    /// When it fails, or is declared to fail and does not.
    pub fn check(&self, name: &str) {
        let all = cases();
        let case = all.iter().find(|c| c.full_name() == name);
        let case = case.unwrap_or_else(|| panic!("there is no case `{name}`"));
        let entry = self.entry(case);
        if let Outcome::Unsupported(said) = &entry.outcome {
            println!("unsupported: {said}");
        }
        if let Some(ran) = &entry.ran {
            println!("{ran}");
        }
        if let Some(red) = entry.red() {
            panic!("{red}");
        }
    }

    /// That every declared exception names a case.
    ///
    /// # Panics
    /// When one does not.
    pub fn check_exceptions(&self) {
        let unknown = self.unknown_exceptions();
        assert!(
            unknown.is_empty(),
            "expect_failures names no case: {}",
            unknown.join(", ")
        );
    }
}
