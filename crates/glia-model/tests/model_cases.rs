//! Faults of engines in generation, on the demo model: positions, the end of the context, chunks of the prompt, streams
//! that lose text, seeds.

use glia_core::{DType, Precision};
use glia_model::sample::SplitMix64;
use glia_model::{Event, FinishReason, GenerateParams, Model, ModelError, Options, SampleParams, WantedRows};

fn exact() -> Options {
    Options {
        precision: Precision::Exact,
        ..Options::default()
    }
}

fn open(max_context: usize, max_step_tokens: usize) -> Model {
    let mut options = exact();
    options.max_context = Some(max_context);
    options.max_step_tokens = max_step_tokens;
    Model::open_demo_with(options).unwrap()
}

fn prompt(n: u32) -> Vec<u32> {
    (0..n).map(|i| 300 + 37 * i % 1000).collect()
}

fn params(max_tokens: usize) -> GenerateParams {
    GenerateParams {
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..GenerateParams::default()
    }
}

/// What a generation gives: ids, text, reason, tokens counted.
fn collect(model: &Model, prompt: &[u32], params: GenerateParams) -> (Vec<u32>, String, FinishReason, usize) {
    let (mut ids, mut out) = (Vec::new(), String::new());
    for event in model.generate_ids(prompt, params).unwrap() {
        match event.unwrap() {
            Event::Token { id, text, .. } => {
                ids.push(id);
                out += &text;
            }
            Event::End {
                reason,
                text,
                n_prompt,
                n_generated,
            } => {
                assert_eq!(n_prompt, prompt.len());
                return (ids, out + &text, reason, n_generated);
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("no end")
}

#[test]
fn one_model_serves_prompts_of_different_lengths() {
    let model = open(256, 64);
    let first = collect(&model, &prompt(5), params(20));
    let second = collect(&model, &prompt(9), params(20));
    assert_eq!((first.0.len(), second.0.len()), (20, 20));
    assert_eq!(first, collect(&model, &prompt(5), params(20)));
}

#[test]
fn prefill_steps_and_chunks_agree_to_the_bit() {
    let model = open(256, 64);
    let ids = prompt(12);
    let last = |cuts: &[usize]| {
        let mut session = model.session().unwrap();
        let (mut at, mut bits) = (0, Vec::new());
        for &cut in cuts {
            let logits = session.feed(&ids[at..at + cut], &WantedRows::Last).unwrap();
            bits = logits.as_f32().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            at += cut;
        }
        assert_eq!((at, session.pos()), (12, 12));
        bits
    };
    let whole = last(&[12]);
    assert!(whole == last(&[1; 12]), "one by one");
    assert!(whole == last(&[5, 7]), "5 + 7");
}

#[test]
fn prompts_longer_than_a_step_run_in_chunks() {
    let (small, large) = (open(64, 8), open(64, 64));
    for n in [7, 8, 9, 16, 17] {
        let logits = |model: &Model| {
            let mut session = model.session().unwrap();
            let logits = session.feed(&prompt(n), &WantedRows::Last).unwrap();
            logits.as_f32().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        assert!(logits(&small) == logits(&large), "{n} tokens");
    }
}

#[test]
fn generation_ends_with_the_context() {
    let model = open(32, 16);
    for n in [30, 31] {
        let (ids, _, reason, n_generated) = collect(&model, &prompt(n), params(100));
        assert_eq!(reason, FinishReason::Length);
        assert_eq!(ids.len(), n_generated);
        assert_eq!(ids.len(), 32 - n as usize);
    }
    let (ids, _, reason, _) = collect(&model, &prompt(5), params(0));
    assert_eq!((ids.len(), reason), (0, FinishReason::Length));
}

#[test]
fn prompts_beyond_the_context_are_refused_with_both_numbers() {
    for (n, ctx) in [(32, 32), (200, 64)] {
        let model = open(ctx, 16);
        let error = model.generate_ids(&prompt(n), params(5)).err().unwrap();
        assert!(matches!(error, ModelError::PromptTooLong { n_prompt, max_context }
            if (n_prompt, max_context) == (n as usize, ctx)));
        let text = error.to_string();
        assert!(
            text.contains(&n.to_string()) && text.contains(&ctx.to_string()),
            "{text}"
        );
    }
    let error = open(32, 16).generate_ids(&[], params(5)).err().unwrap();
    assert!(matches!(error, ModelError::EmptyPrompt));
}

#[test]
fn contexts_beyond_memory_are_refused_with_what_fits() {
    let mut options = exact();
    options.max_context = Some(1 << 24);
    options.kv_dtypes = Some([DType::F32; 2]);
    match Model::open_demo_with(options) {
        Err(ModelError::DoesNotFit {
            ctx,
            needed_bytes,
            kv_bytes,
            limit_bytes,
            largest_ctx,
            ..
        }) => {
            assert_eq!(ctx, 1 << 24);
            assert!(needed_bytes > limit_bytes && kv_bytes > 0 && largest_ctx < ctx);
        }
        Err(other) => panic!("{other}"),
        // A machine with that much memory may have it: pages are taken as they are used.
        Ok(model) => assert_eq!(model.max_context(), 1 << 24),
    }
}

#[test]
fn every_token_arrives_in_order() {
    let model = open(64, 16);
    let expected = collect(&model, &prompt(3), params(7));
    assert_eq!((expected.0.len(), expected.3), (7, 7));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| assert_eq!(collect(&model, &prompt(3), params(7)), expected)));
        }
    });
}

