//! Decoders whose configurations have Llama's fields, and what each family does differently.

use super::fields::Fields;
use crate::element::ElementType;
use crate::error::EstimateError;
use crate::model::{Activation, AttentionShape, Experts, FeedForward, LayerStack, ModelShape};

/// Families that are read without a note.
const KNOWN: [&str; 16] = [
    "deepseek_v2",
    "deepseek_v3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "granite",
    "gguf",
    "llama",
    "ministral",
    "mistral",
    "mixtral",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
];

/// The shape that the fields describe.
pub fn shape(fields: &Fields<'_>, kind: &str, notes: &mut Vec<String>) -> Result<ModelShape, EstimateError> {
    if !KNOWN.contains(&kind) {
        notes.push(format!("model_type `{kind}` is not known: counted as a decoder like Llama"));
    }
    let hidden = fields.needed("hidden_size")?;
    let layers = fields.needed("num_hidden_layers")?;
    let gemma = kind.starts_with("gemma");
    let (windowed_layers, window) = windows(fields, kind, layers)?;
    let four_norms = matches!(kind, "gemma2" | "gemma3_text");
    let stack = LayerStack {
        layers,
        windowed_layers,
        window,
        attention: attention(fields, kind, hidden)?,
        cross: false,
        feed_forward: FeedForward {
            width: fields.number("intermediate_size")?.unwrap_or(0),
            gated: fields.switch("terrace.gated")?.unwrap_or(true),
            bias: fields.switch("mlp_bias")?.unwrap_or(false),
            activation: fields.activation("hidden_act", Activation::Input)?,
        },
        experts: experts(fields, kind, layers)?,
        norms: if four_norms { 4 } else { 2 },
        norm_bias: false,
    };
    if stack.experts.as_ref().is_none_or(|experts| experts.dense_layers > 0) {
        fields.needed("intermediate_size")?;
    }
    let encodes = fields.switch("terrace.encoder")?.unwrap_or(false);
    let (encoder, decoder) = if encodes { (Some(stack), None) } else { (None, Some(stack)) };
    Ok(ModelShape {
        name: String::new(),
        dtype: ElementType::F32,
        vocabulary: fields.needed("vocab_size")?,
        hidden,
        tied: fields.switch("tie_word_embeddings")?.unwrap_or(gemma),
        learned_rows: 0,
        // The last norm.
        other_parameters: hidden,
        positions: fields.number("max_position_embeddings")?,
        dropout: false,
        encoder,
        decoder,
    })
}

fn attention(fields: &Fields<'_>, kind: &str, hidden: u64) -> Result<AttentionShape, EstimateError> {
    let heads = fields.needed("num_attention_heads")?;
    if let Some(kv_rank) = fields.number("kv_lora_rank")? {
        return Ok(AttentionShape::Latent {
            heads,
            query_rank: fields.number("q_lora_rank")?,
            kv_rank,
            nope: fields.needed("qk_nope_head_dim")?,
            rope: fields.needed("qk_rope_head_dim")?,
            value: fields.needed("v_head_dim")?,
        });
    }
    let head_dim = match fields.number("head_dim")? {
        Some(head_dim) => head_dim,
        None => fields.split(hidden, heads, "num_attention_heads")?,
    };
    let bias = fields.switch("attention_bias")?.unwrap_or(false);
    Ok(AttentionShape::Heads {
        heads,
        kv_heads: fields.first(&["num_key_value_heads", "num_kv_heads"])?.unwrap_or(heads),
        head_dim,
        input_bias: bias || kind.starts_with("qwen2"),
        output_bias: bias,
        head_norms: kind.starts_with("qwen3") || kind == "gemma3_text",
    })
}

/// Layers with a window, and the window.
fn windows(fields: &Fields<'_>, kind: &str, layers: u64) -> Result<(u64, u64), EstimateError> {
    let off = fields.switch("use_sliding_window")? == Some(false);
    let Some(window) = fields.number("sliding_window")?.filter(|_| !off) else { return Ok((0, 0)) };
    let listed = fields.texts("layer_types").filter(|kind| *kind == "sliding_attention").count() as u64;
    let every = match kind {
        "gemma2" => Some(2),
        "gemma3_text" => Some(fields.number("sliding_window_pattern")?.unwrap_or(6)),
        _ => None,
    };
    let windowed = match every {
        _ if fields.texts("layer_types").next().is_some() => listed,
        // Of so many layers the last one has no window.
        Some(every) => layers - layers.checked_div(every).unwrap_or(0),
        None => layers,
    };
    Ok((windowed, window))
}

fn experts(fields: &Fields<'_>, kind: &str, layers: u64) -> Result<Option<Experts>, EstimateError> {
    let count = fields.first(&["num_local_experts", "n_routed_experts", "num_experts"])?.filter(|count| *count > 0);
    let Some(count) = count else { return Ok(None) };
    let width = match fields.number("moe_intermediate_size")? {
        Some(width) => width,
        None => fields.needed("intermediate_size")?,
    };
    let shared = fields.number("shared_expert_intermediate_size")?;
    let shared_width = match shared {
        Some(shared) => shared,
        None => fields.number("n_shared_experts")?.unwrap_or(0).saturating_mul(width),
    };
    let router_parameters = match kind {
        "qwen2_moe" => fields.needed("hidden_size")?,
        "deepseek_v3" => count,
        _ => 0,
    };
    let first = fields.number("first_k_dense_replace")?.unwrap_or(0);
    // Layers of these numbers, and those between every so many.
    let step = fields.number("decoder_sparse_step")?.unwrap_or(1).max(1);
    Ok(Some(Experts {
        count,
        active: fields.needed("num_experts_per_tok")?,
        width,
        shared_width,
        router_parameters,
        dense_layers: first.saturating_add(layers - layers / step).min(layers),
    }))
}
