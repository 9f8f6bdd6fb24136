//! Shapes of well-known models, typed from the papers and model cards that each names.
//!
//! Promises upward: `ModelShape::preset` knows each name of [`PRESETS`]. Asks from below: the reader of configurations.

use crate::config::from_value;
use crate::error::EstimateError;
use crate::model::ModelShape;
use serde_json::{Value, json};

/// The names of the presets.
pub const PRESETS: [&str; 16] = [
    "gpt2",
    "bert-base",
    "t5-base",
    "opt-13b",
    "llama-2-7b",
    "llama-3-8b",
    "llama-3.1-70b",
    "llama-3.1-405b",
    "mistral-7b",
    "mixtral-8x7b",
    "qwen2.5-7b",
    "qwen2.5-72b",
    "qwen3-30b-a3b",
    "gemma-2-9b",
    "deepseek-v2-lite",
    "deepseek-v3",
];

impl ModelShape {
    /// The shape of a well-known model.
    ///
    /// # Errors
    /// A name that [`PRESETS`] does not have.
    ///
    /// # Example
    /// ```
    /// use terrace_estimate::ModelShape;
    /// let shape = ModelShape::preset("llama-3-8b")?;
    /// assert_eq!((shape.hidden, shape.vocabulary), (4096, 128_256));
    /// # Ok::<(), terrace_estimate::EstimateError>(())
    /// ```
    pub fn preset(name: &str) -> Result<Self, EstimateError> {
        let fields = fields(name)
            .ok_or_else(|| EstimateError::new(name, "--preset", format!("there are {}", PRESETS.join(", "))))?;
        let (shape, _) = from_value(name, &fields)?;
        Ok(Self { name: name.into(), ..shape })
    }
}

/// Fields as transformers names them.
fn fields(name: &str) -> Option<Value> {
    Some(match name {
        // Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", table 2; the code that came with it.
        "gpt2" => json!({
            "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
        }),
        // Devlin et al. 2019, "BERT", section 3.
        "bert-base" => json!({
            "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
            "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2,
        }),
        // Raffel et al. 2020, "Exploring the Limits of Transfer Learning", sections 2.1 and 3.1.1.
        "t5-base" => json!({
            "model_type": "t5", "vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_heads": 12,
            "num_layers": 12,
        }),
        // Zhang et al. 2022, "OPT", table 1.
        "opt-13b" => json!({
            "model_type": "opt", "torch_dtype": "f16", "vocab_size": 50272, "hidden_size": 5120, "num_hidden_layers": 40,
            "num_attention_heads": 40, "ffn_dim": 20480, "max_position_embeddings": 2048,
        }),
        // Touvron et al. 2023, "Llama 2", section 2.2; "LLaMA", table 2.
        "llama-2-7b" => llama("llama", 32000, 4096, 32, [32, 32], 11008, 4096),
        // Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 3; Llama 3 itself had 8192 positions.
        "llama-3-8b" => llama("llama", 128_256, 4096, 32, [32, 8], 14336, 8192),
        "llama-3.1-70b" => llama("llama", 128_256, 8192, 80, [64, 8], 28672, 131_072),
        "llama-3.1-405b" => llama("llama", 128_256, 16384, 126, [128, 8], 53248, 131_072),
        // Jiang et al. 2023, "Mistral 7B", table 1.
        "mistral-7b" => with(llama("mistral", 32000, 4096, 32, [32, 8], 14336, 32768), json!({"sliding_window": 4096})),
        // Jiang et al. 2024, "Mixtral of Experts", table 1.
        "mixtral-8x7b" => with(
            llama("mixtral", 32000, 4096, 32, [32, 8], 14336, 32768),
            json!({"num_local_experts": 8, "num_experts_per_tok": 2}),
        ),
        // Qwen Team 2024, "Qwen2.5 Technical Report", table 1; inner width: the model card's configuration.
        "qwen2.5-7b" => llama("qwen2", 152_064, 3584, 28, [28, 4], 18944, 131_072),
        "qwen2.5-72b" => llama("qwen2", 152_064, 8192, 80, [64, 8], 29568, 131_072),
        // Qwen Team 2025, "Qwen3 Technical Report", table 2; widths: the model card's configuration.
        "qwen3-30b-a3b" => with(
            llama("qwen3_moe", 151_936, 2048, 48, [32, 4], 6144, 40960),
            json!({
                "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
            }),
        ),
        // Gemma Team 2024, "Gemma 2", table 1 (its feed-forward width counts both matrices).
        "gemma-2-9b" => with(
            llama("gemma2", 256_000, 3584, 42, [16, 8], 14336, 8192),
            json!({"head_dim": 256, "sliding_window": 4096}),
        ),
        // DeepSeek-AI 2024, "DeepSeek-V2", appendix B.
        "deepseek-v2-lite" => with(
            llama("deepseek_v2", 102_400, 2048, 27, [16, 16], 10944, 163_840),
            json!({
                "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
                "first_k_dense_replace": 1,
            }),
        ),
        // DeepSeek-AI 2024, "DeepSeek-V3", section 4.2, without the module that predicts a second token.
        "deepseek-v3" => with(
            llama("deepseek_v3", 129_280, 7168, 61, [128, 128], 18432, 163_840),
            json!({
                "torch_dtype": "f8_e4m3", "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
                "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
            }),
        ),
        _ => return None,
    })
}

/// A decoder like Llama, in `bf16`.
fn llama(
    kind: &str,
    vocabulary: u64,
    hidden: u64,
    layers: u64,
    [heads, kv_heads]: [u64; 2],
    width: u64,
    positions: u64,
) -> Value {
    json!({
        "model_type": kind, "torch_dtype": "bf16", "vocab_size": vocabulary, "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "intermediate_size": width, "max_position_embeddings": positions,
    })
}

/// The fields of two objects, the second's in place of the first's.
fn with(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}