#[test]
fn streams_are_whole_characters_and_lose_nothing() {
    let model = open(64, 16);
    let tokenizer = model.tokenizer();
    for text in ["😀", "розовые щёчки", "👨‍👩‍👧‍👦", "नमस्ते"] {
        let ids = tokenizer.encode(text, false, false).unwrap();
        let mut stream = tokenizer.decode_stream(false);
        let mut out: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        out += &stream.finish();
        assert_eq!(out, tokenizer.decode(&ids, false).unwrap());
        assert!(!out.contains('\u{FFFD}'), "{out}");
        // Cut in the middle of the last character: the rest is told of, not dropped and no panic.
        let cut = &ids[..ids.len() - 1];
        let mut stream = tokenizer.decode_stream(false);
        let mut out: String = cut.iter().map(|&id| stream.push(id).unwrap()).collect();
        out += &stream.finish();
        assert_eq!(out, tokenizer.decode(cut, false).unwrap());
    }
    let mut random = SplitMix64::new(5);
    let vocab = tokenizer.vocab_size() as u64;
    let ids: Vec<u32> = (0..5000).map(|_| (random.next_u64() % vocab) as u32).collect();
    let mut stream = tokenizer.decode_stream(true);
    let mut out: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    out += &stream.finish();
    assert_eq!(out, tokenizer.decode(&ids, true).unwrap());
}

#[test]
fn nothing_of_a_stop_string_or_after_it_is_given_out() {
    let model = open(128, 16);
    let (_, text, ..) = collect(&model, &prompt(4), params(40));
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    assert!(chars.len() > 30, "{text:?}");
    // Stops that begin and end within tokens, at many places.
    for start in (1..chars.len() - 12).step_by(5) {
        let stop = &text[chars[start].0..chars[start + 9].0];
        let mut with_stop = params(40);
        with_stop.stop = vec![stop.to_owned(), String::new()];
        let (ids, out, reason, n_generated) = collect(&model, &prompt(4), with_stop);
        assert_eq!(reason, FinishReason::Stop);
        assert_eq!(out, text[..text.find(stop).unwrap()], "stop {stop:?}");
        assert!(ids.len() <= n_generated && n_generated <= 40);
    }
}

#[test]
fn temperature_0_is_greedy_whatever_the_seed() {
    let model = open(64, 16);
    let ids = |temperature: f32, seed: Option<u64>| {
        let mut params = params(16);
        params.sample = SampleParams {
            temperature,
            seed,
            ..SampleParams::default()
        };
        collect(&model, &prompt(4), params).0
    };
    let greedy = ids(0.0, None);
    for (temperature, seed) in [(0.0, Some(1)), (-0.0, Some(2)), (1e-9, Some(3))] {
        assert_eq!(ids(temperature, seed), greedy);
    }
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        let mut params = params(1);
        params.sample.temperature = bad;
        let error = model.generate_ids(&prompt(4), params).err().unwrap().to_string();
        assert!(error.contains("temperature must be finite and at least 0"), "{error}");
    }
    let seeded = ids(0.8, Some(42));
    assert_eq!(seeded, ids(0.8, Some(42)));
    assert_ne!(seeded, ids(0.8, Some(43)));
    assert_ne!(seeded, greedy);
    assert_ne!(ids(0.8, None), ids(0.8, None));
}
