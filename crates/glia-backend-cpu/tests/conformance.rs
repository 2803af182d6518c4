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
fn steps_of_segments_are_timed_behind_a_past() {
    let mut options = conformance::Options::only("segment/speed_attention");
    options.bench = true;
    let report = conformance::run(cpu(), &options);
    report.assert_ok();
    let timing = |name: &str| {
        let entry = report.entries.iter().find(|e| e.name.ends_with(name)).unwrap();
        entry.timing.unwrap()
    };
    let (decode, prefill) = (timing("decode_q8_0"), timing("prefill_q8_0"));
    // A row reads the matrices and the keys and values of 1,001 tokens; 128 rows compute more, on the same matrices.
    let matrices = (2 * 1024 * 1024 + 2 * 256 * 1024) / 32 * 34;
    assert!(decode.bytes > matrices + 1001 * 2 * 256 * 2, "{decode:?}");
    assert!(
        prefill.ops > 64 * decode.ops && prefill.time > decode.time,
        "{prefill:?}"
    );
    let table = report.speed_table();
    assert!(table.contains("| segment/speed_attention_decode_q8_0 | "), "{table}");
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
