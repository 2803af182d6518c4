//! The macro that makes a `#[test]` of every case, and the proof that its list of names is that of the suite.
//!
//! Macros need the names when they are compiled, so the list is a generated file.

/// One `#[test]` per case of the conformance suite, in a module per op: `cargo test rope`.
///
/// Takes an expression that makes the backend (or an `Arc` of one), evaluated once. Cases that are known to fail are
/// declared with their reason; one that passes all the same is red, so that the declaration goes away with the fault.
///
/// ```
/// # mod tests {
/// # use glia_core::conformance::ReferenceBackend as MyBackend;
/// glia_core::conformance_tests!(MyBackend, expect_failures: {
///     // "rope/neox_f16" => "rotates in f16",
/// });
/// # }
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($backend:expr $(,)?) => {
        $crate::conformance_tests!($backend, expect_failures: {});
    };
    ($backend:expr, expect_failures: { $($name:literal => $reason:literal),* $(,)? } $(,)?) => {
        #[allow(dead_code)]
        fn conformance_suite() -> &'static $crate::conformance::Suite {
            static SUITE: std::sync::OnceLock<$crate::conformance::Suite> = std::sync::OnceLock::new();
            SUITE.get_or_init(|| $crate::conformance::Suite::new($backend, &[$(($name, $reason)),*]))
        }

        #[test]
        fn declared_exceptions_name_cases() {
            conformance_suite().check_exceptions();
        }

        $crate::__conformance_names!($crate::__conformance_module);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_module {
    ($($group:ident: $($case:ident)*;)*) => {$(
        mod $group {
            $(
                #[test]
                fn $case() {
                    super::conformance_suite().check(concat!(stringify!($group), "/", stringify!($case)));
                }
            )*
        }
    )*};
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use crate::conformance::names;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance/names.rs");

    fn generated() -> String {
        let mut text = String::from(
            "//! Names of the conformance cases, for the macro. Generated: `GLIA_BLESS=1 cargo test -p glia-core \
             --features conformance names`.\n\n#[doc(hidden)]\n#[macro_export]\n#[rustfmt::skip]\nmacro_rules! \
             __conformance_names {\n    ($then:path) => {\n        $then! {\n",
        );
        let (mut group, mut width) = (String::new(), 0);
        for name in names() {
            let (of, case) = name.split_once('/').unwrap();
            if of != group {
                let end = if group.is_empty() { "" } else { ";\n" };
                write!(text, "{end}            {of}:").unwrap();
                (group, width) = (of.to_owned(), 200);
            }
            width += case.len() + 1;
            if width > 100 {
                text += "\n               ";
                width = case.len() + 1;
            }
            write!(text, " {case}").unwrap();
        }
        text + ";\n        }\n    };\n}\n"
    }

    #[test]
    fn the_list_of_names_is_that_of_the_suite() {
        let text = generated();
        if std::env::var_os("GLIA_BLESS").is_some() {
            std::fs::write(FILE, &text).unwrap();
        }
        let kept = std::fs::read_to_string(FILE).unwrap_or_default();
        assert!(
            kept == text,
            "src/conformance/names.rs is not the list of cases: run `GLIA_BLESS=1 cargo test -p glia-core --features \
             conformance names` and commit the file"
        );
    }

    #[test]
    fn names_are_identifiers_and_unique() {
        let mut all = names();
        for name in &all {
            let (group, case) = name.split_once('/').unwrap();
            for part in [group, case] {
                let first = part.chars().next().is_some_and(|c| c.is_ascii_lowercase());
                let rest = part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                assert!(first && rest, "{name}");
            }
        }
        let n = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}
