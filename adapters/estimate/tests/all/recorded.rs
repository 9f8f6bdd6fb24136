//! Estimates against the peaks of recorded runs. What was run stands in the `.json` beside each recording.

use crate::trace::{RecordedStep, steps};
use std::path::{Path, PathBuf};
use terrace_estimate::{
    Adapters, AttentionKernel, ElementType, Estimate, ModelFacts, ModelShape, ModelWorkload, Optimizer, Projection,
    Training,
};

/// A recording in the repository.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(format!("{name}.csv.zst"))
}

/// A recording in the folder that `TERRACE_TRACES` names.
fn larger(test: &str, name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TERRACE_TRACES");
    if folder.is_none() {
        println!("SKIP {test}: set TERRACE_TRACES");
    }
    Some(Path::new(&folder?).join(format!("{name}.csv.zst")))
}

fn within_15_percent(what: &str, ours: u64, recorded: u64) {
    let difference = (ours as f64 / recorded as f64 - 1.0) * 100.0;
    println!("| {what} | {ours} | {recorded} | {difference:+.2} % |");
    assert!(difference.abs() <= 15.0, "{what}: {ours}, recorded {recorded}: {difference:+.1} %");
}

/// AdamW on a CPU, where PyTorch writes all scores if attention drops some.
fn training(batch: u64, context: u64) -> ModelWorkload {
    let training = Training { optimizer: Optimizer::AdamW, adapters: None, checkpoint: false, accumulate: false };
    let attention = AttentionKernel::Eager;
    ModelWorkload { batch, attention, cpu: true, training: Some(training), ..ModelWorkload::inference(context) }
}

#[test]
fn training_of_gpt2_takes_what_was_recorded() {
    let facts = ModelFacts { shape: Some(ModelShape::preset("gpt2").unwrap()), tensors: None };
    let recorded = steps(&kept("train_gpt2_small"));
    assert_eq!(recorded.len(), 6);
    let RecordedStep { input, before, optimizer, activations, peak, .. } = recorded[2];
    assert_eq!(input, 2 * 512 * 8, "two texts of 512 tokens");
    let ours = facts.estimate("gpt2", &training(2, 512)).unwrap();
    within_15_percent("GPT-2: activations", ours.activation_bytes.unwrap(), activations);
    within_15_percent("GPT-2: optimizer", ours.optimizer_bytes, optimizer);
    within_15_percent("GPT-2: weights", ours.weights_bytes, before - optimizer);
    within_15_percent("GPT-2: all at the peak", ours.total_bytes, peak);
    // On a GPU masks are bytes.
    let gpu = facts.estimate("gpt2", &ModelWorkload { cpu: false, ..training(2, 512) }).unwrap();
    within_15_percent("GPT-2: activations with masks of bytes", gpu.activation_bytes.unwrap(), activations);
}

/// The model of the recording `train_lora_ckpt`, by its description.
fn small_llama() -> ModelFacts {
    let config = r#"{"model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 32000, "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 2048}"#;
    let (shape, notes) = ModelShape::from_config("train_lora_ckpt", config.as_bytes()).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    ModelFacts { shape: Some(shape), tensors: None }
}

/// Rank 16 beside all matrices but the gate.
fn adapters(checkpoint: bool, context: u64) -> Estimate {
    let targets = Projection::ALL.into_iter().map(|(_, target)| target).filter(|target| *target != Projection::Gate);
    let adapters = Some(Adapters { rank: 16, targets: targets.collect() });
    let training = Training { optimizer: Optimizer::AdamW, adapters, checkpoint, accumulate: true };
    let work = ModelWorkload { batch: 2, training: Some(training), ..ModelWorkload::inference(context) };
    small_llama().estimate("train_lora_ckpt", &work).unwrap()
}

