//! Headers of files of weights: what they hold, and what is wrong with them.

use terrace_estimate::{GgufHeader, ModelFacts, ModelShape, ModelWorkload, ShardIndex, TensorSums, read_safetensors};

/// A safetensors file with this header and so many bytes of tensors.
pub fn safetensors(header: &str, bytes: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; bytes]].concat()
}

/// Two tensors and a text.
pub const HEADER: &str = r#"{"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [64, 68]}}"#;

/// A GGUF file, written piece by piece.
#[derive(Clone)]
pub struct Gguf(pub Vec<u8>);

impl Gguf {
    pub fn new(tensors: u64, entries: u64) -> Self {
        let mut file = Self(b"GGUF".to_vec());
        file.number(3, 4).number(tensors, 8).number(entries, 8);
        file
    }

    pub fn number(&mut self, number: u64, bytes: usize) -> &mut Self {
        self.0.extend(&number.to_le_bytes()[..bytes]);
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64, 8).0.extend(text.as_bytes());
        self
    }

    /// A number of 32 bits.
    pub fn entry(&mut self, name: &str, number: u64) -> &mut Self {
        self.text(name).number(4, 4).number(number, 4)
    }

    pub fn tensor(&mut self, name: &str, lengths: &[u64], kind: u64) -> &mut Self {
        self.text(name).number(lengths.len() as u64, 4);
        lengths.iter().for_each(|length| _ = self.number(*length, 8));
        self.number(kind, 4).number(0, 8)
    }
}

/// A small Llama of two layers with grouped queries.
pub fn llama() -> Gguf {
    let mut file = Gguf::new(3, 10);
    file.text("general.architecture").number(8, 4).text("llama");
    file.entry("llama.block_count", 2).entry("llama.embedding_length", 64).entry("llama.feed_forward_length", 256);
    file.entry("llama.attention.head_count", 4).entry("llama.context_length", 512).entry("llama.expert_count", 0);
    // A number for each layer.
    file.text("llama.attention.head_count_kv").number(9, 4).number(5, 4).number(2, 8).number(2, 4).number(2, 4);
    file.text("tokenizer.ggml.tokens").number(9, 4).number(8, 4).number(3, 8).text("a").text("b").text("");
    // A list of lists of numbers, which is skipped.
    file.text("other").number(9, 4).number(9, 4).number(1, 8).number(5, 4).number(2, 8).number(7, 8);
    file.tensor("token_embd.weight", &[64, 3], 0).tensor("blk.0.ffn_gate.weight", &[256, 64], 12);
    file.tensor("output.weight", &[64, 3], 8);
    file
}

#[test]
fn tensors_of_a_safetensors_file_are_summed() {
    let file = safetensors(HEADER, 68);
    let sums = read_safetensors("a", &file[..], Some(file.len() as u64)).unwrap();
    assert_eq!(sums, TensorSums { tensors: 2, elements: 33, bytes: 68, integers: 0 });
    // The length need not be known, and the tensors' bytes are not read.
    assert_eq!(read_safetensors("a", &file[..file.len() - 68], None).unwrap(), sums);
}

