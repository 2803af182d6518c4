//! The whole conformance suite in one run with all features of the adapter: nothing is red, and the support table in
//! README.md is that of the run. Masked to the baseline, every case is a test: see `conformance_baseline.rs`.

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::conformance::{Options, keep_block, run};

#[test]
fn nothing_is_red_and_readme_holds_the_support_table() {
    let gpu = WgpuBackend::new(WgpuOptions::default()).expect("a Vulkan driver, if only Mesa's lavapipe");
    let report = run(gpu, &Options::default());
    report.assert_ok();
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let cure = "cargo test -p glia-backend-wgpu --test support";
    keep_block(readme, "what the wgpu backend supports", &report.support_table(), cure);
}
