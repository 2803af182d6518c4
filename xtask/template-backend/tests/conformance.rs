//! The conformance suite on this backend: one test per case.

glia_core::conformance_tests!(__ident__::__Struct__::new());
