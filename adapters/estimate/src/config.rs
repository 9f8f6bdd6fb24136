//! `config.json` of Hugging Face's transformers, as a shape.
//!
//! Promises upward: a shape within limits, or an error that names file and field; memory is bounded by [`MAX_CONFIG`].
//! A `model_type` that is not known is read as a decoder like Llama, and a note says so.
//! Asks from below: shapes, types of elements.

mod fields;
mod llama;

use crate::element::ElementType;
use crate::error::EstimateError;
use crate::model::{Activation, AttentionShape, FeedForward, LayerStack, ModelShape};
use fields::Fields;
use serde_json::Value;
use std::io::Read;

/// The most bytes of a configuration.
pub const MAX_CONFIG: u64 = 16 << 20;

/// Fields with shares of elements that training drops.
const DROPOUT: [&str; 7] = [
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "dropout",
    "dropout_rate",
    "hidden_dropout_prob",
    "resid_pdrop",
];

/// Reads a whole text of at most `most` bytes.
pub(crate) fn read_text(file: &str, input: impl Read, most: u64) -> Result<Vec<u8>, EstimateError> {
    let mut text = Vec::new();
    let read = input.take(most + 1).read_to_end(&mut text);
    read.map_err(|error| EstimateError::new(file, "bytes", format!("cannot be read: {error}")))?;
    if text.len() as u64 > most {
        return Err(EstimateError::new(file, "bytes", format!("more than {most} bytes, which no such file has")));
    }
    Ok(text)
}

impl ModelShape {
    /// Reads a `config.json`; also returns notes on what was left out or assumed.
    ///
    /// `file` names it in errors.
    ///
    /// # Errors
    /// Bytes that cannot be read or are no JSON object; a field that is missing, of a wrong type or beyond all limits.
    pub fn from_config(file: &str, input: impl Read) -> Result<(Self, Vec<String>), EstimateError> {
        let text = read_text(file, input, MAX_CONFIG)?;
        let value: Value =
            serde_json::from_slice(&text).map_err(|error| EstimateError::new(file, "JSON", error.to_string()))?;
        from_value(file, &value)
    }
}

/// As [`ModelShape::from_config`], of a value.
pub(crate) fn from_value(file: &str, value: &Value) -> Result<(ModelShape, Vec<String>), EstimateError> {
    let mut notes = Vec::new();
    let outer = Fields::new(file, value)?;
    let fields = match value.get("text_config") {
        Some(text) => {
            notes.push("only `text_config` is counted: parts for images and sound are left out".into());
            Fields::new(file, text)?
        }
        None => outer,
    };
    if value.get("quantization_config").is_some() {
        notes.push("`quantization_config` is not read: give --dtype, or the file of weights".into());
    }
    let mut dropout: Option<bool> = None;
    let kind = fields.text("model_type")?.unwrap_or("").to_owned();
    let mut shape = match kind.as_str() {
        "gpt2" => gpt2(&fields)?,
        "opt" => opt(&fields)?,
        "bert" | "roberta" | "xlm-roberta" | "camembert" => bert(&fields)?,
        "t5" | "mt5" | "umt5" => t5(&fields)?,
        _ => llama::shape(&fields, &kind, &mut notes)?,
    };
    for field in DROPOUT {
        if let Some(share) = fields.fraction(field)? {
            *dropout.get_or_insert(false) |= share > 0.0;
        }
    }
    shape.dropout = dropout.unwrap_or(shape.dropout);
    let dtype = match fields.text("dtype")?.or(fields.text("torch_dtype")?) {
        Some(name) => Some(name),
        None => outer.text("dtype")?.or(outer.text("torch_dtype")?),
    };
    if let Some(name) = dtype {
        shape.dtype = ElementType::parse(name).ok_or_else(|| fields.error("torch_dtype", "is no type of elements"))?;
    }
    shape.name = if kind.is_empty() { "model".into() } else { kind };
    shape.check().map_err(|error| EstimateError { file: file.into(), ..error })?;
    Ok((shape, notes))
}

/// A shape without stacks, whose embedding is its output.
fn bare(fields: &Fields<'_>, hidden: &str) -> Result<ModelShape, EstimateError> {
    Ok(ModelShape {
        name: String::new(),
        dtype: ElementType::F32,
        vocabulary: fields.needed("vocab_size")?,
        hidden: fields.needed(hidden)?,
        tied: fields.switch("tie_word_embeddings")?.unwrap_or(true),
        learned_rows: 0,
        other_parameters: 0,
        positions: None,
        dropout: true,
        encoder: None,
        decoder: None,
    })
}

/// Attention whose keys and values have as many heads as its queries.
fn multi_head(heads: u64, head_dim: u64, bias: bool) -> AttentionShape {
    AttentionShape::Heads { heads, kv_heads: heads, head_dim, input_bias: bias, output_bias: bias, head_norms: false }
}

