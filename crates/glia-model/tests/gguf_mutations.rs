//! Damaged GGUF headers by the thousand: each is read or refused, without a panic, a pause or a heap that grows.
//!
//! Mutants are made from fixed seeds, so that a number in a message brings a mutant back.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use glia_core::ByteSource;
use glia_model::gguf::{GgufFile, Value};
use glia_model::{ModelFile, Options};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Mutants of each file.
const N_MUTANTS: u64 = 10_000;
/// The longest that one may take.
const MAX_TIME: Duration = Duration::from_secs(1);
/// The most heap that one may take, beyond the size of its file.
const MAX_HEAP_BYTES: usize = 64 << 20;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A file whose header is damaged in place; the data behind it are never looked at.
#[derive(Debug)]
struct Mutant {
    bytes: Vec<u8>,
    /// What is left of the file.
    len: usize,
}

impl ByteSource for Mutant {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Mutant {
    /// One or two faults within the first `header` bytes. Those that nearly always make a file unreadable (shifted,
    /// cut) are rarer, so that enough mutants get as far as their tensors.
    fn damage(&mut self, header: usize, random: &mut Random) {
        for _ in 0..1 + random.below(2) {
            // The counts, the first keys, the tensor table at the end, or anything between.
            let at = match random.below(16) {
                0 => random.below(24),
                1..=4 => random.below(header.min(1024)),
                5..=8 => header - 1 - random.below(header.min(2560)),
                _ => random.below(header),
            };
            let n_left = header - at;
            match random.below(16) {
                0..=4 => self.bytes[at] ^= 1 << random.below(8),
                5..=7 => self.bytes[at] = random.next() as u8,
                8..=11 => {
                    let n = extreme(random);
                    let width = [1, 2, 4, 8][random.below(4)].min(n_left);
                    self.bytes[at..at + width].copy_from_slice(&n.to_le_bytes()[..width]);
                }
                12 => {
                    // Bytes are missing: what follows moves up.
                    let n = (1 + random.below(16)).min(n_left);
                    self.bytes.copy_within(at + n..header, at);
                }
                13 => {
                    // Bytes too many: what follows moves down.
                    let n = (1 + random.below(16)).min(n_left);
                    self.bytes.copy_within(at..header - n, at + n);
                }
                14 => {
                    let from = random.below(header);
                    let n = random.below(64).min(n_left).min(header - from);
                    self.bytes.copy_within(from..from + n, at);
                }
                _ => {
                    self.len = self.len.min(if random.below(2) == 0 {
                        at
                    } else {
                        random.below(self.len)
                    })
                }
            }
        }
    }
}

/// Numbers at which arithmetic goes wrong, and neighbours of small ones.
fn extreme(random: &mut Random) -> u64 {
    let power = 1u64 << random.below(64);
    match random.below(6) {
        0 => u64::MAX,
        1 => power,
        2 => power.wrapping_sub(1),
        3 => power.wrapping_neg(),
        4 => random.next(),
        _ => random.below(64) as u64,
    }
}

/// Opens a file and reads all that its header offers; gives whether it was accepted.
fn read(source: Arc<Mutant>) -> bool {
    let file = match GgufFile::from_source("mutant.gguf", source) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().contains("mutant.gguf"), "{error}");
            return false;
        }
    };
    let mut text = String::new();
    for (key, value) in file.metadata() {
        text.clear();
        let _ = write!(text, "{key} {value}");
        if let Value::Array(array) = value {
            assert_eq!(array.iter().count(), array.len(), "{key}");
        }
    }
    for info in file.tensors() {
        match file.tensor(&info.name) {
            Ok(tensor) => assert_eq!(tensor.size_bytes(), info.size_bytes, "{}", info.name),
            Err(error) => assert!(error.to_string().contains(&info.name), "{error}"),
        }
    }
    true
}

