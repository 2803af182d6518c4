//! The whole conformance suite in one run: nothing is red, on any instruction set of this machine, and the support
//! table in README.md is that of the run.

use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::conformance::{Options, Report, keep_block, run};

fn report(isa: Option<Isa>, filter: Option<&str>) -> Report {
    let options = CpuOptions {
        threads: 2,
        isa,
        ..CpuOptions::default()
    };
    let cases = filter.map_or(Options::default(), Options::only);
    run(CpuBackend::with_options(options).unwrap(), &cases)
}

#[test]
fn readme_holds_the_support_table() {
    let report = report(None, None);
    report.assert_ok();
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let cure = "cargo test -p glia-backend-cpu --test support";
    keep_block(readme, "what the CPU backend supports", &report.support_table(), cure);
}

#[test]
fn every_instruction_set_passes() {
    let best = Isa::detect();
    for isa in Isa::all_available().into_iter().filter(|isa| *isa != best) {
        // What has kernels of its own per instruction set; one with BF16 only has products.
        let all = [
            "matmul/", "segment/", "sdpa/", "rope/", "norm/", "softmax/", "lu/", "add/", "div/",
        ];
        for &filter in if isa.has_bf16() { &all[..2] } else { &all } {
            let report = report(Some(isa), Some(filter));
            assert!(report.is_ok(), "{}: {report}", isa.name());
        }
    }
}
