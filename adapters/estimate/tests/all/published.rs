//! Counts against what others published: parameters, bytes of weights, bytes of the KV cache.

use terrace_estimate::{ElementType, Estimate, ModelFacts, ModelShape, ModelWorkload, PRESETS};

fn estimate(preset: &str, work: &ModelWorkload) -> Estimate {
    let shape = Some(ModelShape::preset(preset).unwrap());
    ModelFacts { shape, tensors: None }.estimate(preset, work).unwrap()
}

/// Percent that `ours` is above `theirs`.
fn difference(ours: u64, theirs: u64) -> f64 {
    (ours as f64 / theirs as f64 - 1.0) * 100.0
}

/// Bytes of weights as published. `index`: `metadata.total_size` of the `model.safetensors.index.json` on Hugging Face.
const WEIGHTS: [(&str, u64, &str); 14] = [
    ("gpt2", 124_000_000 * 4, "README of openai/gpt-2: 124M parameters"),
    ("bert-base", 110_000_000 * 4, "Devlin et al. 2019, section 3: 110M parameters"),
    ("t5-base", 222_903_552 * 4, "KerasHub, t5_presets.py: params of T5-Base"),
    ("llama-2-7b", 13_476_839_424, "index of meta-llama/Llama-2-7b-hf, which has 8192 bytes of buffers"),
    ("llama-3-8b", 16_060_522_496, "index of meta-llama/Meta-Llama-3-8B"),
    ("llama-3.1-70b", 141_107_412_992, "index of meta-llama/Llama-3.1-70B"),
    ("mistral-7b", 14_483_464_192, "index of mistralai/Mistral-7B-v0.1"),
    ("mixtral-8x7b", 93_405_585_408, "index of mistralai/Mixtral-8x7B-v0.1"),
    ("qwen2.5-7b", 15_231_233_024, "index of Qwen/Qwen2.5-7B"),
    ("qwen2.5-72b", 145_412_407_296, "index of Qwen/Qwen2.5-72B"),
    ("qwen3-30b-a3b", 61_064_245_248, "index of Qwen/Qwen3-30B-A3B"),
    ("gemma-2-9b", 18_483_411_968, "index of google/gemma-2-9b-it"),
    ("deepseek-v2-lite", 31_412_968_448, "index of deepseek-ai/DeepSeek-V2-Lite"),
    ("deepseek-v3", 671_000_000_000, "DeepSeek-AI 2024, DeepSeek-V3, abstract: 671B parameters, in f8"),
];

#[test]
fn weights_are_within_2_percent_of_what_was_published() {
    for (preset, published, source) in WEIGHTS {
        let ours = estimate(preset, &ModelWorkload::inference(1)).weights_bytes;
        let difference = difference(ours, published);
        println!("| {preset} | {ours} | {published} | {difference:+.3} % | {source} |");
        assert!(difference.abs() <= 2.0, "{preset}: {ours}, published {published} ({source})");
        if source.starts_with("index of") {
            let buffers = if preset == "llama-2-7b" { 8192 } else { 0 };
            assert_eq!(ours + buffers, published, "{preset}: an index says it to the byte");
        }
    }
}

/// Bytes of a KV cache of 16 bits as published, at so many positions.
const CACHES: [(&str, u64, u64, &str); 10] = [
    ("opt-13b", 1, 800 << 10, "Kwon et al. 2023, PagedAttention, section 3: 800 KB a token"),
    ("llama-2-7b", 4096, 2 << 30, "NVIDIA, Mastering LLM Techniques: Inference Optimization: ~2 GB"),
    ("llama-3-8b", 16_000, 2_093_796_556, "Hugging Face, blog/llama31: 1.95 GB at 16k (units of 2^30)"),
    ("llama-3.1-70b", 128_000, 41_940_355_645, "Hugging Face, blog/llama31: 39.06 GB at 128k"),
    ("llama-3.1-405b", 1, 516_096, "Zhao et al. 2025, Insights into DeepSeek-V3, table 1: 516.096 KB"),
    ("qwen2.5-72b", 1, 327_680, "the same: 327.680 KB"),
    ("deepseek-v3", 1, 70_272, "the same: 70.272 KB"),
    ("deepseek-v2-lite", 1, 15_600 * 2, "DeepSeek-AI 2024, DeepSeek-V2, appendix D.2: 15.6K elements"),
    ("gemma-2-9b", 8192, 2688 << 20, "ggml-org/llama.cpp, issue 9612: 2688 MiB, all positions in all layers"),
    ("qwen3-30b-a3b", 1000, 98_247_360, "EvicPress 2025: 0.0915 GB for 1K tokens (units of 2^30)"),
];

