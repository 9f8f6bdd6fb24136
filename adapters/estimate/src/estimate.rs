//! The estimate: bytes of each kind, and of all at the peak.
//!
//! Promises upward: exact sums of the model that `docs/design.md` describes; a number beyond 64 bits is an error.
//! Asks from below: the shape, sums of tensors, terms of activations.

use crate::activations;
use crate::element::ElementType;
use crate::error::EstimateError;
use crate::model::{MAX_WIDTH, ModelShape, limit};
use crate::tensors::TensorSums;
use crate::workload::{ModelWorkload, Optimizer, Training};
use serde::Serialize;

/// The most texts at once.
pub const MAX_BATCH: u64 = 1 << 20;
/// The most positions of a text.
pub const MAX_CONTEXT: u64 = 1 << 30;

/// A model: its shape, its tensors, or both. Where there are tensors, weights are what they take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelFacts {
    /// What a configuration says.
    pub shape: Option<ModelShape>,
    /// What files of weights hold.
    pub tensors: Option<TensorSums>,
}

/// Memory of a model at work. The field names are keys of the JSON of `terrace estimate`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Parameters of the model, without adapters.
    pub parameters: u64,
    /// Parameters that one token uses, which is fewer where there are experts.
    pub active_parameters: Option<u64>,
    /// Bytes of weights, adapters included.
    pub weights_bytes: u64,
    /// Bytes of the KV cache; `None` without a shape.
    pub kv_cache_bytes: Option<u64>,
    /// Bytes of activations at their peak; `None` without a shape.
    pub activation_bytes: Option<u64>,
    /// Bytes that the optimizer keeps.
    pub optimizer_bytes: u64,
    /// Bytes of gradients once all are there.
    pub gradient_bytes: u64,
    /// Bytes that a step of the optimizer takes for a moment, where it works on all tensors at once.
    pub step_bytes: u64,
    /// Bytes at the peak: weights, cache, optimizer, and the more of two: activations, or gradients and a step.
    pub total_bytes: u64,
    /// Parameters that are trained.
    pub trained_parameters: u64,
    /// Type of the weights; `None` where files have several.
    pub dtype: Option<ElementType>,
}

impl ModelFacts {
    /// Estimates the memory of a workload. `name` stands in errors.
    ///
    /// # Errors
    /// Neither shape nor tensors; a shape or a workload beyond limits; training of weights in a type that only holds them; a
    /// number of bytes beyond 64 bits.
    ///
    /// # Example
    /// ```
    /// use terrace_estimate::{ModelFacts, ModelShape, ModelWorkload};
    /// let facts = ModelFacts { shape: Some(ModelShape::preset("llama-3-8b")?), ..ModelFacts::default() };
    /// let estimate = facts.estimate("llama-3-8b", &ModelWorkload::inference(8192))?;
    /// assert_eq!(estimate.parameters, 8_030_261_248);
    /// assert_eq!(estimate.kv_cache_bytes, Some(1 << 30));
    /// # Ok::<(), terrace_estimate::EstimateError>(())
    /// ```
    pub fn estimate(&self, name: &str, work: &ModelWorkload) -> Result<Estimate, EstimateError> {
        limit(name, "--batch", work.batch, 1, MAX_BATCH)?;
        limit(name, "--context", work.context, 1, MAX_CONTEXT)?;
        if let Some(shape) = &self.shape {
            shape.check()?;
        }
        let shape = self.shape.as_ref();
        let counted = shape.map(ModelShape::parameters);
        let (Some(parameters), published) = (self.parameters(counted), shape.map(|shape| shape.dtype)) else {
            return Err(EstimateError::new(name, "model", "there is neither a shape nor a tensor"));
        };
        let dtype = work.dtype.or(if self.tensors.is_some() { None } else { published });
        let weights = match (dtype, self.tensors) {
            (None, Some(tensors)) => u128::from(tensors.bytes),
            (dtype, _) => dtype.unwrap_or(ElementType::F32).bytes_of(parameters),
        };
        let element = dtype.or(published).unwrap_or(ElementType::BF16);
        let trained = Trained::new(name, self, parameters, element, work.training.as_ref())?;
        let activations = shape.map(|shape| activations::bytes(shape, work, element.computed_bytes()));
        let cache = shape.map(|shape| if work.training.is_some() { 0 } else { cache_bytes(shape, work, element) });
        let kept =
            if work.training.as_ref().is_some_and(|training| training.accumulate) { trained.gradients } else { 0 };
        let moving = (activations.unwrap_or(0) + kept).max(trained.gradients + trained.step);
        let weights = weights + trained.adapters;
        let total = weights + cache.unwrap_or(0) + trained.optimizer + moving;
        let fit = |field: &str, number: u128| {
            let what = || EstimateError::new(name, field, format!("{number} is more than 64 bits hold"));
            u64::try_from(number).map_err(|_| what())
        };
        let known = |field, number: Option<u128>| number.map(|number| fit(field, number)).transpose();
        Ok(Estimate {
            parameters: fit("parameters", parameters)?,
            active_parameters: known("active_parameters", counted.map(|[_, active]| active))?,
            weights_bytes: fit("weights_bytes", weights)?,
            kv_cache_bytes: known("kv_cache_bytes", cache)?,
            activation_bytes: known("activation_bytes", activations)?,
            optimizer_bytes: fit("optimizer_bytes", trained.optimizer)?,
            gradient_bytes: fit("gradient_bytes", trained.gradients)?,
            step_bytes: fit("step_bytes", trained.step)?,
            total_bytes: fit("total_bytes", total)?,
            trained_parameters: fit("trained_parameters", trained.parameters)?,
            dtype,
        })
    }

