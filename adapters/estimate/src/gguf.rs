//! Headers of GGUF files: metadata and tensors, without their bytes.
//!
//! Promises upward: a few fields of the metadata are kept and the rest is skipped, so memory stays small whatever the
//! file says; every fault is one error that names the field. Asks from below: a reader of bytes.

use crate::config::from_value;
use crate::element::ElementType;
use crate::error::EstimateError;
use crate::model::ModelShape;
use crate::tensors::TensorSums;
use serde_json::{Map, Value, json};
use std::io::{self, Read};

/// The most bytes that metadata and tensor entries take together.
const MAX_BYTES: u64 = 1 << 28;
/// The most entries of metadata, and tensors.
const MAX_ENTRIES: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 20;
/// The most bytes of a name, and of a text that is kept.
const MAX_NAME: u64 = 65535;
/// The most elements of a list that is kept: one for each layer.
const MAX_LIST: u64 = 1 << 14;
/// How deep lists may stand in lists.
const MAX_DEPTH: u32 = 4;

/// Metadata that is kept, without the architecture's name in front, and the field that transformers has for it.
const WANTED: [(&str, &str); 21] = [
    ("vocab_size", "vocab_size"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.value_length", "value_length"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.key_length_mla", "key_length_mla"),
    ("attention.value_length_mla", "value_length_mla"),
    ("attention.sliding_window", "window"),
    ("rope.dimension_count", "qk_rope_head_dim"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("leading_dense_block_count", "first_k_dense_replace"),
];

/// Architectures whose files have a decoder of another kind.
const OTHERS: [&str; 6] = ["t5", "t5encoder", "mamba", "mamba2", "rwkv6", "rwkv7"];

/// What the header of a GGUF file says.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufHeader {
    /// All tensors.
    pub tensors: TensorSums,
    /// The model's shape, where the architecture has attention like Llama's.
    pub shape: Option<ModelShape>,
    /// What was left out or assumed.
    pub notes: Vec<String>,
}

impl GgufHeader {
    /// Reads the header. `file` names it in errors; nothing behind the header is read.
    ///
    /// # Errors
    /// Another magic number or version; counts and texts beyond all limits; a cut file; an unknown type of tensors.
    pub fn read(file: &str, input: impl Read) -> Result<Self, EstimateError> {
        let mut reader = HeaderReader { file, input: input.take(MAX_BYTES), field: "magic".into() };
        if &reader.array::<4>()? != b"GGUF" {
            return Err(reader.error("is not `GGUF`: this is no GGUF file"));
        }
        reader.field = "version".into();
        let version = reader.number(4)?;
        if !(2..=3).contains(&version) {
            return Err(reader.error(&format!("{version}, only 2 and 3 are read")));
        }
        reader.field = "tensor count".into();
        let tensors = reader.bounded(MAX_TENSORS)?;
        reader.field = "metadata count".into();
        let entries = reader.bounded(MAX_ENTRIES)?;
        let mut metadata = Metadata::default();
        for _ in 0..entries {
            reader.entry(&mut metadata)?;
        }
        let (mut sums, mut seen) = (TensorSums::default(), Seen::default());
        for _ in 0..tensors {
            sums = sums.plus(reader.tensor(&mut seen)?).ok_or_else(|| reader.error("more bytes than 2^64 in all"))?;
        }
        let (shape, notes) = metadata.shape(file, &seen)?;
        Ok(Self { tensors: sums, shape, notes })
    }
}

/// The metadata that is kept.
#[derive(Default)]
struct Metadata {
    architecture: String,
    /// Entries of the tokenizer's list.
    tokens: Option<u64>,
    /// Fields by transformers' names.
    fields: Map<String, Value>,
}

/// What names of tensors say of the model.
#[derive(Default)]
struct Seen {
    /// The output has a matrix of its own.
    output: bool,
    /// Feed-forward parts are gated.
    gate: bool,
}

