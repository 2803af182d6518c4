//! The pre-tokenizers that `tokenizer.ggml.pre` can name: a table of names, patterns and flags.
//!
//! The patterns are those of the models' own `tokenizer.json`; look-ahead over blanks is handled by the splitter.

use super::split::Step;
use Step::{DigitsFromRight, DigitsFromRightAtBoundary, Re};

/// What a pre-tokenizer name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreTokenizer {
    /// Every name of it.
    pub(crate) names: &'static [&'static str],
    /// How text is cut.
    pub(crate) steps: &'static [Step],
    /// A piece that is a token becomes that token, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// Tokens are UTF-8 with `\u{2581}` for a blank and `<0xXX>` byte tokens, not the GPT-2 byte alphabet.
    pub(crate) raw_utf8: bool,
    /// A run of newlines that is a token becomes that token.
    pub(crate) whole_newlines: bool,
    /// Begin with BOS unless the file says otherwise.
    pub(crate) add_bos: bool,
    /// End with SEP unless the file says otherwise.
    pub(crate) add_sep: bool,
    /// There is no BOS token, whatever the file's default.
    pub(crate) no_bos: bool,
}

const PLAIN: PreTokenizer = PreTokenizer {
    names: &[],
    steps: &[],
    ignore_merges: false,
    raw_utf8: false,
    whole_newlines: false,
    add_bos: false,
    add_sep: false,
    no_bos: false,
};

/// The pre-tokenizer of a name.
pub(crate) fn find(name: &str) -> Option<&'static PreTokenizer> {
    PRE_TOKENIZERS.iter().find(|p| p.names.contains(&name))
}

/// Every known name, comma-separated.
pub(crate) fn supported() -> String {
    PRE_TOKENIZERS
        .iter()
        .flat_map(|p| p.names)
        .copied()
        .collect::<Vec<_>>()
        .join(", ")
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const DEEPSEEK3_CJK: &str = r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+";
const DEEPSEEK_CJK: &str = r"[\u{4E00}-\u{9FA5}\u{0800}-\u{4E00}\u{AC00}-\u{D7FF}]+";
const BLOOM: &str = r" ?[^(\s|.,!?\u{2026}\u{3002}\u{FF0C}\u{3001}\u{0964}\u{06D4}\u{060C})]+";
const YOUTU: &str = r"[\u{AC00}-\u{D7A3}\u{3131}-\u{318E}]+|[\u{FF01}\u{2026}\u{201C}\u{201D}\u{2018}\u{2019}\u{2014}\u{FF1A}\u{FF1B}\u{FF0C}\u{3001}-\u{303F}\u{FE30}-\u{FE4F}]+|[\u{3105}-\u{312F}]+|[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";
const YOUTU_CASED: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const MINICPM: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const AFMOE_CJK: &str = r"[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{8C48}-\u{FAFF}\u{3040}-\u{309F}\u{30A0}-\u{30FF}\u{FF65}-\u{FF9F}\u{2F00}-\u{2FDF}\u{E40}-\u{E7F}\u{E80}-\u{EFF}\u{1780}-\u{17FF}\u{1000}-\u{109F}\u{AA60}-\u{AA7F}\u{A9E0}-\u{A9FF}\u{AC00}-\u{D7AF}\u{1100}-\u{11FF}]+";

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["default"],
        steps: &[
            Re(r"[\p{P}\$\+<=>\^~\|]+"),
            Re(GPT2),
            Re(r"\p{N}+"),
            Re(r"[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        steps: &[Re(GPT2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["jina-v1-en", "jina-v2-code", "roberta-bpe"],
        steps: &[Re(GPT2)],
        add_sep: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[Re(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["dbrx", "smaug-bpe"],
        steps: &[Re(LLAMA3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["chatglm-bpe"],
        steps: &[Re(LLAMA3)],
        no_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["glm4", "glm5"],
        steps: &[Re(LLAMA3)],
        no_bos: true,
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["jais-2"],
        steps: &[Re(JAIS2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        steps: &[Re(QWEN2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["qwen35"],
        steps: &[Re(QWEN35)],
        ..PLAIN
    },
    PreTokenizer {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        steps: &[Re(r"\p{N}"), Re(GPT2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["falcon"],
        steps: &[Re(r"[\p{P}\$\+<=>\^~\|`]+"), Re(GPT2), Re(r"[0-9][0-9][0-9]")],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        steps: &[
            Re(r"[\r\n]"),
            Re(DEEPSEEK_LETTERS),
            Re(r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+"),
            Re(r"\s+$"),
            Re(DEEPSEEK_CJK),
            Re(r"\p{N}+"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        steps: &[
            Re(r"[\r\n]"),
            Re(r"\s?\p{L}+"),
            Re(r"\s?\p{P}+"),
            Re(DEEPSEEK_CJK),
            Re(r"\p{N}"),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        steps: &[Re(r"\p{N}{1,3}"), Re(DEEPSEEK3_CJK), Re(DEEPSEEK3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["spark2_5"],
        steps: &[Re(r"\p{N}{1,3}"), Re(DEEPSEEK3_CJK), Re(SPARK), Re(r"\p{N}")],
        ..PLAIN
    },
    PreTokenizer {
        names: &["youtu"],
        steps: &[Re(YOUTU), Re(YOUTU_CASED)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["tekken"],
        steps: &[Re(TEKKEN)],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        steps: &[Re(GPT4O)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["granite-embed-multi-97m"],
        steps: &[Re(GPT4O)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["tiny_aya", "cohere2moe"],
        steps: &[DigitsFromRightAtBoundary, Re(GPT4O)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["kimi-k2"],
        steps: &[Re(KIMI)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["superbpe"],
        steps: &[Re(r"\p{N}+"), DigitsFromRight],
        ..PLAIN
    },
    PreTokenizer {
        names: &["bloom", "poro-chat", "gpt3-finnish"],
        steps: &[Re(BLOOM)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["viking"],
        steps: &[Re(BLOOM), Re(r"\p{N}")],
        ..PLAIN
    },
    PreTokenizer {
        names: &["chameleon"],
        steps: &[
            Re(r"<sentinel:[0-9]+>"),
            Re(r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            Re(r"([\t\n]|    |  )"),
            Re(r"\p{N}"),
            Re(r"[\p{P}!-/:-@\[-`{-~]"),
            Re(GPT2),
        ],
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        steps: &[Re(BAILING)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["seed-coder"],
        steps: &[Re(SEED)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["ufakzeka"],
        steps: &[Re(UFAKZEKA)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["exaone-moe"],
        steps: &[Re(EXAONE_MOE)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["minicpm5"],
        steps: &[Re(r"\p{N}{1,3}"), Re(MINICPM)],
        ignore_merges: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["laguna"],
        steps: &[Re(r"[^\n]+|[\n]+"), Re(QWEN2)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["afmoe"],
        steps: &[DigitsFromRight, Re(AFMOE_CJK), Re(DEEPSEEK3)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["gemma4", "granite-embed-multi-311m"],
        steps: &[Re(r"[^\n]+|[\n]+")],
        raw_utf8: true,
        whole_newlines: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["sarvam-moe"],
        steps: &[Re(r"[^\n]+|[\n]+")],
        raw_utf8: true,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_names_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for pre in PRE_TOKENIZERS {
            crate::tokenizer::split::Splitter::new(pre.steps).expect(pre.names[0]);
            assert!(pre.names.iter().all(|n| seen.insert(*n)), "{:?}", pre.names);
        }
        assert!(seen.len() > 80, "{}", seen.len());
    }
}
