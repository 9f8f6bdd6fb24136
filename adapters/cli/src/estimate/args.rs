//! Arguments of `terrace estimate`. Comments on fields are the text of its help.

use crate::gpu::DriverArgs;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use terrace_estimate::{
    Adapters, AttentionKernel, ElementType, ModelWorkload, Optimizer, PRESETS, Projection, Training,
};

const HELP: &str = "\
Examples:
  terrace estimate --preset llama-3-8b --batch 8 --context 8192 --fit
  terrace estimate models/Qwen2.5-7B                 # a folder: config.json, and weights if they are there
  terrace estimate model-q4_k_m.gguf --context 32768 --kv-dtype q8_0
  terrace estimate config.json --dtype bf16 --train adamw-mixed --batch 4 --checkpoint
  terrace estimate --preset llama-2-7b --train adamw --lora 16:q,v --checkpoint --accumulate
  terrace estimate --preset mixtral-8x7b --json | jq '[.parameters, .active_parameters, .weights_bytes]'

Weights are counted from the shape, or are what the file's tensors take; of files only headers are read. Beside a safetensors
file its config.json says the shape; without it only weights are known.

The cache holds --context positions of each text, in layers with a window no more than that. Activations of inference are the
working memory while a whole text is read at once; of training, what the backward pass needs. The total is the peak: weights,
cache, optimizer, and the more of two: activations (and gradients with --accumulate), or gradients and an optimizer's step.
What a framework keeps beside tensors is not in it: a CUDA context, workspaces, fragmentation.

With --fit: which device has room for all of it and why the others are passed by, and which tiers of this machine would hold it.

Exit codes: 0 done, whether or not it fits; 2 bad input or usage: one error that names file and field.";

/// Arguments of `terrace estimate`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct EstimateArgs {
    /// A config.json, NAME.safetensors, its index (NAME.safetensors.index.json), NAME.gguf, or a folder of a model.
    #[arg(value_name = "MODEL", required_unless_present = "preset", conflicts_with = "preset")]
    pub model: Option<PathBuf>,
    /// A well-known model in place of a file.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PRESETS))]
    pub preset: Option<String>,
    /// Texts at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: u64,
    /// Positions of a text [default: those of the model, at most 4096].
    #[arg(long, value_name = "N")]
    pub context: Option<u64>,
    /// Type of the weights, such as bf16, f32, q4_k [default: that of the file or of the configuration].
    #[arg(long, value_name = "TYPE", value_parser = element)]
    pub dtype: Option<ElementType>,
    /// Type of the KV cache [default: that of activations].
    #[arg(long, value_name = "TYPE", value_parser = element)]
    pub kv_dtype: Option<ElementType>,
    /// Whether attention writes its scores to memory (eager) or keeps them in registers (fused).
    #[arg(long, value_enum, default_value_t = Kernel::Fused)]
    pub attention: Kernel,
    /// It runs on a CPU, where masks of dropout are as wide as elements.
    #[arg(long)]
    pub cpu: bool,
    /// Count training with this optimizer: adamw, or adamw-mixed with copies of weights and moments in 32 bits.
    #[arg(long, value_enum, value_name = "OPTIMIZER")]
    pub train: Option<OptimizerName>,
    /// Train low-rank adapters of this rank, beside all matrices or those named: q, k, v, o, gate, up, down.
    #[arg(long, value_name = "RANK[:MATRIX,..]", value_parser = adapters, requires = "train")]
    pub lora: Option<Adapters>,
    /// Keep only inputs of layers, and compute layers again for the backward pass.
    #[arg(long, requires = "train")]
    pub checkpoint: bool,
    /// Add up gradients of several batches before a step.
    #[arg(long, requires = "train")]
    pub accumulate: bool,
    /// Say which device and which tiers of this machine would hold it.
    #[arg(long)]
    pub fit: bool,
    /// Print JSON in place of the text.
    #[arg(long)]
    pub json: bool,
    /// Which driver to use.
    #[command(flatten)]
    pub driver: DriverArgs,
}

/// How attention treats its scores.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Kernel {
    /// As FlashAttention.
    Fused,
    /// Written for each pair of positions.
    Eager,
}

/// An optimizer's name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OptimizerName {
    /// Moments of the weights' type, as PyTorch's.
    Adamw,
    /// Mixed precision: weights' copies and moments in 32 bits.
    AdamwMixed,
}

impl EstimateArgs {
    /// What the model is used for, with so many positions.
    pub fn workload(&self, context: u64) -> ModelWorkload {
        let attention = match self.attention {
            Kernel::Fused => AttentionKernel::Fused,
            Kernel::Eager => AttentionKernel::Eager,
        };
        let training = self.train.map(|optimizer| Training {
            optimizer: match optimizer {
                OptimizerName::Adamw => Optimizer::AdamW,
                OptimizerName::AdamwMixed => Optimizer::AdamWMixed,
            },
            adapters: self.lora.clone(),
            checkpoint: self.checkpoint,
            accumulate: self.accumulate,
        });
        let (dtype, kv_dtype) = (self.dtype, self.kv_dtype);
        ModelWorkload { batch: self.batch, context, dtype, kv_dtype, attention, cpu: self.cpu, training }
    }
}

fn element(text: &str) -> Result<ElementType, String> {
    ElementType::parse(text).ok_or_else(|| format!("there are {}", ElementType::names()))
}

/// Parses `16` or `16:q,v`.
fn adapters(text: &str) -> Result<Adapters, String> {
    let (rank, names) = text.split_once(':').map_or((text, None), |(rank, names)| (rank, Some(names)));
    let known = || Projection::ALL.map(|(name, _)| name).join(", ");
    let target = |name: &str| {
        let found = Projection::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, target)| target);
        found.ok_or_else(|| format!("`{name}` is no matrix; there are {}", known()))
    };
    let all = || Ok(Projection::ALL.map(|(_, target)| target).to_vec());
    let mut targets = names.map_or_else(all, |names| names.split(',').map(target).collect::<Result<Vec<_>, _>>())?;
    // A matrix that is named twice has one adapter.
    let mut seen = Vec::new();
    targets.retain(|target| {
        !seen.contains(target) && {
            seen.push(*target);
            true
        }
    });
    let rank =
        rank.parse().map_err(|_| format!("give a rank, or a rank and matrices: 16:q,v; there are {}", known()))?;
    Ok(Adapters { rank, targets })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_beside_all_matrices_or_those_named() {
        assert_eq!(adapters("8").map(|adapters| (adapters.rank, adapters.targets.len())), Ok((8, 7)));
        let two = Adapters { rank: 16, targets: vec![Projection::Query, Projection::Value] };
        assert_eq!(adapters("16:q,v,q"), Ok(two));
        for bad in ["", "x", "8:", "8:q,w", "-1:q"] {
            assert!(adapters(bad).is_err_and(|error| error.contains("gate, up, down")), "{bad}");
        }
    }
}
