//! Hostile, damaged and misnamed GGUF files: each is refused at once, in words that name the file, the field, the
//! numbers and the cure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use glia_core::{DType, Shape, tensor_bytes};
use glia_model::gguf::write::{GgufWriter, WriteValue};
use glia_model::gguf::{GgufError, GgufFile, types};

/// Builds raw headers.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn new(n_tensors: u64, n_keys: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_keys)
    }

    fn u32(mut self, n: u32) -> Raw {
        self.0.extend(n.to_le_bytes());
        self
    }

    fn u64(mut self, n: u64) -> Raw {
        self.0.extend(n.to_le_bytes());
        self
    }

    fn str(self, text: &str) -> Raw {
        let mut raw = self.u64(text.len() as u64);
        raw.0.extend(text.as_bytes());
        raw
    }

    /// A tensor entry at offset 0; `dims` innermost first, as in the file.
    fn tensor(self, name: &str, n_dims: u32, dims: &[u64], type_id: u32) -> Raw {
        let raw = self.str(name).u32(n_dims);
        dims.iter().fold(raw, |raw, &d| raw.u64(d)).u32(type_id).u64(0)
    }

    fn data(mut self, n: usize) -> Raw {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }
}

fn open(bytes: Vec<u8>) -> Result<GgufFile, GgufError> {
    GgufFile::from_source("t.gguf", Arc::new(bytes))
}

