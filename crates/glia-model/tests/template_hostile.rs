//! Chat templates that try to take all memory or never to end: each is stopped, within bounds of time and memory.

use std::time::{Duration, Instant};

use glia_model::template::{ChatInput, ChatTemplate, Clock, TemplateError};
use peak_alloc::PeakAlloc;
use serde_json::{Map, json};

#[global_allocator]
static PEAK: PeakAlloc = PeakAlloc;

/// Most memory of a rendering of a small conversation, in megabytes.
const MAX_MEGABYTES: f32 = 256.0;
/// Most time, on a busy machine and unoptimised.
const MAX_TIME: Duration = Duration::from_secs(10);

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    ChatTemplate::new(source, Map::new(), Clock::Fixed(0))?.render(&ChatInput {
        messages,
        ..ChatInput::default()
    })
}

/// Doubles `x` 60 times, whatever way `double` does it.
fn doubled(start: &str, double: &str, then: &str) -> [String; 3] {
    let straight = format!(
        "{{% set x = {start} %}}{}{then}",
        format!("{{% set x = {double} %}}").repeat(60)
    );
    let in_loop = double.replace('x', "ns.x");
    let then_ns = then.replace("x", "ns.x").replace("ns.ns.x", "ns.x");
    let looped = format!(
        "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{{% set ns.x = {in_loop} %}}{{% endfor %}}{then_ns}"
    );
    let recursive = format!(
        "{{% macro f(x, n) %}}{{% if n > 0 %}}{{{{ f({double}, n - 1) }}}}{{% else %}}{then}{{% endif %}}{{% endmacro %}}\
         {{{{ f({start}, 60) }}}}"
    );
    [straight, looped, recursive]
}

/// Chains of `n` links, whose trees are as deep as they are long.
fn chains(n: usize) -> Vec<String> {
    let expression = |start: &str, link: &str, end: &str| format!("{{{{ {start}{}{end} }}}}", link.repeat(n));
    let mut all = vec![
        expression("", "not ", "1"),
        expression("", "- ", "1"),
        expression("1", "|string", ""),
        expression("messages", ".a", ""),
        expression("messages", "[0]", ""),
        expression("messages", "()", ""),
        expression("", "1 if 0 else ", "1"),
        expression("1", " is odd", ""),
        format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}x".repeat(n)),
        format!("{{% if 0 %}}{}{{% endif %}}", "{%-elif 0 %}x".repeat(n)),
        format!("{{{{ {{'a': {{'b': 1}}}} {} }}}}", "~ 1".repeat(n)),
        format!("{{% set x = '%}}' {} %}}", "+ 'a'".repeat(n)),
        format!("{{{{ {}1 }}}}", format!("[1, {}", "not ".repeat(n / 100)).repeat(100)),
    ];
    for sign in ["+", "-", "*", "/", "//", "%", "**", "~", "and", "or", "in", "==", "<"] {
        all.push(expression("1", &format!(" {sign} 1"), ""));
    }
    all
}

#[test]
fn chains_of_any_length_leave_the_stack_whole() {
    let on_small_stack = |source: String| {
        let run = move || render(&source).map(drop);
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
        thread.join().unwrap()
    };
    for source in [100, 240, 480, 990].into_iter().flat_map(chains) {
        // Some are errors of the template; that they come back is enough.
        let _ = on_small_stack(source);
    }
    // What is long and flat is not deep.
    let flat = format!("{{{{ [{}1]|length }}}}", "'a' ~ 1, ".repeat(5000));
    assert_eq!(
        on_small_stack(flat.clone()).map(|()| render(&flat).unwrap()).unwrap(),
        "5001"
    );
    for source in chains(100_000) {
        let error = on_small_stack(source.clone()).expect_err(&source[..40]).to_string();
        assert!(
            error.contains("exceeds") || error.contains("parse"),
            "{}: {error}",
            &source[..40]
        );
    }
}

