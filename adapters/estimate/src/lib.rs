#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | what it is |
//! | --- | --- |
//! | `error`, `element` | the error; types of elements and their blocks |
//! | `model` | the shape of a model, and its parameters |
//! | `tensors`, `workload` | sums of a file's tensors; what the model is used for |
//! | `config` | `config.json`, by family of models |
//! | `presets`, `gguf`, `safetensors` | shapes by name; headers of files |
//! | `activations` | terms of activations |
//! | `estimate` | the sums |
#![forbid(unsafe_code)]

mod activations;
mod config;
mod element;
mod error;
mod estimate;
mod gguf;
mod model;
mod presets;
mod safetensors;
mod tensors;
mod workload;

pub use config::MAX_CONFIG;
pub use element::ElementType;
pub use error::EstimateError;
pub use estimate::{Estimate, MAX_BATCH, MAX_CONTEXT, ModelFacts};
pub use gguf::GgufHeader;
pub use model::{
    Activation, AttentionShape, Experts, FeedForward, LayerStack, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, ModelShape,
    Projection,
};
pub use presets::PRESETS;
pub use safetensors::{MAX_HEADER, ShardIndex, read_safetensors};
pub use tensors::TensorSums;
pub use workload::{Adapters, AttentionKernel, ModelWorkload, Optimizer, Training};