/// The message of the refusal, which must come at once and hold every one of `parts`.
fn refused(raw: Raw, parts: &[&str]) -> String {
    let start = Instant::now();
    let error = open(raw.0).err().expect("the file must be refused").to_string();
    assert!(
        start.elapsed() < Duration::from_millis(50),
        "took {:?}",
        start.elapsed()
    );
    for part in std::iter::once(&"t.gguf").chain(parts) {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
    error
}

fn temp(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("glia-gguf-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn counts_beyond_the_file_are_refused() {
    refused(
        Raw::new(0, 500_000_000),
        &["metadata count 500000000 cannot fit in a 24-byte file"],
    );
    refused(
        Raw::new(1 << 63, 0),
        &["tensor count 9223372036854775808 cannot fit in a 24-byte file"],
    );
    // The product with the size of an entry would wrap.
    refused(Raw::new(1 << 58, 0), &["tensor count 288230376151711744 cannot fit"]);
}

#[test]
fn string_lengths_beyond_the_file_are_refused() {
    refused(
        Raw::new(0, 1).u64(0xFFFF_FFFF_FFFF).data(8),
        &["a metadata key at byte 32", "281474976710655"],
    );
    refused(
        Raw::new(0, 1).u64(u64::MAX).data(8),
        &["a metadata key at byte 32", "18446744073709551615", "ends at byte 40"],
    );
}

#[test]
fn array_lengths_beyond_the_file_are_refused() {
    for count in [1u64 << 62, 1 << 63] {
        let raw = Raw::new(0, 1).str("a").u32(9).u32(4).u64(count);
        refused(raw, &["array length of `a`", &count.to_string(), "49-byte file"]);
    }
    let nested = Raw::new(0, 1).str("a").u32(9);
    let nested = (0..1000).fold(nested, |raw, _| raw.u32(9).u64(1));
    refused(nested, &["a: ", "nested too deeply"]);
}

#[test]
fn dimensions_whose_product_wraps_are_refused() {
    let raw = Raw::new(1, 0).tensor("w", 2, &[u64::MAX, 2], 0).data(64);
    refused(raw, &["`w`", "[2, 18446744073709551615]", "overflow"]);
    let raw = Raw::new(1, 0).tensor("w", 2, &[1152, 4_398_046_511_105], 0).data(64);
    refused(raw, &["`w`", "[4398046511105, 1152]", "20266198323171840"]);
    let raw = Raw::new(1, 0).tensor("w", 3, &[1 << 32, 1 << 31, 4], 0).data(64);
    refused(raw, &["`w`", "overflow"]);
}

#[test]
fn more_than_four_dimensions_are_refused_and_none_is_a_scalar() {
    let raw = Raw::new(1, 0).tensor("w", 9, &[1; 9], 0).data(64);
    refused(raw, &["`w`", "n_dims 9 exceeds 4"]);
    let raw = Raw::new(1, 0).tensor("w", u32::MAX, &[], 0).data(64);
    refused(raw, &["`w`", "n_dims 4294967295 exceeds 4"]);
    let file = open(Raw::new(1, 0).tensor("w", 0, &[], 0).data(4).0).unwrap();
    assert_eq!(file.tensor("w").unwrap().shape().rank(), 0);
}

#[test]
fn alignment_must_be_a_power_of_two() {
    for bad in [0u32, 3, 1 << 21, u32::MAX] {
        let raw = Raw::new(0, 1).str("general.alignment").u32(4).u32(bad);
        refused(
            raw,
            &[
                "general.alignment",
                "power of two from 1 to 1048576",
                &format!("not {bad}"),
            ],
        );
    }
    assert!(open(Raw::new(0, 1).str("general.alignment").u32(4).u32(1).0).is_ok());
}

#[test]
fn data_beyond_the_file_are_refused() {
    let raw = Raw::new(1, 0).tensor("w", 2, &[4096, 4096], 2).data(100);
    refused(raw, &["`w`", "needs 9437184 bytes", "the file has 196 bytes"]);
}

#[test]
fn short_files_are_refused() {
    let header = Raw::new(0, 0).0;
    for len in [0, 1, 4, 8, 23] {
        refused(Raw(header[..len].to_vec()), &[&format!("ends at byte {len}")]);
    }
}

#[test]
fn version_1_is_refused_by_name() {
    let mut raw = Raw::new(0, 1).u64(0);
    raw.0[4] = 1;
    refused(raw, &["version 1 is not supported", "convert"]);
    refused(Raw::new(0, 1).u64(0).u32(0).data(8), &["key is empty"]);
}

#[test]
fn names_that_occur_twice_are_refused() {
    let raw = Raw::new(2, 0)
        .tensor("blk.0.attn_q.weight", 1, &[1], 0)
        .tensor("blk.0.attn_q.weight", 1, &[1], 0);
    refused(raw.data(64), &["`blk.0.attn_q.weight`", "twice"]);
    let raw = Raw::new(0, 2).str("k").u32(4).u32(1).str("k").u32(4).u32(2);
    refused(raw, &["k: ", "twice"]);
}

#[test]
fn unsupported_types_are_listed_and_explained() {
    for (id, says) in [
        (41, "type 41 (Q1_0) is not supported"),
        (31, "Q4_0_4_4"),
        (200, "type 200 is unknown"),
    ] {
        let file = open(Raw::new(1, 0).tensor("w", 2, &[32, 2], id).data(64).0).unwrap();
        assert_eq!(file.tensors()[0].name, "w");
        let error = file.tensor("w").err().unwrap().to_string();
        for part in ["t.gguf", "`w`", says, "supported: F32, F16, Q4_0", "MXFP4", "Q4_K"] {
            assert!(error.contains(part), "`{error}` does not say `{part}`");
        }
    }
    for (id, dtype) in [(39, DType::MXFP4), (40, DType::NVFP4), (20, DType::IQ4_NL)] {
        let file = open(Raw::new(1, 0).tensor("w", 1, &[256], id).data(1024).0).unwrap();
        assert_eq!(file.tensor("w").unwrap().dtype(), dtype);
    }
}

#[test]
fn large_vocabularies_are_read_quickly() {
    let strings = |n: usize| WriteValue::Strs((0..n).map(|i| format!("t{i}")).collect());
    let mut w = GgufWriter::new();
    w.key("tokenizer.ggml.tokens", strings(260_000))
        .key("tokenizer.ggml.merges", strings(500_000));
    let bytes = w.finish();
    let start = Instant::now();
    let file = open(bytes).unwrap();
    // A second on one core; unoptimised builds on busy machines get more.
    let budget = if cfg!(debug_assertions) { 5 } else { 1 };
    assert!(start.elapsed() < Duration::from_secs(budget), "{:?}", start.elapsed());
    assert_eq!(file.opt_array("tokenizer.ggml.merges").unwrap().unwrap().len(), 500_000);
}

#[test]
fn pointers_and_pages_are_called_what_they_are() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4000000000\n";
    refused(Raw(pointer.into()), &["Git LFS pointer", "git lfs pull"]);
    refused(Raw(b"<!DOCTYPE html><html>".to_vec()), &["HTML"]);
    refused(Raw(b"PK\x03\x04 something".to_vec()), &["does not begin with `GGUF`"]);
}

fn part(no: u32, tensor: &str) -> Vec<u8> {
    let mut w = GgufWriter::new();
    w.key("split.no", WriteValue::U32(no))
        .key("split.count", WriteValue::U32(3))
        .tensor(tensor, DType::F32, &[1], &[0; 4]);
    w.finish()
}

#[test]
fn any_part_finds_its_set_and_other_names_are_explained() {
    let folder = temp("split");
    let path = |n: u32| folder.join(format!("m-{n:05}-of-00003.gguf"));
    let parts: Vec<Vec<u8>> = (0..3).map(|n| part(n, &format!("w{n}"))).collect();
    (1..=3).for_each(|n| std::fs::write(path(n), &parts[n as usize - 1]).unwrap());
    for n in 1..=3 {
        let file = GgufFile::open(&path(n), true).unwrap();
        assert_eq!((file.n_parts(), file.tensors().len()), (3, 3));
    }
    let says = |path: &Path, parts: &[&str]| {
        let error = GgufFile::open(path, true).err().unwrap().to_string();
        parts
            .iter()
            .for_each(|p| assert!(error.contains(p), "`{error}` does not say `{p}`"));
    };
    std::fs::write(folder.join("cat.gguf"), parts.concat()).unwrap();
    says(
        &folder.join("cat.gguf"),
        &["cat.gguf", "split.count = 3", "joined with cat", "llama-gguf-split"],
    );
    std::fs::write(folder.join("x.gguf"), &parts[0]).unwrap();
    says(&folder.join("x.gguf"), &["x.gguf", "split.count = 3", "renamed"]);
    std::fs::write(path(3), part(2, "w0")).unwrap();
    says(&path(1), &["`w0`", "twice", "m-00003-of-00003"]);
    std::fs::remove_file(path(2)).unwrap();
    says(&path(1), &["part 2 is missing", "m-00002-of-00003.gguf"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn sizes_beyond_32_bits_are_exact() {
    let shape = Shape::try_new(&[65536, 65536]).unwrap();
    for dtype in (0..64).filter_map(types::dtype) {
        let bytes = (1u64 << 32) / dtype.block_elems() as u64 * dtype.block_bytes() as u64;
        assert_eq!(tensor_bytes(dtype, &shape).unwrap() as u64, bytes, "{dtype}");
    }
    let folder = temp("sparse");
    let path = folder.join("m.gguf");
    let n = (1u64 << 31) + 32;
    let header = Raw::new(1, 0).tensor("w", 1, &[n], 8).data(0).0;
    std::fs::write(&path, &header).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(header.len() as u64 + n / 32 * 34).unwrap();
    let gguf = GgufFile::open(&path, true).unwrap();
    assert_eq!(gguf.tensor("w").unwrap().size_bytes() as u64, n / 32 * 34);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn sets_that_contradict_themselves_are_refused() {
    let folder = temp("contradiction");
    let path = |n: u32| folder.join(format!("m-{n:05}-of-00002.gguf"));
    let write = |no: u32, count: WriteValue, total: u32| {
        let mut w = GgufWriter::new();
        w.key("split.no", WriteValue::U32(no))
            .key("split.count", count)
            .key("split.tensors.count", WriteValue::U32(total))
            .tensor(&format!("w{no}"), DType::F32, &[1], &[0; 4]);
        std::fs::write(path(no + 1), w.finish()).unwrap();
    };
    let says = |parts: &[&str]| {
        let error = GgufFile::open(&path(1), true).err().unwrap().to_string();
        parts
            .iter()
            .for_each(|p| assert!(error.contains(p), "`{error}` does not say `{p}`"));
    };
    write(0, WriteValue::U32(2), 2);
    write(1, WriteValue::U32(2), 2);
    assert_eq!(GgufFile::open(&path(2), true).unwrap().tensors().len(), 2);
    write(0, WriteValue::U32(2), 3);
    says(&["split.tensors.count = 3", "hold 2 tensors"]);
    write(0, WriteValue::Str("2".into()), 2);
    says(&["split.count must be a whole number, not \"2\""]);
    write(0, WriteValue::I32(-2), 2);
    says(&["split.count must be a whole number, not -2"]);
    write(0, WriteValue::U64(u64::MAX), 2);
    says(&["split.count = 18446744073709551615"]);
    write(0, WriteValue::U32(3), 2);
    says(&["split.count = 3", "-of-00003.gguf"]);
    std::fs::remove_dir_all(folder).unwrap();
}
