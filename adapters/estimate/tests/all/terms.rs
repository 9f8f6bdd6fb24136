//! Each term of activations and of the peak, to the byte, as `docs/design.md` lists them.

use terrace_estimate::{AttentionKernel, Estimate, ModelFacts, ModelShape, ModelWorkload, Optimizer, Training};

/// Two texts of ten tokens.
const TOKENS: u64 = 20;
/// The loss and the ends of a model of 16 bits without dropout, 64 wide, with 100 words.
const OUTSIDE: u64 = TOKENS * (3 * 4 * 100 + 2 * 64 * 2);

fn estimate(config: &str, attention: AttentionKernel, training: Option<Training>) -> Estimate {
    let (shape, _) = ModelShape::from_config("config.json", config.as_bytes()).unwrap();
    let work = ModelWorkload { batch: 2, attention, training, ..ModelWorkload::inference(10) };
    ModelFacts { shape: Some(shape), tensors: None }.estimate("config.json", &work).unwrap()
}

fn training() -> Training {
    Training { optimizer: Optimizer::AdamW, adapters: None, checkpoint: false, accumulate: false }
}

/// Bytes that training keeps for one layer.
fn layer(config: &str, attention: AttentionKernel) -> u64 {
    estimate(config, attention, Some(training())).activation_bytes.unwrap() - OUTSIDE
}

/// A decoder of one layer in 16 bits: 4 heads of 16, 2 of keys and values.
fn decoder(more: &str) -> String {
    format!(
        r#"{{{more} "torch_dtype": "bf16", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}}"#
    )
}

#[test]
fn a_layer_keeps_what_the_design_lists() {
    use AttentionKernel::{Eager, Fused};
    // Norms; attention's input, queries, keys, values, output; the feed-forward part's input and what lies between its matrices.
    let norms_and_attention = 2 * 64 + 64 + 64 + 32 + 32 + 64;
    let sums = 4 * 4; // one of 32 bits for each head
    let gated = TOKENS * (2 * (norms_and_attention + 64 + 4 * 128) + sums);
    assert_eq!(layer(&decoder(""), Fused), gated);
    assert_eq!(layer(&decoder(r#""hidden_act": "relu","#), Fused), gated - TOKENS * 2 * 128);
    // Written scores, and keys and values repeated for all heads.
    assert_eq!(layer(&decoder(""), Eager), gated + TOKENS * (2 * 64 + 2 * 4 * 10 - sums));
    // With dropout: a mask behind each part, and at the embedding; and of the scores, with their product.
    let dropout = decoder(r#""attention_dropout": 0.1,"#);
    assert_eq!(layer(&dropout, Fused), gated + TOKENS * 3 * 64);
    assert_eq!(layer(&dropout, Eager) - layer(&decoder(""), Eager), TOKENS * (3 * 64 + 4 * 10 * (2 + 1)));
    // Two experts of four, and shared ones: input, the router's scores, two ways through, the shared one's.
    let experts = r#""num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,"#;
    let routed = 64 + 4 + 2 * (2 * 64 + 4 * 32) + 4 * 32;
    assert_eq!(layer(&decoder(experts), Fused), TOKENS * (2 * (norms_and_attention + routed) + sums));
    // Compressed queries, keys and values are kept beside the full ones.
    let latent =
        r#""q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,"#;
    let attention = 64 + 48 + 48 + 24 + 24 + (16 + 4 + 24);
    assert_eq!(layer(&decoder(latent), Fused), TOKENS * (2 * (2 * 64 + attention + 64 + 4 * 128) + sums));
}

#[test]
fn a_checkpoint_keeps_an_input_and_computes_one_layer_again() {
    // A layer so wide that it needs more than the loss.
    let wide = decoder("").replace(": 128", ": 4096");
    let checkpoint = Some(Training { checkpoint: true, ..training() });
    let ours = estimate(&wide, AttentionKernel::Fused, checkpoint).activation_bytes.unwrap();
    let ends = TOKENS * 2 * 64 * 2;
    assert_eq!(ours, ends + TOKENS * 64 * 2 + layer(&wide, AttentionKernel::Fused));
}

#[test]
fn the_peak_is_activations_or_a_step_and_kept_gradients_come_on_top() {
    let of = |training| estimate(&decoder(""), AttentionKernel::Fused, Some(training));
    let plain = of(training());
    let activations = plain.activation_bytes.unwrap();
    let held = plain.weights_bytes + plain.optimizer_bytes;
    assert!(activations < 2 * plain.gradient_bytes, "a step needs more here: {plain:?}");
    assert_eq!(plain.total_bytes, held + plain.gradient_bytes + plain.step_bytes);
    assert_eq!((plain.step_bytes, plain.gradient_bytes), (plain.weights_bytes, plain.weights_bytes));
    let kept = of(Training { accumulate: true, ..training() });
    assert_eq!(kept.total_bytes, held + (kept.gradient_bytes + activations).max(2 * kept.gradient_bytes));
    // A longer text: activations are the larger part.
    let small = |accumulate| {
        let (shape, _) = ModelShape::from_config("config.json", decoder("").as_bytes()).unwrap();
        let training = Some(Training { accumulate, ..training() });
        let facts = ModelFacts { shape: Some(shape), tensors: None };
        facts.estimate("m", &ModelWorkload { training, ..ModelWorkload::inference(1000) }).unwrap()
    };
    let (plain, kept) = (small(false), small(true));
    let most = plain.activation_bytes.unwrap();
    assert!(most > 2 * plain.gradient_bytes, "{plain:?}");
    assert_eq!(plain.total_bytes, plain.weights_bytes + plain.optimizer_bytes + most);
    assert_eq!(kept.total_bytes, plain.total_bytes + plain.gradient_bytes);
}

#[test]
fn inference_works_in_the_larger_part_of_a_layer() {
    let of = |config: &str, attention| estimate(config, attention, None).activation_bytes.unwrap();
    let stream = TOKENS * 4 * 64 * 2;
    let fused = AttentionKernel::Fused;
    assert_eq!(of(&decoder(""), fused), stream + TOKENS * 3 * 128 * 2, "the gated part");
    let narrow = decoder("").replace(": 128", ": 8");
    assert_eq!(of(&narrow, fused), stream + TOKENS * (64 + 32 + 32 + 64) * 2, "attention");
    let scores = TOKENS * 10 * 4 * 2 * 2;
    assert_eq!(of(&narrow, AttentionKernel::Eager), stream + TOKENS * (64 + 32 + 32 + 64) * 2 + scores);
    let words = decoder("").replace(": 100", ": 1000000");
    assert_eq!(of(&words, fused), 2 * 1_000_000 * (2 + 4), "the next token's scores, of both texts");
}