impl Metadata {
    /// The shape that the fields describe.
    fn shape(mut self, file: &str, seen: &Seen) -> Result<(Option<ModelShape>, Vec<String>), EstimateError> {
        let mut notes = Vec::new();
        let architecture = &self.architecture;
        if OTHERS.contains(&architecture.as_str()) || !self.fields.contains_key("num_attention_heads") {
            notes.push(format!("architecture `{architecture}`: only weights are counted"));
            return Ok((None, notes));
        }
        for (name, value) in &mut self.fields {
            // A number for each layer: all of them together are what counts.
            let Some(list) = value.as_array() else { continue };
            let numbers: Vec<u64> = list.iter().filter_map(Value::as_u64).collect();
            let (sum, most) = (numbers.iter().map(|&n| u128::from(n)).sum::<u128>(), numbers.iter().max().copied());
            let layers = (numbers.len() as u128).max(1);
            if sum % layers != 0 {
                notes.push(format!("`{name}` differs from layer to layer: the most is counted for all"));
            }
            let mean = u64::try_from(sum / layers).unwrap_or(u64::MAX);
            *value = if sum % layers == 0 { mean.into() } else { most.into() };
        }
        let fields = &mut self.fields;
        if fields.remove("window").is_some() {
            notes.push("the window of attention is not counted: the cache holds all positions".into());
        }
        if let Some(tokens) = self.tokens {
            fields.entry("vocab_size").or_insert(tokens.into());
        }
        if let (Some(key), Some(value)) = (number(fields, "key_length_mla"), number(fields, "value_length_mla")) {
            let rope = number(fields, "qk_rope_head_dim").unwrap_or(0);
            fields.insert("qk_nope_head_dim".into(), key.saturating_sub(rope).into());
            fields.insert("v_head_dim".into(), value.into());
        } else if let (Some(key), true) = (number(fields, "head_dim"), fields.contains_key("kv_lora_rank")) {
            let rope = number(fields, "qk_rope_head_dim").unwrap_or(0);
            fields.insert("qk_nope_head_dim".into(), key.saturating_sub(rope).into());
            fields.insert("v_head_dim".into(), number(fields, "value_length").unwrap_or(key).into());
        }
        fields.insert("model_type".into(), "gguf".into());
        fields.insert("torch_dtype".into(), "bf16".into());
        fields.insert("tie_word_embeddings".into(), json!(!seen.output));
        fields.insert("terrace.gated".into(), json!(seen.gate));
        fields.insert("terrace.encoder".into(), json!(architecture.contains("bert")));
        let read = from_value(file, &Value::Object(self.fields));
        // Errors name the fields as the file does.
        let (mut shape, more) = read.map_err(|error| {
            let field = WANTED.iter().find(|(_, name)| *name == error.field).map(|(field, _)| *field);
            let field = field.map_or(error.field.clone(), |field| format!("{architecture}.{field}"));
            EstimateError { field, ..error }
        })?;
        shape.name = self.architecture;
        notes.extend(more);
        Ok((Some(shape), notes))
    }
}

fn number(fields: &Map<String, Value>, name: &str) -> Option<u64> {
    fields.get(name).and_then(Value::as_u64)
}

/// Reads the parts of a header, and knows what it is about to read.
struct HeaderReader<'a, R> {
    file: &'a str,
    input: io::Take<R>,
    field: String,
}

