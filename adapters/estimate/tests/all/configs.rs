//! Configurations: families, notes, and fields that cannot be.

use terrace_estimate::{
    Activation, Adapters, AttentionKernel, AttentionShape, ElementType, EstimateError, MAX_CONFIG, ModelFacts,
    ModelShape, ModelWorkload, Projection, Training,
};

fn read(config: &str) -> Result<(ModelShape, Vec<String>), EstimateError> {
    ModelShape::from_config("config.json", config.as_bytes())
}

fn parameters(config: &str) -> u64 {
    let shape = Some(read(config).unwrap().0);
    ModelFacts { shape, tensors: None }.estimate("config.json", &ModelWorkload::inference(1)).unwrap().parameters
}

/// A small decoder, with more fields in front.
fn decoder(more: &str) -> String {
    format!(
        r#"{{{more} "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128}}"#
    )
}

#[test]
fn families_differ_in_what_they_count() {
    let plain = 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 100 * 64;
    assert_eq!(parameters(&decoder(r#""model_type": "llama","#)), plain);
    let tied = r#""model_type": "llama", "tie_word_embeddings": true,"#;
    assert_eq!(parameters(&decoder(tied)), plain - 100 * 64);
    assert_eq!(parameters(&decoder(r#""model_type": "gemma","#)), plain - 100 * 64, "tied unless it says otherwise");
    assert_eq!(parameters(&decoder(r#""model_type": "qwen2","#)), plain + 2 * 3 * 64, "biases of inputs");
    assert_eq!(parameters(&decoder(r#""model_type": "qwen3","#)), plain + 2 * 2 * 16, "norms of heads");
    let biased = r#""model_type": "llama", "attention_bias": true, "mlp_bias": true,"#;
    assert_eq!(parameters(&decoder(biased)), plain + 2 * (4 * 64 + 2 * 128 + 64));
    // One head of keys and values for all.
    assert_eq!(parameters(&decoder(r#""model_type": "llama", "num_key_value_heads": 1,"#)), plain - 2 * 2 * 64 * 48);
    let experts = r#""model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 96, "decoder_sparse_step": 2,"#;
    let routed = 4 * 3 * 64 * 32 + 3 * 64 * 96 + 64 * 4 + 64;
    assert_eq!(parameters(&decoder(experts)), plain + 2 * 3 * 64 + routed - 3 * 64 * 128, "in every second layer");
    // t5-v1.1 is gated, and its output is a matrix of its own.
    let t5 = |more| {
        format!(
            r#"{{"model_type": "t5", {more} "vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 2,
            "num_layers": 1}}"#
        )
    };
    let gated = parameters(&t5(r#""feed_forward_proj": "gated-gelu", "tie_word_embeddings": false,"#));
    assert_eq!(gated - parameters(&t5("")), 2 * 64 * 128 + 100 * 64);
}

#[test]
fn what_is_assumed_or_left_out_is_told() {
    let (shape, notes) = read(&decoder(r#""model_type": "new","#)).unwrap();
    assert_eq!((shape.name.as_str(), notes.len()), ("new", 1));
    assert!(notes[0].contains("`new` is not known"), "{notes:?}");
    let outer = format!(r#"{{"model_type": "pictures", "torch_dtype": "float16", "text_config": {}}}"#, decoder(""));
    let (shape, notes) = read(&outer).unwrap();
    assert_eq!(shape.dtype, ElementType::F16);
    assert!(notes[0].contains("only `text_config`"), "{notes:?}");
    let (_, notes) = read(&decoder(r#""model_type": "llama", "quantization_config": {"bits": 4},"#)).unwrap();
    assert!(notes[0].contains("give --dtype"), "{notes:?}");
}

#[test]
fn windows_dropout_and_activations_are_read() {
    let stack = |more: &str| read(&decoder(more)).unwrap().0.decoder.unwrap();
    let of = |more: &str| (stack(more).windowed_layers, stack(more).window);
    assert_eq!(of(r#""model_type": "mistral", "sliding_window": 7,"#), (2, 7));
    assert_eq!(of(r#""model_type": "mistral", "sliding_window": null,"#), (0, 0));
    assert_eq!(of(r#""model_type": "qwen2", "sliding_window": 7, "use_sliding_window": false,"#), (0, 0));
    assert_eq!(of(r#""model_type": "gemma2", "sliding_window": 7,"#), (1, 7));
    let listed =
        r#""model_type": "qwen3", "sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"],"#;
    assert_eq!(of(listed), (1, 7));
    assert_eq!(stack(r#""model_type": "llama", "hidden_act": "relu","#).feed_forward.activation, Activation::Result);
    let gpt2 = |more: &str| {
        let config =
            format!(r#"{{"model_type": "gpt2", {more} "vocab_size": 9, "n_embd": 8, "n_layer": 1, "n_head": 2}}"#);
        read(&config).unwrap().0
    };
    assert!(gpt2("").dropout && gpt2(r#""resid_pdrop": 0.0, "attn_pdrop": 0.1,"#).dropout);
    assert!(!gpt2(r#""resid_pdrop": 0.0, "attn_pdrop": 0,"#).dropout);
    let latent = r#""model_type": "deepseek_v3", "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3,"#;
    assert!(matches!(stack(latent).attention, AttentionShape::Latent { kv_rank: 8, query_rank: None, .. }));
}

#[test]
fn what_cannot_be_is_one_error_that_names_file_and_field() {
    let bad = [
        ("", "JSON", "EOF"),
        ("[]", "JSON", "give an object"),
        ("{}", "hidden_size", "is missing"),
        (
            &decoder(r#""hidden_size": -1,"#).replace(r#""hidden_size": 64,"#, ""),
            "hidden_size",
            "`-1` is no whole number",
        ),
        (&decoder("").replace("64", "1e30"), "hidden_size", "is no whole number"),
        (&decoder("").replace(": 64", ": 18446744073709551612"), "hidden size", "is not within"),
        (&decoder("").replace(": 64", ": 66"), "num_attention_heads", "do not divide a hidden size of 66"),
        (&decoder("").replace(": 4,", ": 0,"), "num_attention_heads", "do not divide"),
        (&decoder("").replace(": 2,", ": 0,"), "layers", "0 is not within 1 to 16384"),
        (&decoder("").replace(": 2,", ": 4294967296,"), "layers", "is not within"),
        (&decoder("").replace("100", "99999999999"), "vocabulary", "is not within"),
        (&decoder("").replace("128", "\"x\""), "intermediate_size", "`\"x\"` is no whole number"),
        (&decoder(r#""num_key_value_heads": 5,"#), "heads of keys and values", "5 is not within 1 to 4"),
        (&decoder(r#""head_dim": 4194304,"#), "heads * width", "is not within"),
        (&decoder(r#""torch_dtype": "f7","#), "torch_dtype", "`\"f7\"` is no type"),
        (&decoder(r#""model_type": 3,"#), "model_type", "is no text"),
        (&decoder(r#""num_experts": 8,"#), "num_experts_per_tok", "is missing"),
        (&decoder(r#""num_experts": 8, "num_experts_per_tok": 9,"#), "active experts", "9 is not within 1 to 8"),
        (&decoder(r#""tie_word_embeddings": 1,"#), "tie_word_embeddings", "neither true nor false"),
        (&decoder(r#""model_type": "opt","#), "max_position_embeddings", "is missing"),
        (&decoder(r#""model_type": "gpt2","#), "n_embd", "is missing"),
        (&decoder(r#""model_type": "t5","#), "d_model", "is missing"),
    ];
    for (config, field, what) in bad {
        let error = read(config).expect_err(config);
        assert_eq!((error.file.as_str(), error.field.as_str()), ("config.json", field), "{error}\n{config}");
        assert!(
            error.to_string().starts_with(&format!("config.json: {field}: ")) && error.what.contains(what),
            "{error}"
        );
    }
    let long = vec![b' '; MAX_CONFIG as usize + 1];
    assert!(ModelShape::from_config("long", &long[..]).unwrap_err().what.contains("more than 16777216 bytes"));
}

#[test]
fn workloads_beyond_limits_are_errors_and_nothing_wraps() {
    let (shape, _) = read(&decoder("")).unwrap();
    let facts = ModelFacts { shape: Some(shape), tensors: None };
    let field = |work: &ModelWorkload| facts.estimate("m", work).unwrap_err().field;
    assert_eq!(field(&ModelWorkload::inference(0)), "--context");
    assert_eq!(field(&ModelWorkload::inference(u64::MAX)), "--context");
    assert_eq!(field(&ModelWorkload { batch: 0, ..ModelWorkload::inference(1) }), "--batch");
    let attention = AttentionKernel::Eager;
    let most = ModelWorkload { batch: 1 << 20, attention, ..ModelWorkload::inference(1 << 30) };
    assert_eq!(field(&most), "activation_bytes");
    let training = Training { optimizer: Default::default(), adapters: None, checkpoint: false, accumulate: false };
    let of = |dtype: &str| {
        let (dtype, training) = (ElementType::parse(dtype), Some(training.clone()));
        facts.estimate("m", &ModelWorkload { dtype, training, ..ModelWorkload::inference(1) })
    };
    assert!(of("q4_0").unwrap_err().what.contains("only holds weights; give --dtype bf16") && of("bf16").is_ok());
    let none = ModelFacts::default().estimate("m", &ModelWorkload::inference(1)).unwrap_err();
    assert!(none.what.contains("neither a shape nor a tensor"), "{none}");
    // The largest shape there may be, at the largest workload.
    let huge = r#"{"vocab_size": 268435456, "hidden_size": 4194304, "num_hidden_layers": 16384,
        "num_attention_heads": 4194304, "intermediate_size": 4194304, "num_experts": 4194304, "num_experts_per_tok": 4194304}"#;
    let facts = ModelFacts { shape: Some(read(huge).unwrap().0), tensors: None };
    let adapters = Some(Adapters { rank: 1 << 22, targets: Projection::ALL.map(|(_, target)| target).to_vec() });
    for checkpoint in [false, true] {
        let training = Training { adapters: adapters.clone(), checkpoint, accumulate: true, ..training.clone() };
        let work = ModelWorkload { training: Some(training), ..most.clone() };
        let error = facts.estimate("huge", &work).unwrap_err();
        assert!(error.what.contains("more than 64 bits hold"), "{error}");
    }
}
