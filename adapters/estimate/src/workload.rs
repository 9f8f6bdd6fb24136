//! What a model is used for: so many texts of such a length, inference or training.

use crate::element::ElementType;
use crate::model::Projection;

/// What a model is used for.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelWorkload {
    /// Texts at once.
    pub batch: u64,
    /// Positions of a text: prompt and what is generated. For encoder and decoder, each.
    pub context: u64,
    /// The weights' type, in place of the published one.
    pub dtype: Option<ElementType>,
    /// The cache's type, in place of that of activations.
    pub kv_dtype: Option<ElementType>,
    /// Whether attention writes its scores to memory.
    pub attention: AttentionKernel,
    /// Whether it runs on a CPU, where PyTorch's dropout masks are as wide as elements; elsewhere they are bytes.
    pub cpu: bool,
    /// How it is trained; `None` for inference.
    pub training: Option<Training>,
}

impl ModelWorkload {
    /// Inference on one text, with attention that keeps no scores.
    pub fn inference(context: u64) -> Self {
        Self {
            batch: 1,
            context,
            dtype: None,
            kv_dtype: None,
            attention: AttentionKernel::Fused,
            cpu: false,
            training: None,
        }
    }
}

/// What attention leaves in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionKernel {
    /// Scores stay in registers, as FlashAttention keeps them.
    #[default]
    Fused,
    /// A score for each pair of positions is written.
    Eager,
}

/// How a model is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Adapters that are trained in place of the model.
    pub adapters: Option<Adapters>,
    /// Whether only inputs of layers are kept, and layers are computed again for the backward pass.
    pub checkpoint: bool,
    /// Whether gradients of several batches are added up before a step.
    pub accumulate: bool,
}

/// An optimizer, by what it keeps for each trained parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimizer {
    /// Two moments of the parameter's type, as PyTorch's AdamW.
    #[default]
    AdamW,
    /// Two moments and a copy of the parameter, in 32 bits, as mixed precision of Megatron and DeepSpeed.
    AdamWMixed,
}

/// Low-rank adapters (LoRA), in 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapters {
    /// Their rank.
    pub rank: u64,
    /// The matrices that they stand beside.
    pub targets: Vec<Projection>,
}
