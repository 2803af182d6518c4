//! Hostile `tokenizer.json` files: what the library behind them panics on is refused, or an error of the call.

use glia_model::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// A tokenizer of three words.
fn base() -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "hi": 1, "there": 2}, "unk_token": "[UNK]"},
    })
}

fn with(key: &str, value: Value) -> Result<Tokenizer, String> {
    let mut json = base();
    json[key] = value;
    Tokenizer::from_hf(json.to_string().as_bytes(), None).map_err(|e| e.to_string())
}

#[test]
fn what_the_library_panics_on_is_refused() {
    let tokenizer = Tokenizer::from_hf(base().to_string().as_bytes(), None).unwrap();
    assert_eq!(tokenizer.encode("hi there you", true, true).unwrap(), [1, 2, 0]);

    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let template = |single: Value, tokens: Value| {
        json!({"type": "TemplateProcessing", "single": single,
               "pair": [sequence("A"), sequence("B")], "special_tokens": tokens})
    };
    let known = json!({"[UNK]": {"id": "[UNK]", "ids": [0], "tokens": ["[UNK]"]}});
    let good = template(json!([special("[UNK]"), sequence("A")]), known.clone());
    let tokenizer = with("post_processor", good).unwrap();
    assert_eq!(tokenizer.encode("hi", true, true).unwrap(), [0, 1]);

    let absent = template(json!([special("[CLS]"), sequence("A")]), known.clone());
    for processor in [absent.clone(), json!({"type": "Sequence", "processors": [absent]})] {
        let error = with("post_processor", processor).unwrap_err();
        assert!(error.contains("tokenizer.json") && error.contains("`[CLS]`"), "{error}");
    }
    // The second text of a pair where there is one text only.
    let error = with("post_processor", template(json!([sequence("B")]), known)).unwrap_err();
    assert!(error.contains("tokenizer.json"), "{error}");
    for pattern in ["|", "a*|"] {
        let replace = json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"});
        match with("normalizer", replace) {
            Err(error) => assert!(
                error.contains("tokenizer.json") && error.contains("normalizer"),
                "{error}"
            ),
            // A library that has learnt to do it must then do it for any text.
            Ok(tokenizer) => {
                for text in ["", "hi", "a a", "\u{e9}\u{65e5}"] {
                    let _ = tokenizer.encode(text, true, true);
                }
            }
        }
    }
}