/// Multi-head attention and a feed-forward part, all with biases; two norms with biases.
fn biased(layers: u64, heads: u64, head_dim: u64, width: u64, activation: Activation) -> LayerStack {
    LayerStack {
        layers,
        windowed_layers: 0,
        window: 0,
        attention: multi_head(heads, head_dim, true),
        cross: false,
        feed_forward: FeedForward { width, gated: false, bias: true, activation },
        experts: None,
        norms: 2,
        norm_bias: true,
    }
}

fn gpt2(fields: &Fields<'_>) -> Result<ModelShape, EstimateError> {
    let shape = bare(fields, "n_embd")?;
    let positions = fields.first(&["n_positions", "n_ctx"])?.unwrap_or(1024);
    let heads = fields.needed("n_head")?;
    let width = fields.number("n_inner")?.unwrap_or(shape.hidden.saturating_mul(4));
    let activation = fields.activation("activation_function", Activation::Steps)?;
    let head_dim = fields.split(shape.hidden, heads, "n_head")?;
    Ok(ModelShape {
        learned_rows: positions,
        positions: Some(positions),
        other_parameters: shape.hidden.saturating_mul(2),
        decoder: Some(biased(fields.needed("n_layer")?, heads, head_dim, width, activation)),
        ..shape
    })
}

fn opt(fields: &Fields<'_>) -> Result<ModelShape, EstimateError> {
    let shape = bare(fields, "hidden_size")?;
    if fields.number("word_embed_proj_dim")?.is_some_and(|width| width != shape.hidden) {
        return Err(
            fields.error("word_embed_proj_dim", "embeddings of another width than `hidden_size` are not counted")
        );
    }
    let positions = fields.needed("max_position_embeddings")?;
    let heads = fields.needed("num_attention_heads")?;
    let head_dim = fields.split(shape.hidden, heads, "num_attention_heads")?;
    let activation = fields.activation("activation_function", Activation::Result)?;
    let stack = biased(fields.needed("num_hidden_layers")?, heads, head_dim, fields.needed("ffn_dim")?, activation);
    Ok(ModelShape {
        // Two rows of padding come before the first position.
        learned_rows: positions.saturating_add(2),
        positions: Some(positions),
        other_parameters: shape.hidden.saturating_mul(2),
        decoder: Some(stack),
        ..shape
    })
}

/// BERT with its pooler, without a head for masked words.
fn bert(fields: &Fields<'_>) -> Result<ModelShape, EstimateError> {
    let shape = bare(fields, "hidden_size")?;
    let positions = fields.needed("max_position_embeddings")?;
    let heads = fields.needed("num_attention_heads")?;
    let head_dim = fields.split(shape.hidden, heads, "num_attention_heads")?;
    let activation = fields.activation("hidden_act", Activation::Input)?;
    let width = fields.needed("intermediate_size")?;
    let hidden = shape.hidden;
    Ok(ModelShape {
        tied: true,
        learned_rows: positions.saturating_add(fields.number("type_vocab_size")?.unwrap_or(2)),
        positions: Some(positions),
        // The embedding's norm, the pooler.
        other_parameters: hidden.saturating_mul(hidden).saturating_add(hidden.saturating_mul(3)),
        encoder: Some(biased(fields.needed("num_hidden_layers")?, heads, head_dim, width, activation)),
        ..shape
    })
}

fn t5(fields: &Fields<'_>) -> Result<ModelShape, EstimateError> {
    let shape = bare(fields, "d_model")?;
    let (heads, layers) = (fields.needed("num_heads")?, fields.needed("num_layers")?);
    let feed_forward = fields.text("feed_forward_proj")?.unwrap_or("relu");
    let (gated, inner) = feed_forward.strip_prefix("gated-").map_or((false, feed_forward), |inner| (true, inner));
    let stack = |layers, cross| -> Result<LayerStack, EstimateError> {
        Ok(LayerStack {
            layers,
            windowed_layers: 0,
            window: 0,
            attention: multi_head(heads, fields.needed("d_kv")?, false),
            cross,
            feed_forward: FeedForward {
                width: fields.needed("d_ff")?,
                gated,
                bias: false,
                activation: if inner == "relu" { Activation::Result } else { Activation::Input },
            },
            experts: None,
            norms: 2 + u64::from(cross),
            norm_bias: false,
        })
    };
    let buckets = fields.number("relative_attention_num_buckets")?.unwrap_or(32);
    Ok(ModelShape {
        // A bias for each bucket and head, and a last norm, of both stacks.
        other_parameters: buckets.saturating_mul(heads).saturating_add(shape.hidden).saturating_mul(2),
        encoder: Some(stack(layers, false)?),
        decoder: Some(stack(fields.number("num_decoder_layers")?.unwrap_or(layers), true)?),
        ..shape
    })
}
