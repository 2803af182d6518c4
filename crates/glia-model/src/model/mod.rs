//! The front door: a path becomes a [`Model`] that generates text.

mod again;
mod card;
mod contents;
mod error;
mod file;
mod gguf_view;
mod options;
mod session;
mod source;
mod steps;
mod text;
mod times;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use glia_core::{Backend, MemorySpace};
use glia_ir::{ExecConfig, Graph, GraphExecutor, Plan};
use serde_json::Value;

pub use card::Card;
pub use contents::Contents;
pub use error::ModelError;
pub use file::ModelFile;
pub use options::Options;
pub use session::{ModelSession, WantedRows};
pub use times::LoadTimes;

use crate::family::decoder::{self, Taps};
use crate::generate::{GenerateParams, Generation};
use crate::sample::SampleParams;
use crate::template::{ChatInput, ChatTemplate, TemplateError};
use crate::tokenizer::Tokenizer;

/// The small model that is compiled in: a llama of 3.7 M parameters trained on Shakespeare's plays.
#[cfg(feature = "demo")]
pub(crate) static DEMO: &[u8] = include_bytes!("../../../../assets/bard-3.7m-q8_0.gguf");

/// A model ready to run: executor, tokenizer and chat template. Shared freely between threads.
pub struct Model {
    executor: GraphExecutor,
    tokenizer: Tokenizer,
    /// A template that does not parse is an error when it is asked for, and no other is used in its place.
    template: Option<Result<ChatTemplate, (String, Arc<ModelError>)>>,
    /// The file, for messages.
    path: String,
    warnings: Vec<String>,
    max_context: usize,
    n_vocab: usize,
    /// How many likeliest tokens the graph can choose itself.
    choices: Vec<usize>,
    sampling: SampleParams,
    times: LoadTimes,
}

impl Model {
    /// Opens a GGUF file (any part of a split one), a folder with `config.json` and safetensors, or one safetensors
    /// file beside its `config.json`, on the CPU.
    ///
    /// # Errors
    /// [`ModelError`], naming the file, field, weight or node.
    #[cfg(feature = "cpu")]
    pub fn open(path: impl AsRef<Path>) -> Result<Model, ModelError> {
        Model::open_with(path, Options::default())
    }