impl<R: Read> HeaderReader<'_, R> {
    fn error(&self, what: &str) -> EstimateError {
        EstimateError::new(self.file, &*self.field, what)
    }

    fn ends(&self, why: &io::Error) -> EstimateError {
        if why.kind() == io::ErrorKind::UnexpectedEof && self.input.limit() == 0 {
            return self.error(&format!("the header is beyond {MAX_BYTES} bytes"));
        }
        self.error(&format!("the file is cut or cannot be read: {why}"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EstimateError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|why| self.ends(&why))?;
        Ok(bytes)
    }

    /// A number of 1, 2, 4 or 8 bytes.
    fn number(&mut self, bytes: u64) -> Result<u64, EstimateError> {
        Ok(match bytes {
            1 => u64::from(self.array::<1>()?[0]),
            2 => u64::from(u16::from_le_bytes(self.array()?)),
            4 => u64::from(u32::from_le_bytes(self.array()?)),
            _ => u64::from_le_bytes(self.array()?),
        })
    }

    /// A number of 8 bytes that is at most `most`.
    fn bounded(&mut self, most: u64) -> Result<u64, EstimateError> {
        let number = self.number(8)?;
        if number > most {
            return Err(self.error(&format!("{number}, at most {most}")));
        }
        Ok(number)
    }

    fn text(&mut self) -> Result<String, EstimateError> {
        let length = self.bounded(MAX_NAME)?;
        let mut bytes = vec![0; length as usize];
        self.input.read_exact(&mut bytes).map_err(|why| self.ends(&why))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), EstimateError> {
        let skipped = io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink());
        match skipped {
            Ok(skipped) if skipped == bytes => Ok(()),
            Ok(_) => Err(self.ends(&io::ErrorKind::UnexpectedEof.into())),
            Err(why) => Err(self.ends(&why)),
        }
    }

    /// Bytes of a value of this type; `None` for texts and lists.
    fn fixed(&self, kind: u64) -> Result<Option<u64>, EstimateError> {
        Ok(match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            8 | 9 => None,
            _ => return Err(self.error(&format!("{kind} is no type of metadata"))),
        })
    }

    /// Skips a value.
    fn value(&mut self, kind: u64, depth: u32) -> Result<(), EstimateError> {
        if let Some(bytes) = self.fixed(kind)? {
            return self.skip(bytes);
        }
        if kind == 8 {
            let bytes = self.bounded(MAX_BYTES)?;
            return self.skip(bytes);
        }
        let (kind, length) = (self.number(4)?, self.bounded(MAX_BYTES)?);
        self.list(kind, length, depth + 1)
    }

    /// Skips the elements of a list.
    fn list(&mut self, kind: u64, length: u64, depth: u32) -> Result<(), EstimateError> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("lists in lists more than {MAX_DEPTH} deep")));
        }
        match self.fixed(kind)? {
            // At most 2^28 elements of 8 bytes.
            Some(bytes) => self.skip(length * bytes),
            None => (0..length).try_for_each(|_| self.value(kind, depth)),
        }
    }

    /// Reads an entry of the metadata, and keeps it if it is wanted.
    fn entry(&mut self, metadata: &mut Metadata) -> Result<(), EstimateError> {
        self.field = "metadata".into();
        let name = self.text()?;
        self.field = name.clone();
        let kind = self.number(4)?;
        let rest = name.split_once('.').map_or("", |(_, rest)| rest);
        let wanted = WANTED.iter().find(|(field, _)| *field == rest);
        match (name.as_str(), wanted, kind) {
            ("general.architecture", _, 8) => metadata.architecture = self.text()?,
            ("tokenizer.ggml.tokens", _, 9) => {
                let (kind, length) = (self.number(4)?, self.bounded(MAX_BYTES)?);
                metadata.tokens = Some(length);
                self.list(kind, length, 1)?;
            }
            // Whole numbers; signed ones are kept only if they are not negative.
            (_, Some((_, field)), 0..=5 | 10 | 11) => {
                let bytes = self.fixed(kind)?.unwrap_or(8);
                let number = self.number(bytes)?;
                if number >= 1 << 63 || (bytes == 4 && kind == 5 && number >= 1 << 31) {
                    return Err(self.error("is negative or beyond all limits"));
                }
                metadata.fields.insert((*field).into(), number.into());
            }
            (_, Some((_, field)), 9) => {
                let (kind, length) = (self.number(4)?, self.number(8)?);
                match self.fixed(kind)? {
                    Some(bytes) if length <= MAX_LIST && matches!(kind, 0..=5 | 10 | 11) => {
                        let numbers: Result<Vec<u64>, _> = (0..length).map(|_| self.number(bytes)).collect();
                        metadata.fields.insert((*field).into(), numbers?.into());
                    }
                    _ => return Err(self.error(&format!("is no list of at most {MAX_LIST} whole numbers"))),
                }
            }
            (_, Some(_), _) => return Err(self.error("is no whole number")),
            _ => self.value(kind, 0)?,
        }
        Ok(())
    }

    /// Reads a tensor's entry.
    fn tensor(&mut self, seen: &mut Seen) -> Result<TensorSums, EstimateError> {
        self.field = "tensors".into();
        let name = self.text()?;
        seen.output |= name == "output.weight";
        seen.gate |= name.contains(".ffn_gate.") || name.contains(".ffn_gate_exps.");
        self.field = format!("tensor `{name}`");
        let dimensions = self.number(4)?;
        if dimensions > 4 {
            return Err(self.error(&format!("{dimensions} dimensions, at most 4")));
        }
        let (mut elements, mut row) = (1u64, 1);
        for at in 0..dimensions {
            let length = self.number(8)?;
            elements = elements.checked_mul(length).ok_or_else(|| self.error("more elements than 2^64"))?;
            if at == 0 {
                row = length;
            }
        }
        let kind = self.number(4)?;
        let known = u32::try_from(kind).ok().and_then(ElementType::of_gguf);
        let known = known.ok_or_else(|| self.error(&format!("{kind} is no type of tensors")))?;
        if row % known.block() != 0 {
            return Err(self.error(&format!("rows of {row} elements are no whole blocks of {known}")));
        }
        // Where its bytes begin.
        self.number(8)?;
        let bytes = u64::try_from(known.bytes_of(u128::from(elements)));
        let bytes = bytes.map_err(|_| self.error("more bytes than 2^64"))?;
        // Types with several weights to an integer are blocks here, counted as weights.
        Ok(TensorSums { tensors: 1, elements, bytes, integers: 0 })
    }
}
