//! Faults that users of other engines met with chat templates, as tests.

use glia_model::template::{ChatInput, ChatTemplate, Clock, TemplateError};
use serde_json::{Map, Value, json};

fn try_render(source: &str, messages: Value) -> Result<String, TemplateError> {
    let special = json!({"bos_token": "<s>", "eos_token": "</s>"})
        .as_object()
        .cloned()
        .unwrap();
    // 2024-07-26 15:04:05 UTC.
    let template = ChatTemplate::new(source, special, Clock::Fixed(1_722_006_245))?;
    template.render(&ChatInput {
        messages,
        ..ChatInput::default()
    })
}

fn render(source: &str) -> String {
    try_render(
        source,
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
    )
    .unwrap()
}

#[test]
fn python_ways() {
    for (source, expected) in [
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "26 Jul 2024 15:04"),
        ("{{ strftime_now('%A %-d %B, %j %I %p') }}", "Friday 26 July, 208 03 PM"),
        (
            "{% for m in messages[::-1] %}{{ m.role }};{% endfor %}",
            "assistant;user;",
        ),
        (
            "{{ 'a</think>b'.split('</think>')[-1].lstrip() }}{{ 'x'.startswith(('x','y')) }}{% for k,v in {'a':1}.items() %}{{k}}{% endfor %}",
            "bTruea",
        ),
        (
            "{{ [1.5, true, none, 'x'] }} {{ 1e16 }} {{ 0.00001 }}",
            "[1.5, True, None, 'x'] 1e+16 1e-05",
        ),
        ("{{ {'a': [1, 'é<']} | tojson }}", "{\"a\": [1, \"é<\"]}"),
        (
            "{% generation %}x{% endgeneration %}{{ 'a-b-c'.rsplit('-', 1) }}",
            "x['a-b', 'c']",
        ),
    ] {
        assert_eq!(render(source), expected, "{source}");
    }
}

#[test]
fn sandbox_reaches_nothing() {
    for source in [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'x' as y %}",
        "{{ env.HOME }}",
    ] {
        assert!(
            try_render(source, json!([])).map_or(true, |text| text.is_empty()),
            "{source}"
        );
    }
}

#[test]
fn hostile_templates_end() {
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}",
        "{% for i in range(9999) %}{{ 'x' * 90000000 }}{% endfor %}",
    ] {
        let start = std::time::Instant::now();
        let error = try_render(source, json!([])).expect_err(source);
        println!("{:?} for {error}: {source}", start.elapsed());
        assert!(start.elapsed().as_secs() < 30, "{source}");
    }
}

#[test]
fn refusals_carry_the_template_s_words() {
    let e = try_render("{{ raise_exception('roles must alternate') }}", json!([])).unwrap_err();
    assert!(matches!(&e, TemplateError::Raised(m) if m == "roles must alternate"));
    assert_eq!(e.to_string(), "roles must alternate");
}

#[test]
fn selection() {
    let list = json!({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]});
    let select = |config: &Value, side, tools| ChatTemplate::select(config, side, tools);
    assert_eq!(select(&list, None, false).unwrap(), "D");
    assert_eq!(select(&list, None, true).unwrap(), "T");
    assert_eq!(select(&list, Some("S"), true).unwrap(), "S");
    assert!(matches!(select(&json!({}), None, false), Err(TemplateError::Missing)));
    assert!(matches!(
        try_render("{% for %}", json!([])),
        Err(TemplateError::Parse(_))
    ));
}

#[test]
fn null_content_prints_nothing() {
    let messages = json!([{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}]);
    let source = "{{ messages[0].content }}|{{ messages[0].tool_calls[0].function.name }}";
    assert_eq!(try_render(source, messages).unwrap(), "|f");
}

#[test]
fn reserved_names_are_refused() {
    let special = json!({"bos_token": "<s>"}).as_object().cloned().unwrap();
    let template = ChatTemplate::new("x", special, Clock::System).unwrap();
    for name in ["chat_template", "messages", "bos_token"] {
        let variables = Map::from_iter([(name.to_string(), json!("y"))]);
        let input = ChatInput {
            messages: json!([]),
            variables,
            ..ChatInput::default()
        };
        assert!(matches!(template.render(&input), Err(TemplateError::Reserved(n)) if n == name));
    }
}
