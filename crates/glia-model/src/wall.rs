//! A wall around libraries that read what files bring: their panics become errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// This thread is inside the wall, where a panic is no fault of the program and is not printed.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Leaves the wall on every way out.
struct Leave(bool);

impl Drop for Leave {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// Runs a call of a library; a panic in it is an error with its words.
///
/// What the call borrows must not be left half changed by a panic: a tokenizer or a template is only read, its caches are
/// locked by entry.
pub(crate) fn within<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    quiet();
    let leave = Leave(INSIDE.replace(true));
    let outcome = catch_unwind(AssertUnwindSafe(call));
    drop(leave);
    outcome.map_err(|panic| words(&*panic).to_owned())
}

/// Panics inside the wall are not printed; all others go on to the program's own hook.
fn quiet() {
    static HOOK: Once = Once::new();
    if std::thread::panicking() {
        return;
    }
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                before(info);
            }
        }));
    });
}

fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => words,
        _ => "without a message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors_and_results_pass() {
        assert_eq!(within(|| 7).unwrap(), 7);
        let none: Vec<u8> = Vec::new();
        let error = within(|| none[std::hint::black_box(3)]).unwrap_err();
        assert!(error.contains("index out of bounds"), "{error}");
        assert!(!INSIDE.get());
        let nested = within(|| within(|| none[std::hint::black_box(3)]).is_err()).unwrap();
        assert!(nested && !INSIDE.get());
    }
}