    /// As [`Model::open`], with options.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Model, ModelError> {
        Model::load(ModelFile::open(path.as_ref(), &options)?, options)
    }

    /// The model that is compiled into the crate.
    ///
    /// # Errors
    /// [`ModelError`] when the options do not fit.
    #[cfg(feature = "demo")]
    pub fn open_demo_with(options: Options) -> Result<Model, ModelError> {
        Model::load(ModelFile::open_demo(&options)?, options)
    }

    /// [`Model::open_demo_with`] the default options.
    ///
    /// # Errors
    /// As [`Model::open_demo_with`].
    #[cfg(all(feature = "demo", feature = "cpu"))]
    pub fn open_demo() -> Result<Model, ModelError> {
        Model::open_demo_with(Options::default())
    }

    /// Prepares what [`ModelFile::open`] has read. The vocabulary is built on a thread of its own meanwhile.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn load(file: ModelFile, options: Options) -> Result<Model, ModelError> {
        let start = Instant::now();
        release(&file, &options);
        let backends = match options.backends.clone() {
            Some(backends) => backends,
            None => default_backends()?,
        };
        // A weight that is missing is told of before the memory that a file's claims would take.
        // Where logits are on a device, it can choose the likeliest of them.
        let on_device = backends.first().is_some_and(|b| b.space() != MemorySpace::HOST);
        let taps = if on_device { Taps::Choices } else { Taps::Logits };
        let graph = file.graph_with(taps)?;
        let max_context = file.max_context(&options)?;
        let ((tokenizer, vocabulary), (executor, packing)) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| {
                let tokenizer = times::timed(|| file.tokenizer(&options));
                // The vocabulary is ours now: its pages are given back before the packed weights are whole.
                release(&file, &options);
                tokenizer
            });
            let executor = times::timed(|| executor(&file, graph, &options, backends, max_context));
            let tokenizer = tokenizer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (tokenizer, executor)
        });
        // Of two errors the tokenizer's is told, whichever came first.
        let (tokenizer, executor) = (tokenizer?, executor?);
        let template = match file.chat_template(&tokenizer) {
            Err(ModelError::InFile { file, source }) => Some(Err((file, source))),
            other => other?.map(Ok),
        };
        release(&file, &options);
        let warnings = file.warnings().iter().chain(tokenizer.warnings()).cloned().collect();
        let model = Model {
            executor,
            tokenizer,
            template,
            path: file.path().to_owned(),
            warnings,
            max_context,
            n_vocab: file.spec().vocab,
            choices: if on_device {
                decoder::choice_counts(file.spec().vocab).to_vec()
            } else {
                Vec::new()
            },
            sampling: file.generation_config().sample.clone(),
            times: LoadTimes {
                vocabulary,
                packing,
                total: start.elapsed(),
            },
        };
        if on_device {
            model.warm_up()?;
        }
        Ok(model)
    }

    /// Runs a token, then a short prompt, and forgets them: what a device makes at the first use of a kernel is there
    /// when the first request comes, and a device that cannot run the model says so now.
    fn warm_up(&self) -> Result<(), ModelError> {
        let mut session = self.session()?;
        for n in [1, 8] {
            let room = self.max_context.saturating_sub(session.pos());
            if n <= room {
                session.feed(&vec![0; n], &WantedRows::Last)?;
            }
        }
        Ok(())
    }

    /// How long opening took, the reading of the file's header by [`ModelFile::open`] not counted.
    pub fn load_times(&self) -> LoadTimes {
        self.times
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The executor, for those who want logits.
    pub fn executor(&self) -> &GraphExecutor {
        &self.executor
    }

    /// The plan: who runs what, lifetimes, memory.
    pub fn plan(&self) -> &Plan {
        self.executor.plan()
    }

    /// Tokens that prompt and answer may have together.
    pub fn max_context(&self) -> usize {
        self.max_context
    }

    /// Columns of the logits.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// How the model's makers would have tokens chosen (`generation_config.json`, `general.sampling.*`): greedy unless
    /// the file says otherwise. A default to offer; [`GenerateParams`] decides.
    pub fn default_sampling(&self) -> &SampleParams {
        &self.sampling
    }

    /// What is doubtful about the model's files though they can be used: to be shown once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the file brings a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// A new sequence.
    ///
    /// # Errors
    /// [`ModelError`] when memory is out.
    pub fn session(&self) -> Result<ModelSession<'_>, ModelError> {
        ModelSession::new(self)
    }

    /// Goes on from a text as it is, without chat template.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn generate(&self, prompt: &str, params: GenerateParams) -> Result<Generation<'_>, ModelError> {
        self.generate_ids(&self.tokenizer.encode_prompt(prompt, true)?, params)
    }

    /// Goes on from token ids.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn generate_ids(&self, prompt: &[u32], params: GenerateParams) -> Result<Generation<'_>, ModelError> {
        Generation::new(&self.tokenizer, self.session()?, prompt, params, self.max_context)
    }

    /// Answers a conversation of `{"role", "content"}` messages through the chat template.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn chat(&self, messages: &[Value], params: GenerateParams) -> Result<Generation<'_>, ModelError> {
        self.generate_ids(&self.chat_ids(messages)?, params)
    }

    /// The ids of a conversation, up to where the answer begins.
    ///
    /// # Errors
    /// [`ModelError::NoChatTemplate`], and what the template refuses.
    pub fn chat_ids(&self, messages: &[Value]) -> Result<Vec<u32>, ModelError> {
        let template = match self.template.as_ref().ok_or(ModelError::NoChatTemplate)? {
            Ok(template) => template,
            Err((file, source)) => {
                return Err(ModelError::InFile {
                    file: file.clone(),
                    source: Arc::clone(source),
                });
            }
        };
        // Control tokens within a message are plain text: a message cannot end its own turn.
        let messages = self.tokenizer.guard_json(&Value::Array(messages.to_vec()));
        let input = ChatInput {
            messages,
            add_generation_prompt: true,
            ..ChatInput::default()
        };
        let text = template.render(&input).map_err(|e| match e {
            // The template's own words, about the conversation.
            TemplateError::Raised(_) => e.into(),
            _ => ModelError::in_file(self.path.clone(), e.into()),
        })?;
        Ok(self.tokenizer.encode_guarded(&text)?)
    }

    /// Whether the model wants its beginning-of-sequence token first.
    pub fn adds_bos(&self) -> bool {
        let first = self
            .tokenizer
            .encode("a", true, false)
            .ok()
            .and_then(|ids| ids.first().copied());
        first.is_some() && first == self.tokenizer.bos()
    }
}

/// Gives back pages that were read and will not be read soon.
fn release(file: &ModelFile, options: &Options) {
    file.files().release();
    if options.release_unused {
        crate::mmap::release_unused();
    }
}

#[cfg(feature = "cpu")]
fn default_backends() -> Result<Vec<Arc<dyn Backend>>, ModelError> {
    Ok(vec![Arc::new(
        glia_backend_cpu::CpuBackend::new().map_err(glia_ir::ExecError::from)?,
    )])
}

#[cfg(not(feature = "cpu"))]
fn default_backends() -> Result<Vec<Arc<dyn Backend>>, ModelError> {
    Err(ModelError::NoBackend)
}

fn executor(
    file: &ModelFile,
    graph: Graph,
    options: &Options,
    backends: Vec<Arc<dyn Backend>>,
    max_context: usize,
) -> Result<GraphExecutor, ModelError> {
    let config = ExecConfig::default()
        .with_precision(options.precision)
        .with_max_context(max_context)
        .with_max_step_tokens(file.step_tokens(options).clamp(1, max_context))
        .with_max_intermediate_bytes(options.max_intermediate_bytes)
        .with_kv_dtypes(options.kv_dtypes())
        .with_profile(options.profile);
    Ok(GraphExecutor::prepare(graph, file.weights(), backends, config)?)
}