    /// Parameters: the tensors' elements, or what the shape counts where integers hold several weights each.
    fn parameters(&self, counted: Option<[u128; 2]>) -> Option<u128> {
        match (self.tensors, counted) {
            (Some(TensorSums { elements, integers: 1.., .. }), Some([all, _]))
                if u128::from(elements) < all / 10 * 9 =>
            {
                Some(all)
            }
            (Some(tensors), _) => Some(u128::from(tensors.elements)),
            (None, counted) => counted.map(|[all, _]| all),
        }
    }
}

/// Bytes that training needs beside weights and activations.
#[derive(Default)]
struct Trained {
    parameters: u128,
    adapters: u128,
    optimizer: u128,
    gradients: u128,
    step: u128,
}

impl Trained {
    fn new(
        name: &str,
        facts: &ModelFacts,
        parameters: u128,
        element: ElementType,
        training: Option<&Training>,
    ) -> Result<Self, EstimateError> {
        let Some(training) = training else { return Ok(Self::default()) };
        let (parameters, element, adapters) = match &training.adapters {
            Some(adapters) => {
                limit(name, "rank of adapters", adapters.rank, 1, MAX_WIDTH)?;
                let Some(shape) = &facts.shape else {
                    return Err(EstimateError::new(
                        name,
                        "--lora",
                        "needs the shape of the model: give its config.json",
                    ));
                };
                let parameters = shape.adapter_parameters(adapters.rank, &adapters.targets);
                (parameters, ElementType::F32, ElementType::F32.bytes_of(parameters))
            }
            None if !element.computes() => {
                let what = format!("{element} only holds weights; give --dtype bf16 or another float, or --lora");
                return Err(EstimateError::new(name, "--train", what));
            }
            None => (parameters, element, 0),
        };
        let (of_element, of_f32) = (element.bytes_of(parameters), ElementType::F32.bytes_of(parameters));
        let (optimizer, step) = match training.optimizer {
            Optimizer::AdamW => (2 * of_element, of_element),
            Optimizer::AdamWMixed => (3 * of_f32, of_f32),
        };
        Ok(Self { parameters, adapters, optimizer, gradients: of_element, step })
    }
}

/// Bytes of the KV cache: the decoder's own, and what it made of the encoder's output.
fn cache_bytes(shape: &ModelShape, work: &ModelWorkload, element: ElementType) -> u128 {
    let Some(stack) = &shape.decoder else { return 0 };
    let kind = work.kv_dtype.unwrap_or(if element.computes() { element } else { ElementType::BF16 });
    let (context, cached) = (u128::from(work.context), stack.attention.widths().cached);
    let windowed = u128::from(stack.windowed_layers);
    let positions = (u128::from(stack.layers) - windowed) * context + windowed * context.min(u128::from(stack.window));
    let crossed = if stack.cross { u128::from(stack.layers) * context } else { 0 };
    kind.bytes_of(u128::from(work.batch) * (positions + crossed) * cached)
}
