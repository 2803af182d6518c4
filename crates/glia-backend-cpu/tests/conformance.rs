//! The conformance suite on the CPU backend: every case a test.

use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::conformance;

fn cpu() -> CpuBackend {
    let options = CpuOptions {
        threads: 2,
        ..CpuOptions::default()
    };
    CpuBackend::with_options(options).unwrap()
}

glia_core::conformance_tests!(cpu());

#[test]
fn ops_of_real_sizes_are_timed_several_in_a_call() {
    let mut options = conformance::Options::only("rms_norm/speed");
    options.bench = true;
    let report = conformance::run(cpu(), &options);
    report.assert_ok();
    let timing = report.entries[0].timing.unwrap();
    assert!(timing.n_chained > 1, "{timing:?}");
    // Read, written, and the gain.
    assert_eq!(timing.bytes, 4 * (2 * 512 * 4096 + 4096));
    assert!(timing.gb_per_s() > 0.0 && timing.gb_per_s() < 2000.0, "{timing:?}");
    let table = report.speed_table();
    assert!(
        table.starts_with("| case | µs | GB/s | GFLOP/s | per call |\n"),
        "{table}"
    );
}

#[test]
fn small_cases_are_timed_by_the_call() {
    let mut options = conformance::Options::only("softmax/f32_3x19_");
    options.bench = true;
    let report = conformance::run(cpu(), &options);
    report.assert_ok();
    assert!(report.entries.iter().filter_map(|e| e.timing).all(|t| t.n_chained == 1));
    assert!(!report.speed_table().contains("per call"));
}