#[test]
fn adapters_with_checkpoints_take_what_was_recorded() {
    let Some(path) = larger("adapters_with_checkpoints_take_what_was_recorded", "train_lora_ckpt") else { return };
    let recorded = steps(&path);
    assert_eq!(recorded.len(), 12, "six steps of two micro-batches");
    for step in &recorded {
        let context = step.input / 16;
        let ours = adapters(true, context);
        let what = format!("LoRA, 2 * {context} tokens: activations");
        within_15_percent(&what, ours.activation_bytes.unwrap(), step.activations);
    }
    let largest = recorded.iter().max_by_key(|step| step.peak).unwrap();
    let ours = adapters(true, largest.input / 16);
    within_15_percent("LoRA: optimizer", ours.optimizer_bytes, largest.optimizer);
    within_15_percent("LoRA: gradients", ours.gradient_bytes, largest.gradients);
    within_15_percent("LoRA: weights", ours.weights_bytes, largest.before - largest.optimizer - largest.gradients);
    within_15_percent("LoRA: all at the peak", ours.total_bytes, largest.peak);
}

#[test]
fn checkpoints_keep_inputs_of_layers_only() {
    let (with, without) = (adapters(true, 2048), adapters(false, 2048));
    let (loss, inputs) = (3 * 4 * 4096 * 32000, 12 * 4096 * 768 * 2);
    let ends = 2 * 4096 * 768 * 2;
    assert_eq!(with.activation_bytes, Some(loss + inputs + ends));
    assert!(without.activation_bytes > with.activation_bytes.map(|bytes| bytes + 10 * inputs), "{without:?}");
}

#[test]
fn training_of_experts_takes_what_was_recorded_at_its_peak() {
    // Mixtral-like, 32-bit weights: at the peak the optimizer works on copies of all tensors at once.
    let config = r#"{"model_type": "mixtral", "torch_dtype": "float32", "vocab_size": 16000, "hidden_size": 512,
        "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
        "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2}"#;
    let (shape, _) = ModelShape::from_config("train_moe_mixtral", config.as_bytes()).unwrap();
    let recorded = steps(&kept("train_moe_mixtral"));
    let step = recorded.iter().max_by_key(|step| step.input).unwrap();
    assert_eq!(step.input, 2 * 448 * 8);
    let training = Training { optimizer: Optimizer::AdamW, adapters: None, checkpoint: false, accumulate: false };
    let work = ModelWorkload { batch: 2, training: Some(training), ..ModelWorkload::inference(448) };
    let ours = ModelFacts { shape: Some(shape), tensors: None }.estimate("train_moe_mixtral", &work).unwrap();
    within_15_percent("experts: weights", ours.weights_bytes, step.before - step.optimizer);
    within_15_percent("experts: optimizer", ours.optimizer_bytes, step.optimizer);
    within_15_percent("experts: all at the peak", ours.total_bytes, step.peak);
}

#[test]
fn inference_of_bert_takes_what_was_recorded() {
    let facts = ModelFacts { shape: Some(ModelShape::preset("bert-base").unwrap()), tensors: None };
    let recorded = steps(&kept("infer_bert_varlen"));
    assert_eq!(recorded.len(), 60);
    // Of very few tokens the pooler's and the mask's few bytes are a large part.
    for step in recorded.iter().filter(|step| step.input >= 8 * 100) {
        let dtype = Some(ElementType::BF16);
        let ours =
            facts.estimate("bert-base", &ModelWorkload { dtype, ..ModelWorkload::inference(step.input / 8) }).unwrap();
        within_15_percent("BERT: activations", ours.activation_bytes.unwrap(), step.activations);
        within_15_percent("BERT: weights", ours.weights_bytes, step.before);
    }
}

#[test]
fn mixed_precision_keeps_twelve_bytes_a_parameter() {
    // Rajbhandari et al. 2020, ZeRO, section 3.1: 2 bytes of weights, 2 of gradients, 12 of the optimizer.
    let facts = ModelFacts { shape: Some(ModelShape::preset("llama-2-7b").unwrap()), tensors: None };
    let training = Training { optimizer: Optimizer::AdamWMixed, adapters: None, checkpoint: true, accumulate: false };
    let ours =
        facts.estimate("7b", &ModelWorkload { training: Some(training), ..ModelWorkload::inference(512) }).unwrap();
    let parameters = ours.parameters;
    assert_eq!((ours.weights_bytes, ours.gradient_bytes), (2 * parameters, 2 * parameters));
    assert_eq!(
        (ours.optimizer_bytes, ours.trained_parameters, ours.kv_cache_bytes),
        (12 * parameters, parameters, Some(0))
    );
}
