//! How an executor is set up, and what a single run may ask for.

use glia_core::{CancelToken, DType, Precision};

/// What to do with NaN and infinity in a returned output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// The step fails and is rolled back.
    #[default]
    Refuse,
    /// The output is returned as it is.
    Allow,
}

/// Whether the passes run before planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// All of them.
    #[default]
    All,
    /// Only what running needs: the graph is planned as it was given.
    None,
}

/// How to prepare and run a graph.
///
/// ```
/// use glia_ir::ExecConfig;
/// let config = ExecConfig::default().with_max_context(2048).with_profile(true);
/// assert_eq!(config.max_step_tokens, 512);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExecConfig {
    /// How exactly to compute.
    pub precision: Precision,
    /// Whether runs fill [`ExecStats`](super::ExecStats). Off, it costs nothing.
    pub profile: bool,
    /// Most bytes of intermediates, against the planned peak and against the real shapes; 0 is unlimited.
    pub max_intermediate_bytes: usize,
    /// Most rows of one step; longer runs are split where the graph allows.
    pub max_step_tokens: usize,
    /// Most tokens of a sequence.
    pub max_context: usize,
    /// Storage dtypes of keys and values.
    pub kv_dtypes: [DType; 2],
    /// Most bytes of KV state of all sequences, per program; 0 is unlimited.
    pub max_state_bytes: usize,
    /// What to do with NaN and infinity in outputs.
    pub non_finite: NonFinite,
    /// Whether the passes run.
    pub passes: Passes,
}

impl Default for ExecConfig {
    fn default() -> ExecConfig {
        ExecConfig {
            precision: Precision::default(),
            profile: false,
            max_intermediate_bytes: 0,
            max_step_tokens: 512,
            max_context: 4096,
            kv_dtypes: [DType::F32; 2],
            max_state_bytes: 0,
            non_finite: NonFinite::default(),
            passes: Passes::default(),
        }
    }
}

macro_rules! setters {
    ($($name:ident, $field:ident: $ty:ty;)*) => {
        impl ExecConfig {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](ExecConfig::", stringify!($field), ").")]
            #[must_use]
            pub fn $name(mut self, $field: $ty) -> ExecConfig {
                self.$field = $field;
                self
            }
        )*}
    };
}

setters! {
    with_precision, precision: Precision;
    with_profile, profile: bool;
    with_max_intermediate_bytes, max_intermediate_bytes: usize;
    with_max_step_tokens, max_step_tokens: usize;
    with_max_context, max_context: usize;
    with_kv_dtypes, kv_dtypes: [DType; 2];
    with_max_state_bytes, max_state_bytes: usize;
    with_non_finite, non_finite: NonFinite;
    with_passes, passes: Passes;
}

/// Which rows of a run have their outputs returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WantedRows {
    /// All.
    #[default]
    All,
    /// The last one, as generation needs it.
    Last,
    /// These, rising, counted from the first row of the run. May be empty.
    Rows(Vec<usize>),
}

/// What a single run may ask for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Which rows of the outputs to return.
    pub wanted_rows: WantedRows,
    /// Which outputs to return, by name; `None` is all. The others stay where they are, and a backend that compiles
    /// may leave out what only they need.
    pub wanted_outputs: Option<Vec<String>>,
    /// Stops the run between instructions; the session is then as before it.
    pub cancel: Option<CancelToken>,
}

impl RunOptions {
    /// Only the last row of each output.
    pub fn last_row() -> RunOptions {
        RunOptions {
            wanted_rows: WantedRows::Last,
            ..RunOptions::default()
        }
    }

    /// Sets [`wanted_rows`](RunOptions::wanted_rows).
    #[must_use]
    pub fn with_wanted_rows(mut self, wanted_rows: WantedRows) -> RunOptions {
        self.wanted_rows = wanted_rows;
        self
    }

    /// Sets [`wanted_outputs`](RunOptions::wanted_outputs).
    #[must_use]
    pub fn with_wanted_outputs(mut self, names: &[&str]) -> RunOptions {
        self.wanted_outputs = Some(names.iter().map(|&n| n.to_owned()).collect());
        self
    }

    /// Sets [`cancel`](RunOptions::cancel).
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> RunOptions {
        self.cancel = Some(cancel);
        self
    }
}