/// Goes on from the header as opening a model does: configuration, graph, tokenizer, template.
fn use_model(source: Arc<Mutant>) {
    let Ok(file) = GgufFile::from_source("mutant.gguf", source) else {
        return;
    };
    let Ok(model) = ModelFile::from_gguf(file) else { return };
    let options = Options::default();
    let _ = model.max_context(&options);
    let _ = model.graph();
    assert!(!model.metadata().is_empty());
    let Ok(tokenizer) = model.tokenizer(&options) else {
        return;
    };
    let _ = model.chat_template(&tokenizer);
    let text = "To be, or not to be: \u{1f600}\n\n  2024";
    if let Ok(ids) = tokenizer.encode(text, true, true) {
        let _ = tokenizer.decode(&ids, false).unwrap();
    }
}

/// Runs every mutant of a file on a thread of its own, so that one that hangs is named.
fn check(path: &Path) {
    let original = std::fs::read(path).unwrap();
    let file = GgufFile::open(path, true).unwrap();
    let header = file.tensors().iter().map(|t| t.offset).min().unwrap();
    drop(file);
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    println!("{name}: seeds 0 to {}, {header} bytes of header", N_MUTANTS - 1);
    let (started, begins) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let len = original.len();
        let mut mutant = Arc::new(Mutant { bytes: original, len });
        let pristine = mutant.bytes[..header].to_vec();
        let mut n_accepted = 0u64;
        for seed in 0..N_MUTANTS {
            let bytes = Arc::get_mut(&mut mutant).expect("an earlier mutant is still held");
            bytes.bytes[..header].copy_from_slice(&pristine);
            bytes.len = len;
            bytes.damage(header, &mut Random(seed));
            started.send(seed).expect("the test waits");
            HEAP.reset_peak_usage();
            let before = HEAP.current_usage();
            n_accepted += u64::from(read(Arc::clone(&mutant)));
            use_model(Arc::clone(&mutant));
            let used = HEAP.peak_usage().saturating_sub(before);
            assert!(used <= len + MAX_HEAP_BYTES, "seed {seed} took {used} bytes of heap");
        }
        n_accepted
    });
    let mut last = None;
    loop {
        match begins.recv_timeout(MAX_TIME) {
            Ok(seed) => last = Some(seed),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name}: seed {last:?} took longer than {MAX_TIME:?}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let n_accepted = worker.join().unwrap_or_else(|_| panic!("{name}: seed {last:?} failed"));
    println!("{name}: {n_accepted} of {N_MUTANTS} accepted");
    assert_eq!(last, Some(N_MUTANTS - 1));
    // Both ends of the reader are reached: what is refused, and what is done with what is accepted.
    assert!(
        (N_MUTANTS / 20..N_MUTANTS * 19 / 20).contains(&n_accepted),
        "{n_accepted} accepted"
    );
}

/// Files of few bytes that claim to hold far more are refused within this much heap.
const MAX_CLAIM_BYTES: usize = 10 << 20;

/// A header of counts, and what follows it.
fn check_claim(n_tensors: u64, n_keys: u64, rest: &[u8]) {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(n_tensors.to_le_bytes());
    bytes.extend(n_keys.to_le_bytes());
    bytes.extend(rest);
    let len = bytes.len();
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    assert!(
        !read(Arc::new(Mutant { bytes, len })),
        "{n_tensors} tensors, {n_keys} keys"
    );
    let used = HEAP.peak_usage().saturating_sub(before);
    assert!(
        used < MAX_CLAIM_BYTES,
        "{n_tensors} tensors, {n_keys} keys: {used} bytes of heap"
    );
}

/// One test for all: the heap is counted for the whole program.
#[test]
fn damaged_headers_are_read_or_refused() {
    check_claim(0, 500_000_000, &[]);
    check_claim(1 << 58, 0, &[]);
    check_claim(1 << 63, 0, &[]);
    for n in [1 << 30, 1 << 48, 1 << 62, 1 << 63, u64::MAX] {
        // The length of a key; the length of an array of u32 under the key `a`.
        check_claim(0, 1, &n.to_le_bytes());
        let array = [
            &1u64.to_le_bytes()[..],
            b"a",
            &9u32.to_le_bytes(),
            &4u32.to_le_bytes(),
            &n.to_le_bytes(),
        ];
        check_claim(0, 1, &array.concat());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    check(&root.join("assets/bard-3.7m-q8_0.gguf"));
    check(&root.join("goldens/quants/all-types.gguf"));
}