fn hostile() -> Vec<String> {
    let mut all = Vec::new();
    for double in [
        "x + x",
        "[x, x]",
        "(x, x)",
        "{'a': x, 'b': x}",
        "x * 2",
        "x|chain(x)",
        "x|zip(x)|list",
        "[x]|list + [x]",
        "x[:] + x[0:]",
        "dict(a=x, b=x)",
    ] {
        for then in [
            "",
            "{{ x }}",
            "{{ x ~ '' }}",
            "{{ x|tojson }}",
            "{{ x|string }}",
            "{{ x|join(',') }}",
            "{{ x == x }}",
        ] {
            let ways = doubled("[1]", double, then);
            match then {
                "" => all.extend(ways),
                // Each way of doubling with some of the ways of walking.
                _ => all.extend(ways.into_iter().nth(all.len() % 3)),
            }
        }
    }
    for double in [
        "x + x",
        "x ~ x",
        "x * 2",
        "x|replace('a', 'aa')",
        "x.replace('a', 'aa')",
        "[x, x]|join(x)",
        "x.join([x, x])",
    ] {
        all.extend(doubled("'aaaaaaaa'", double, "{{ x|length }}"));
    }
    let big = "{% set s = 'a' * 4000000 %}";
    for source in [
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(9999) %}{{ 'x' * 90000000 }}{% endfor %}",
        "{{ 'x' * 10**12 }}",
        "{{ ([0] * 100000000)|list }}",
        "{{ ([0] * 100000000) * 100000000 }}",
        "{{ (((1,) * 100000) * 100000)|length }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ '%.1000000000f'|format(1.0) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ '{:.999999999f}'.format(1.5) }}",
        "{{ ('{0}' * 100000).format('a' * 1000000) }}",
        "{{ 'a'|indent(10**9, true) }}",
        "{{ ('a\\n' * 100000)|indent(100000) }}",
        "{{ ('a\\n' * 100000)|indent('b' * 100000, true) }}",
        "{{ ('a b ' * 100000)|truncate(10**18) }}{{ 'a'|truncate(2, true, 'b' * 10**9) }}",
        "{{ dict([('a', 1)] * 10000000)|length }}",
        "{{ [1]|tojson(indent=10**9) }}",
        "{{ (range(100000)|list)|tojson(indent=64, separators=('a' * 10000, 'b')) }}",
        "{{ (range(100000)|list)|tojson(separators=('a' * 100000, 'b')) }}",
        "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
        "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}",
        "{{ ('a' * 1000000).join(range(100000)) }}",
        "{{ range(100000)|join('a' * 1000000) }}",
        "{{ range(100000)|sum(start=[]) }}",
        "{{ ([[1] * 1000] * 1000)|sum(start=[]) }}",
        "{{ 2 ** 100000000 }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns|tojson }}",
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a ~ '' }}",
        "{% set ns = namespace() %}{% set ns.a = {'b': (ns,)} %}{{ ns == ns }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = ns.x[0:] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = ns.x|map('int') %}{% endfor %}{{ ns.x|list }}",
        "{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
    ] {
        all.push(source.to_owned());
    }
    for work in [
        "s == t",
        "s.strip(('b' * 100000) ~ 'a')",
        "s|trim(('b' * 100000) ~ 'a')",
        "s in t",
        "l == m",
        "l in [m, m, m]",
        "l|tojson",
        "l ~ ''",
        "l|unique|list",
        "l|sort",
        "l|selectattr('a', 'equalto', m)|list",
        "s|upper|length",
    ] {
        all.push(format!(
            "{big}{{% set t = 'a' * 4000000 %}}{{% set l = [range(1000)|list] * 10 %}}{{% set m = [range(1000)|list] * 10 %}}\
             {{% for i in range(100000) %}}{{% if {work} %}}{{% endif %}}{{% endfor %}}"
        ));
    }
    all
}

#[test]
fn every_template_ends_within_bounds() {
    let mut worst = (Duration::ZERO, 0f32);
    for source in hostile() {
        let shown: String = source.chars().take(300).collect();
        PEAK.reset_peak_usage();
        let (start, before) = (Instant::now(), PEAK.current_usage_as_mb());
        let outcome = render(&source);
        let (time, peak) = (start.elapsed(), PEAK.peak_usage_as_mb() - before);
        if std::env::var_os("GLIA_SHOW").is_some() {
            let end = outcome
                .as_ref()
                .map_or_else(ToString::to_string, |t| format!("{} bytes", t.len()));
            println!("{time:?} {peak:.0} MB {end}: {shown}");
        }
        assert!(time < MAX_TIME, "{time:?}: {shown}");
        assert!(peak < MAX_MEGABYTES, "{peak} MB: {shown}");
        worst = (worst.0.max(time), worst.1.max(peak));
    }
    println!("worst: {:?}, {:.0} MB", worst.0, worst.1);
}

#[test]
fn long_conversations_have_room() {
    let turn = |i: usize| json!({"role": if i.is_multiple_of(2) { "user" } else { "assistant" }, "content": "word ".repeat(20)});
    let messages: Vec<_> = (0..4000).map(turn).collect();
    let source = "{% set ns = namespace(out=[]) %}{% for m in messages %}{% if loop.index0 % 2 == 0 and 'tool_calls' not in m \
                  %}{% set role = m.role|upper %}{% else %}{% set role = m['role'] %}{% endif %}<|{{ role }}|>{{ \
                  m.content|trim }}{% if loop.index0 == messages|length - 1 %}!{% endif %}{% endfor %}";
    let template = ChatTemplate::new(source, Map::new(), Clock::Fixed(0)).unwrap();
    let text = template
        .render(&ChatInput {
            messages: messages.into(),
            ..ChatInput::default()
        })
        .unwrap();
    assert!(text.ends_with("word!"));
}

#[test]
fn panics_of_the_template_engine_become_errors() {
    for source in [
        "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}",
        "{% for i in [1,2] %}{% with a=1 %}{% filter upper %}{% break %}{% endfilter %}{% endwith %}{% endfor %}{{1}}",
    ] {
        let error = render(source).unwrap_err();
        assert!(matches!(error, TemplateError::Render(_)), "{source}: {error:?}");
    }
}

#[test]
fn what_a_template_raises_is_printed_on_one_short_line() {
    let source = "{{ raise_exception('\u{1b}[31m\\r\\nall is well' ~ 'x' * 5000) }}";
    let text = render(source).unwrap_err().to_string();
    assert!(!text.contains(|c: char| c.is_control()) && text.len() < 400, "{text:?}");
}
