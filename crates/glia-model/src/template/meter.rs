//! Rewrites the syntax tree of a template so that all work is paid for.
//!
//! The engine charges for instructions, texts and items, but not for what is shared: a list added to itself, a list that
//! holds another twice, a slice of a slice. Each costs nothing to make and an exponential amount to walk. Here every
//! expression that makes a container is wrapped in a function of [`work`](super::work) that makes it a plain list and
//! charges for everything in it, and everything that walks values is charged for the walk.

use minijinja::Value;
use minijinja::machinery::Span;
use minijinja::machinery::ast::{
    AutoEscape, BinOp, BinOpKind, Break, Call, CallArg, CallBlock, Compare, CompareOp, Const, Continue, Do, EmitExpr,
    EmitRaw, Expr, Filter, FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr, List, Macro, Map, Set, SetBlock,
    Slice, Spanned, Stmt, Template, Test, Tuple, UnaryOp, UnaryOpKind, Var, WithBlock,
};

use super::{filters, work};

/// Filters that do not look into the elements of what they are given.
const SHALLOW_FILTERS: &[&str] = &[
    "length",
    "count",
    "first",
    "last",
    "default",
    "d",
    "trim",
    "upper",
    "lower",
    "items",
    "list",
    "reverse",
    "tojson",
    "split",
    "lines",
    "replace",
    "capitalize",
    "title",
    "int",
    "float",
    "abs",
    "round",
    "attr",
    "bool",
];
/// Tests that do not compare values.
const SHALLOW_TESTS: &[&str] = &[
    "defined",
    "undefined",
    "none",
    "boolean",
    "string",
    "number",
    "integer",
    "float",
    "mapping",
    "iterable",
    "sequence",
    "true",
    "false",
    "odd",
    "even",
    "divisibleby",
    "startingwith",
    "endingwith",
    "lower",
    "upper",
    "callable",
];
/// Methods that do not compare elements.
const SHALLOW_METHODS: &[&str] = &["get", "items", "keys", "values"];

/// The template with everything paid for.
pub(super) fn template<'a>(root: &Stmt<'a>) -> Stmt<'a> {
    stmt(root)
}

fn call<'a>(name: &'static str, arg: Expr<'a>, span: Span) -> Expr<'a> {
    let function = Expr::Var(Spanned::new(Var { id: name }, span));
    let args = vec![CallArg::Pos(arg)];
    Expr::Call(Spanned::new(Call { expr: function, args }, span))
}

fn own<'a>(e: Expr<'a>, span: Span) -> Expr<'a> {
    call(work::OWN, e, span)
}

/// Charges for a walk over the value, unless it is a constant.
fn weigh<'a>(e: Expr<'a>) -> Expr<'a> {
    let span = e.span();
    match e {
        Expr::Const(_) => e,
        _ => call(work::WEIGH, e, span),
    }
}

fn exprs<'a>(list: &[Expr<'a>]) -> Vec<Expr<'a>> {
    list.iter().map(expr).collect()
}

fn option<'a>(e: &Option<Expr<'a>>) -> Option<Expr<'a>> {
    e.as_ref().map(expr)
}

fn args<'a>(list: &[CallArg<'a>], with: impl Fn(Expr<'a>) -> Expr<'a>) -> Vec<CallArg<'a>> {
    let arg = |a: &CallArg<'a>| match a {
        CallArg::Pos(e) => CallArg::Pos(with(expr(e))),
        CallArg::Kwarg(name, e) => CallArg::Kwarg(name, with(expr(e))),
        CallArg::PosSplat(e) => CallArg::PosSplat(with(expr(e))),
        CallArg::KwargSplat(e) => CallArg::KwargSplat(with(expr(e))),
    };
    list.iter().map(arg).collect()
}

/// The parts of a call; the call itself is wrapped by who can.
fn inside<'a>(c: &Call<'a>) -> Call<'a> {
    let callee = match &c.expr {
        Expr::GetAttr(attr) => {
            let receiver = expr(&attr.expr);
            let receiver = if SHALLOW_METHODS.contains(&attr.name) {
                receiver
            } else {
                weigh(receiver)
            };
            let (expr, name) = (receiver, attr.name);
            Expr::GetAttr(Spanned::new(GetAttr { expr, name }, attr.span()))
        }
        other => expr(other),
    };
    Call {
        expr: callee,
        args: args(&c.args, weigh),
    }
}