#[test]
fn what_is_wrong_with_a_safetensors_file_is_one_error() {
    let entry = |entry: &str| safetensors(&format!(r#"{{"a": {entry}}}"#), 4);
    let of = |dtype: &str, shape: &str, offsets: &str| {
        entry(&format!(r#"{{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}"#))
    };
    let bad = [
        (vec![1, 2], "header length", "cannot be read"),
        ((4u64 << 30).to_le_bytes().to_vec(), "header length", "4294967296 bytes, at most 100000000"),
        ([&[200, 0, 0, 0, 0, 0, 0, 0][..], b"{}"].concat(), "header", "the file is cut: 2 bytes of a header of 200"),
        (safetensors("[]", 0), "header", "an object with an entry for each tensor"),
        (safetensors("{", 0), "header", "EOF"),
        (entry("{}"), "header", "tensor `a`: missing field `dtype`"),
        (of("F7", "[1]", "[0, 4]"), "header", "tensor `a`: its dtype is not known"),
        (of("F32", "[1]", "[4, 0]"), "header", "ends before it begins"),
        (of("F32", "[2]", "[0, 4]"), "header", "2 elements of f32 are not 4 bytes"),
        (of("F32", "[18446744073709551615, 2]", "[0, 4]"), "header", "more elements than 2^64"),
        (of("F32", "[-1]", "[0, 4]"), "header", "tensor `a`"),
        (of("F32", "[1]", "[4, 8]"), "data_offsets", "overlap or leave gaps"),
        (of("F32", "[4]", "[0, 16]"), "length", "the file has 74 bytes, its header describes 86"),
    ];
    for (file, field, what) in bad {
        let error = read_safetensors("m.safetensors", &file[..], Some(file.len() as u64)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("m.safetensors: {field}: ")) && text.contains(what), "{what}: {text}");
    }
}

#[test]
fn an_index_names_files_of_its_own_folder() {
    let read = |text: &str| ShardIndex::read("index.json", text.as_bytes());
    let index =
        read(r#"{"metadata": {"total_size": 5e3}, "weight_map": {"a": "1.safetensors", "b": "1.safetensors"}}"#)
            .unwrap();
    assert_eq!((index.files.len(), index.total_bytes), (1, Some(5000)));
    assert_eq!(read(r#"{"weight_map": {"a": "1"}}"#).unwrap().total_bytes, None);
    let bad = [
        (r#"{"weight_map": {"a": "../secret"}}"#, "`../secret` is no name of a file"),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "is no name of a file"),
        (r#"{"weight_map": {"a": ""}}"#, "is no name of a file"),
        (r#"{"weight_map": {}}"#, "names no file"),
        (r#"{"weight_map": {"a": 1}}"#, "expected a string"),
        (r#"{"metadata": {"total_size": -1}, "weight_map": {"a": "b"}}"#, "is no whole number"),
        (r#"{}"#, "missing field `weight_map`"),
    ];
    for (text, what) in bad {
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with("index.json: ") && error.contains(what), "{error}");
    }
}

#[test]
fn a_gguf_says_tensors_and_shape() {
    let file = llama();
    let header = GgufHeader::read("m.gguf", &file.0[..]).unwrap();
    let bytes = 64 * 3 * 4 + 256 * 64 / 256 * 144 + 64 * 3 / 32 * 34;
    assert_eq!(header.tensors, TensorSums { tensors: 3, elements: 64 * 3 * 2 + 256 * 64, bytes, integers: 0 });
    let shape = header.shape.clone().unwrap();
    assert_eq!((shape.name.as_str(), shape.hidden, shape.vocabulary, shape.tied), ("llama", 64, 3, false));
    assert_eq!(shape.positions, Some(512));
    let facts = ModelFacts { shape: header.shape, tensors: Some(header.tensors) };
    let ours = facts.estimate("m.gguf", &ModelWorkload::inference(100)).unwrap();
    assert_eq!((ours.weights_bytes, ours.parameters), (bytes, header.tensors.elements));
    assert_eq!(ours.kv_cache_bytes, Some(100 * 2 * 2 * (2 * 16) * 2));
    assert_eq!(header.notes, Vec::<String>::new());
    // A kind without attention has weights only.
    let mut mamba = Gguf::new(1, 1);
    mamba.text("general.architecture").number(8, 4).text("mamba").tensor("a", &[2], 1);
    let header = GgufHeader::read("m.gguf", &mamba.0[..]).unwrap();
    assert!(header.shape.is_none() && header.notes[0].contains("only weights are counted"));
    let facts = ModelFacts { shape: None, tensors: Some(header.tensors) };
    let ours = facts.estimate("m.gguf", &ModelWorkload::inference(100)).unwrap();
    assert_eq!((ours.weights_bytes, ours.kv_cache_bytes, ours.activation_bytes, ours.total_bytes), (4, None, None, 4));
}

#[test]
fn latent_attention_of_a_gguf_caches_the_latent() {
    let mut file = Gguf::new(0, 12);
    file.text("general.architecture").number(8, 4).text("deepseek2");
    let fields = [
        ("block_count", 1),
        ("embedding_length", 64),
        ("feed_forward_length", 128),
        ("vocab_size", 10),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 4),
        ("attention.key_length", 24),
        ("attention.value_length", 16),
        ("attention.kv_lora_rank", 32),
        ("rope.dimension_count", 8),
        ("attention.sliding_window", 8),
    ];
    fields.into_iter().for_each(|(name, number)| _ = file.entry(&format!("deepseek2.{name}"), number));
    let header = GgufHeader::read("m.gguf", &file.0[..]).unwrap();
    let facts = ModelFacts { shape: header.shape, tensors: None };
    assert_eq!(facts.estimate("m", &ModelWorkload::inference(5)).unwrap().kv_cache_bytes, Some(5 * (32 + 8) * 2));
    assert!(header.notes[0].contains("window"), "{:?}", header.notes);
}

#[test]
fn what_is_wrong_with_a_gguf_is_one_error() {
    let named = |kind: u64, value: &[u64]| {
        let mut file = Gguf::new(0, 1);
        file.text("llama.block_count").number(kind, 4);
        value.iter().for_each(|number| _ = file.number(*number, 8));
        file
    };
    let nested = |depth: usize| {
        let mut file = Gguf::new(0, 1);
        file.text("other").number(9, 4);
        (0..depth).for_each(|_| _ = file.number(9, 4).number(1, 8));
        file
    };
    let tensor = |lengths: &[u64], kind| Gguf::new(1, 0).tensor("t", lengths, kind).clone();
    let mut version = Gguf::new(0, 0);
    version.0[4] = 1;
    let mut heads = Gguf::new(0, 4);
    heads.text("general.architecture").number(8, 4).text("llama").entry("llama.attention.head_count", 3);
    heads.entry("llama.embedding_length", 64).entry("llama.block_count", 1);
    let bad = [
        (Gguf(b"GGML".to_vec()), "magic", "is not `GGUF`"),
        (Gguf(b"GG".to_vec()), "magic", "the file is cut"),
        (version, "version", "1, only 2 and 3"),
        (Gguf::new(u64::MAX, 0), "tensor count", "at most 1048576"),
        (Gguf::new(0, 1 << 40), "metadata count", "at most 65536"),
        (Gguf::new(0, 1).number(1 << 40, 8).clone(), "metadata", "at most 65535"),
        (named(4, &[]), "llama.block_count", "the file is cut"),
        (named(6, &[0]), "llama.block_count", "is no whole number"),
        (named(11, &[u64::MAX]), "llama.block_count", "negative"),
        (named(5, &[u64::MAX]), "llama.block_count", "negative"),
        (named(13, &[0]), "llama.block_count", "is no whole number"),
        (named(9, &[u64::MAX, u64::MAX]), "llama.block_count", "is no type of metadata"),
        (Gguf::new(0, 1).text("other").number(13, 4).clone(), "other", "13 is no type of metadata"),
        (Gguf::new(0, 1).text("other").number(8, 4).number(u64::MAX, 8).clone(), "other", "at most 268435456"),
        (
            Gguf::new(0, 1).text("other").number(9, 4).number(0, 4).number(1 << 28, 8).clone(),
            "other",
            "the file is cut",
        ),
        (nested(6), "other", "more than 4 deep"),
        (tensor(&[1; 5], 0), "tensor `t`", "5 dimensions, at most 4"),
        (tensor(&[1 << 40, 1 << 40], 0), "tensor `t`", "more elements than 2^64"),
        (tensor(&[1 << 40, 1 << 23], 0), "tensor `t`", "more bytes than 2^64"),
        (tensor(&[1], 4), "tensor `t`", "4 is no type of tensors"),
        (tensor(&[33], 2), "tensor `t`", "rows of 33 elements are no whole blocks of q4_0"),
        (heads, "llama.attention.head_count", "do not divide a hidden size of 64"),
    ];
    for (file, field, what) in bad {
        let error = GgufHeader::read("m.gguf", &file.0[..]).expect_err(what);
        let text = error.to_string();
        assert!(text.starts_with(&format!("m.gguf: {field}: ")) && text.contains(what), "{what}: {text}");
    }
}

#[test]
fn packed_weights_are_as_many_as_the_shape_says() {
    // Eight weights of 4 bits in an integer of 32.
    let (shape, elements) = (Some(ModelShape::preset("gpt2").unwrap()), 124_439_808 / 8);
    let tensors = Some(TensorSums { tensors: 1, elements, bytes: 62_219_904, integers: elements });
    let ours = ModelFacts { shape, tensors }.estimate("gpt2", &ModelWorkload::inference(1)).unwrap();
    assert_eq!((ours.parameters, ours.weights_bytes), (124_439_808, 62_219_904));
}