#[test]
fn caches_are_within_2_percent_of_what_was_published() {
    for (preset, context, published, source) in CACHES {
        let mut shape = ModelShape::preset(preset).unwrap();
        if preset == "gemma-2-9b" {
            // That program keeps all positions.
            shape.decoder.as_mut().unwrap().windowed_layers = 0;
        }
        let work = ModelWorkload { kv_dtype: Some(ElementType::F16), ..ModelWorkload::inference(context) };
        let facts = ModelFacts { shape: Some(shape), tensors: None };
        let ours = facts.estimate(preset, &work).unwrap().kv_cache_bytes.unwrap();
        let difference = difference(ours, published);
        println!("| {preset} | {context} | {ours} | {published} | {difference:+.3} % | {source} |");
        assert!(difference.abs() <= 2.0, "{preset}: {ours}, published {published} ({source})");
    }
}

#[test]
fn experts_have_parameters_in_all_and_those_that_a_token_uses() {
    // Jiang et al. 2024: 47B and 13B; Qwen3: 30.5B and 3.3B; DeepSeek-V3: 671B and 37B.
    let published = [("mixtral-8x7b", 47.0, 13.0), ("qwen3-30b-a3b", 30.5, 3.3), ("deepseek-v3", 671.0, 37.0)];
    for (preset, all, active) in published {
        let ours = estimate(preset, &ModelWorkload::inference(1));
        let billions = |number: u64| number as f64 / 1e9;
        assert!((billions(ours.parameters) / all - 1.0).abs() < 0.02, "{preset}: {}", ours.parameters);
        let used = billions(ours.active_parameters.unwrap());
        assert!((used / active - 1.0).abs() < 0.02, "{preset}: {used}");
    }
    let dense = estimate("llama-3-8b", &ModelWorkload::inference(1));
    assert_eq!(dense.active_parameters, Some(dense.parameters));
}

#[test]
fn a_window_bounds_the_cache_of_the_layers_that_have_one() {
    let cache = |preset, context| estimate(preset, &ModelWorkload::inference(context)).kv_cache_bytes.unwrap();
    // Jiang et al. 2023: at 32k the window of 4096 makes the cache 8 times smaller.
    assert_eq!(cache("mistral-7b", 32768), cache("mixtral-8x7b", 32768) / 8);
    assert_eq!(cache("mistral-7b", 4096), cache("mixtral-8x7b", 4096));
    // Every other layer of Gemma 2.
    assert_eq!(cache("gemma-2-9b", 8192), cache("gemma-2-9b", 4096) / 2 * 3);
}

#[test]
fn caches_follow_batch_type_and_the_encoder() {
    let cache = |preset, work: &ModelWorkload| estimate(preset, work).kv_cache_bytes.unwrap();
    let one = ModelWorkload::inference(512);
    assert_eq!(cache("bert-base", &one), 0, "an encoder keeps none");
    // Own keys and values, and those of the encoder's output: 12 layers, 768 wide, 4 bytes.
    assert_eq!(cache("t5-base", &one), 2 * 512 * 12 * 2 * 768 * 4);
    let batch = ModelWorkload { batch: 3, ..one.clone() };
    assert_eq!(cache("gpt2", &batch), 3 * cache("gpt2", &one));
    let narrow = ModelWorkload { kv_dtype: ElementType::parse("q8_0"), ..one.clone() };
    assert_eq!(cache("llama-3-8b", &narrow), 512 * 32 * 2 * 1024 / 32 * 34);
    // Weights of 4 bits are computed with in 16.
    let quantized = ModelWorkload { dtype: ElementType::parse("q4_0"), ..one.clone() };
    assert_eq!(cache("gpt2", &quantized), cache("gpt2", &one) / 2);
}

#[test]
fn every_preset_is_known_and_others_are_refused() {
    for preset in PRESETS {
        let ours = estimate(preset, &ModelWorkload::inference(128));
        assert!(ours.total_bytes > ours.weights_bytes, "{preset}: {ours:?}");
    }
    let error = ModelShape::preset("gpt-5").unwrap_err().to_string();
    assert!(error.starts_with("gpt-5: --preset: there are gpt2, bert-base"), "{error}");
}