fn expr<'a>(e: &Expr<'a>) -> Expr<'a> {
    let span = e.span();
    match e {
        Expr::Var(v) => Expr::Var(Spanned::new(Var { id: v.id }, span)),
        Expr::Const(c) => Expr::Const(Spanned::new(Const { value: c.value.clone() }, span)),
        Expr::Slice(s) => {
            let slice = Slice {
                expr: expr(&s.expr),
                start: option(&s.start),
                stop: option(&s.stop),
                step: option(&s.step),
            };
            call(work::LIST, Expr::Slice(Spanned::new(slice, span)), span)
        }
        Expr::UnaryOp(u) => {
            let not = matches!(u.op, UnaryOpKind::Not);
            let op = if not { UnaryOpKind::Not } else { UnaryOpKind::Neg };
            Expr::UnaryOp(Spanned::new(
                UnaryOp {
                    op,
                    expr: expr(&u.expr),
                },
                span,
            ))
        }
        Expr::BinOp(b) => binary(b, span),
        Expr::Compare(c) => {
            let op = |o: &CompareOp<'a>| CompareOp {
                op: o.op,
                expr: weigh(expr(&o.expr)),
            };
            let compare = Compare {
                expr: weigh(expr(&c.expr)),
                ops: c.ops.iter().map(op).collect(),
            };
            Expr::Compare(Spanned::new(compare, span))
        }
        Expr::IfExpr(i) => {
            let choice = IfExpr {
                test_expr: expr(&i.test_expr),
                true_expr: expr(&i.true_expr),
                false_expr: option(&i.false_expr),
            };
            Expr::IfExpr(Spanned::new(choice, span))
        }
        Expr::Filter(f) => {
            let shallow = SHALLOW_FILTERS.contains(&f.name);
            let with = |e| if shallow { e } else { weigh(e) };
            let filter = Filter {
                name: f.name,
                expr: option(&f.expr).map(with),
                args: args(&f.args, with),
            };
            own(Expr::Filter(Spanned::new(filter, span)), span)
        }
        Expr::Test(t) if matches!(t.name, "defined" | "undefined") && method_of(&t.expr).is_some() => {
            dict_method(t, span)
        }
        Expr::Test(t) => {
            let shallow = SHALLOW_TESTS.contains(&t.name);
            let with = |e| if shallow { e } else { weigh(e) };
            let test = Test {
                name: t.name,
                expr: with(expr(&t.expr)),
                args: args(&t.args, with),
            };
            Expr::Test(Spanned::new(test, span))
        }
        Expr::GetAttr(g) => {
            let (expr, name) = (expr(&g.expr), g.name);
            Expr::GetAttr(Spanned::new(GetAttr { expr, name }, span))
        }
        Expr::GetItem(g) => {
            let item = GetItem {
                expr: expr(&g.expr),
                subscript_expr: weigh(expr(&g.subscript_expr)),
            };
            Expr::GetItem(Spanned::new(item, span))
        }
        Expr::Call(c) => {
            // The engine knows these by their place; they give text.
            let text = matches!(&c.expr, Expr::Var(v) if matches!(v.id, "loop" | "caller"));
            let called = Expr::Call(Spanned::new(inside(c), span));
            if text { called } else { own(called, span) }
        }
        Expr::List(l) => own(Expr::List(Spanned::new(List { items: exprs(&l.items) }, span)), span),
        Expr::Tuple(t) => own(Expr::Tuple(Spanned::new(Tuple { items: exprs(&t.items) }, span)), span),
        Expr::Map(m) => {
            let (keys, values) = (exprs(&m.keys), exprs(&m.values));
            own(Expr::Map(Spanned::new(Map { keys, values }, span)), span)
        }
    }
}

/// The name, when the expression is an attribute that Python's dicts have as a method.
fn method_of<'a>(e: &Expr<'a>) -> Option<&'a str> {
    match e {
        Expr::GetAttr(g) if filters::is_dict_method(g.name) => Some(g.name),
        _ => None,
    }
}

/// `x.keys is defined`: true of every mapping.
fn dict_method<'a>(t: &Test<'a>, span: Span) -> Expr<'a> {
    let Expr::GetAttr(g) = &t.expr else {
        return expr(&t.expr);
    };
    let name = Value::from(g.name);
    let function = Expr::Var(Spanned::new(Var { id: filters::HAS }, span));
    let args = vec![
        CallArg::Pos(expr(&g.expr)),
        CallArg::Pos(Expr::Const(Spanned::new(Const { value: name }, span))),
    ];
    let has = Expr::Call(Spanned::new(Call { expr: function, args }, span));
    if t.name == "defined" {
        return has;
    }
    let (op, expr) = (UnaryOpKind::Not, has);
    Expr::UnaryOp(Spanned::new(UnaryOp { op, expr }, span))
}

