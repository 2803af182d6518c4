//! What to do about errors of the library, in words of the command line: the library does not know its options.

use std::error::Error;

use glia_ir::ExecError;
use glia_model::ModelError;
use glia_model::perplexity::PerplexityError;
use glia_model::template::TemplateError;
use glia_model::tokenizer::TokenizerError;

/// The cure for `error`, where its own message names none that this program offers.
pub fn of(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<ModelError>() {
        return of_model(error);
    }
    match error.downcast_ref::<PerplexityError>()? {
        PerplexityError::Model(error) => of_model(error),
        _ => None,
    }
}

fn of_model(error: &ModelError) -> Option<String> {
    match error {
        ModelError::InFile { source, .. } => of_model(source),
        ModelError::Tokenizer(TokenizerError::UnknownPre { .. }) => Some(
            "`--pre-tokenizer NAME` splits text as one of these does; another than the model was trained with gives \
             worse answers"
                .to_owned(),
        ),
        // What a template itself says (`Raised`) is about the conversation.
        ModelError::Template(TemplateError::Raised(_)) => {
            Some("that is the chat template's own refusal; --raw gives the prompt to the model as it is".to_owned())
        }
        ModelError::Template(_) => {
            Some("--raw gives the prompt to the model as it is, without the template".to_owned())
        }
        ModelError::Exec(ExecError::IntermediateMemory { needed_bytes, .. }) => Some(format!(
            "the options are --max-intermediate-bytes {needed_bytes}, or a lower --max-step-tokens"
        )),
        ModelError::DoesNotFit { largest_ctx: 1.., .. } => {
            Some("--cache-type-k q8_0 --cache-type-v q8_0 store about twice as many tokens as f16".to_owned())
        }
        _ => None,
    }
}