fn binary<'a>(b: &BinOp<'a>, span: Span) -> Expr<'a> {
    let (left, right) = (expr(&b.left), expr(&b.right));
    let walks = matches!(
        b.op,
        BinOpKind::Eq
            | BinOpKind::Ne
            | BinOpKind::Lt
            | BinOpKind::Lte
            | BinOpKind::Gt
            | BinOpKind::Gte
            | BinOpKind::In
            | BinOpKind::Concat
            | BinOpKind::Rem
    );
    let (left, right) = if walks {
        (weigh(left), weigh(right))
    } else {
        (left, right)
    };
    let made = Expr::BinOp(Spanned::new(BinOp { op: b.op, left, right }, span));
    match b.op {
        BinOpKind::Add | BinOpKind::Mul => own(made, span),
        _ => made,
    }
}

/// What is assigned to: names, and attributes of namespaces.
fn target<'a>(e: &Expr<'a>) -> Expr<'a> {
    let span = e.span();
    match e {
        Expr::List(l) => {
            let items = l.items.iter().map(target).collect();
            Expr::List(Spanned::new(List { items }, span))
        }
        Expr::Tuple(t) => {
            let items = t.items.iter().map(target).collect();
            Expr::Tuple(Spanned::new(Tuple { items }, span))
        }
        other => expr(other),
    }
}

fn body<'a>(list: &[Stmt<'a>]) -> Vec<Stmt<'a>> {
    list.iter().map(stmt).collect()
}

fn stmt<'a>(s: &Stmt<'a>) -> Stmt<'a> {
    match s {
        Stmt::Template(t) => {
            let children = body(&t.children);
            Stmt::Template(Spanned::new(Template { children }, t.span()))
        }
        Stmt::EmitExpr(e) => Stmt::EmitExpr(Spanned::new(EmitExpr { expr: expr(&e.expr) }, e.span())),
        Stmt::EmitRaw(r) => Stmt::EmitRaw(Spanned::new(EmitRaw { raw: r.raw }, r.span())),
        Stmt::ForLoop(f) => {
            let looped = ForLoop {
                target: target(&f.target),
                iter: expr(&f.iter),
                filter_expr: option(&f.filter_expr),
                recursive: f.recursive,
                body: body(&f.body),
                else_body: body(&f.else_body),
            };
            Stmt::ForLoop(Spanned::new(looped, f.span()))
        }
        Stmt::IfCond(i) => {
            let cond = IfCond {
                expr: expr(&i.expr),
                true_body: body(&i.true_body),
                false_body: body(&i.false_body),
            };
            Stmt::IfCond(Spanned::new(cond, i.span()))
        }
        Stmt::WithBlock(w) => {
            let assignments = w.assignments.iter().map(|(t, e)| (target(t), expr(e))).collect();
            let body = body(&w.body);
            Stmt::WithBlock(Spanned::new(WithBlock { assignments, body }, w.span()))
        }
        Stmt::Set(s) => {
            let value = expr(&s.expr);
            let at = s.expr.span();
            // A namespace that came to hold itself could not be walked to an end.
            let value = match &s.target {
                Expr::GetAttr(_) => call(work::PLAIN, value, at),
                _ => value,
            };
            let (target, expr) = (target(&s.target), value);
            Stmt::Set(Spanned::new(Set { target, expr }, s.span()))
        }
        Stmt::SetBlock(s) => {
            let block = SetBlock {
                target: target(&s.target),
                filter: option(&s.filter),
                body: body(&s.body),
            };
            Stmt::SetBlock(Spanned::new(block, s.span()))
        }
        Stmt::AutoEscape(a) => {
            let (enabled, body) = (expr(&a.enabled), body(&a.body));
            Stmt::AutoEscape(Spanned::new(AutoEscape { enabled, body }, a.span()))
        }
        Stmt::FilterBlock(f) => {
            let block = FilterBlock {
                filter: expr(&f.filter),
                filter_span: f.filter_span,
                body: body(&f.body),
            };
            Stmt::FilterBlock(Spanned::new(block, f.span()))
        }
        Stmt::Macro(m) => Stmt::Macro(declaration(m)),
        Stmt::CallBlock(c) => {
            let block = CallBlock {
                call: Spanned::new(inside(&c.call), c.call.span()),
                call_expr_span: c.call_expr_span,
                macro_decl: declaration(&c.macro_decl),
            };
            Stmt::CallBlock(Spanned::new(block, c.span()))
        }
        Stmt::Continue(c) => Stmt::Continue(Spanned::new(Continue, c.span())),
        Stmt::Break(b) => Stmt::Break(Spanned::new(Break, b.span())),
        Stmt::Do(d) => {
            let call = Spanned::new(inside(&d.call), d.call.span());
            Stmt::Do(Spanned::new(Do { call }, d.span()))
        }
    }
}

fn declaration<'a>(m: &Spanned<Macro<'a>>) -> Spanned<Macro<'a>> {
    let made = Macro {
        name: m.name,
        args: m.args.iter().map(target).collect(),
        defaults: exprs(&m.defaults),
        body: body(&m.body),
    };
    Spanned::new(made, m.span())
}
