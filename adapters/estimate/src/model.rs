//! The shape of a transformer: numbers from which parameters and bytes follow.
//!
//! Promises upward: exact counts of parameters, in 128 bits, which no shape within the limits overflows.
//! Asks from below: types of elements.

use crate::element::ElementType;
use crate::error::EstimateError;
use serde::Serialize;

/// The most of any width or count: hidden size, heads, experts.
pub const MAX_WIDTH: u64 = 1 << 22;
/// The most entries of a vocabulary.
pub const MAX_VOCABULARY: u64 = 1 << 28;
/// The most layers of a stack.
pub const MAX_LAYERS: u64 = 1 << 14;

/// The shape of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelShape {
    /// Name of the preset, or the configuration's `model_type`.
    pub name: String,
    /// Type of its weights as published.
    pub dtype: ElementType,
    /// Entries of the vocabulary.
    pub vocabulary: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Whether there is no second matrix for the output: it is the embedding's, or the model has none.
    pub tied: bool,
    /// Rows of other learned tables: positions, token types.
    pub learned_rows: u64,
    /// Parameters outside of layers beside those: norms, poolers, biases of positions.
    pub other_parameters: u64,
    /// The most positions, where the configuration says so.
    pub positions: Option<u64>,
    /// Whether it was trained with dropout, which keeps a mask for each use.
    pub dropout: bool,
    /// Layers that see a whole text at once and keep no cache.
    pub encoder: Option<LayerStack>,
    /// Layers that see what came before, which the KV cache keeps.
    pub decoder: Option<LayerStack>,
}

/// Layers that are alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerStack {
    /// How many.
    pub layers: u64,
    /// How many of them attend to the last `window` positions only.
    pub windowed_layers: u64,
    /// Positions that those attend to.
    pub window: u64,
    /// Attention to the same sequence.
    pub attention: AttentionShape,
    /// Whether each layer also attends to the encoder's output.
    pub cross: bool,
    /// The dense feed-forward part.
    pub feed_forward: FeedForward,
    /// Experts in place of it, in all layers but the first few.
    pub experts: Option<Experts>,
    /// Norms of a layer.
    pub norms: u64,
    /// Whether norms have a bias beside their scale.
    pub norm_bias: bool,
}

/// How a layer attends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum AttentionShape {
    /// Multi-head, grouped-query or multi-query attention.
    Heads {
        /// Heads of queries.
        heads: u64,
        /// Heads of keys and of values.
        kv_heads: u64,
        /// Width of a head.
        head_dim: u64,
        /// Whether the projections of queries, keys and values have biases.
        input_bias: bool,
        /// Whether the output's projection has one.
        output_bias: bool,
        /// Whether queries and keys are normalised, head by head.
        head_norms: bool,
    },
    /// Multi-head latent attention: keys and values are made of one small vector, which is what the cache keeps.
    Latent {
        /// Heads.
        heads: u64,
        /// Width that queries are compressed to, if they are.
        query_rank: Option<u64>,
        /// Width that keys and values are compressed to.
        kv_rank: u64,
        /// Width of a head's keys without and with rotary positions.
        nope: u64,
        /// The latter, which all heads share.
        rope: u64,
        /// Width of a head's values.
        value: u64,
    },
}

/// A feed-forward part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeedForward {
    /// Its inner width.
    pub width: u64,
    /// Whether a second matrix gates the first (SwiGLU, GeGLU).
    pub gated: bool,
    /// Whether its matrices have biases.
    pub bias: bool,
    /// What is between its matrices.
    pub activation: Activation,
}

/// An activation function, by what a backward pass needs of it beside the next matrix's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Activation {
    /// Its result alone: ReLU.
    Result,
    /// Its input: GELU, SiLU.
    Input,
    /// Its input and three steps between: GELU by a tanh that is spelled out in PyTorch, as `gelu_new`.
    Steps,
}

/// Experts of a layer, each a feed-forward part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experts {
    /// How many.
    pub count: u64,
    /// How many of them a token goes to.
    pub active: u64,
    /// Inner width of one.
    pub width: u64,
    /// Inner width of those that every token goes to, all together; 0 for none.
    pub shared_width: u64,
    /// Parameters of the router beside a column for each expert: gates of shared experts, biases.
    pub router_parameters: u64,
    /// Layers without experts.
    pub dense_layers: u64,
}

/// A matrix of a layer that adapters may stand beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Projection {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
    /// Attention's output.
    Output,
    /// The feed-forward part's gate.
    Gate,
    /// The feed-forward part's first matrix.
    Up,
    /// The feed-forward part's last matrix.
    Down,
}

impl Projection {
    /// All, with their names on command lines.
    pub const ALL: [(&'static str, Self); 7] = [
        ("q", Self::Query),
        ("k", Self::Key),
        ("v", Self::Value),
        ("o", Self::Output),
        ("gate", Self::Gate),
        ("up", Self::Up),
        ("down", Self::Down),
    ];
}

/// Widths of an attention's parts for one token.
pub(crate) struct AttentionWidths {
    pub query: u128,
    /// Keys and values as they are computed with, all heads.
    pub key: u128,
    pub value: u128,
    /// What goes into the output's matrix.
    pub output: u128,
    /// What the cache keeps.
    pub cached: u128,
    /// What is kept beside queries, keys and values for a backward pass: compressed forms.
    pub compressed: u128,
    pub heads: u128,
}

fn wide(number: u64) -> u128 {
    u128::from(number)
}

impl AttentionShape {
    pub(crate) fn widths(&self) -> AttentionWidths {
        match *self {
            Self::Heads { heads, kv_heads, head_dim, .. } => {
                let (query, kv) = (wide(heads) * wide(head_dim), wide(kv_heads) * wide(head_dim));
                AttentionWidths {
                    query,
                    key: kv,
                    value: kv,
                    output: query,
                    cached: 2 * kv,
                    compressed: 0,
                    heads: wide(heads),
                }
            }
            Self::Latent { heads, query_rank, kv_rank, nope, rope, value } => {
                let query = wide(heads) * (wide(nope) + wide(rope));
                let (value, cached) = (wide(heads) * wide(value), wide(kv_rank) + wide(rope));
                let compressed = cached + query_rank.map_or(0, wide);
                AttentionWidths { query, key: query, value, output: value, cached, compressed, heads: wide(heads) }
            }
        }
    }

    /// Parameters, biases and norms included.
    fn parameters(&self, hidden: u128) -> u128 {
        let widths = self.widths();
        let output = widths.output * hidden;
        match *self {
            Self::Heads { head_dim, input_bias, output_bias, head_norms, .. } => {
                let inputs = widths.query + widths.key + widths.value;
                let biases = u128::from(input_bias) * inputs + u128::from(output_bias) * hidden;
                hidden * inputs + output + biases + u128::from(head_norms) * 2 * wide(head_dim)
            }
            Self::Latent { heads, query_rank, kv_rank, nope, .. } => {
                let query = match query_rank.map(wide) {
                    Some(rank) => hidden * rank + rank + rank * widths.query,
                    None => hidden * widths.query,
                };
                let expanded = wide(heads) * wide(nope) + widths.value;
                query + hidden * widths.cached + wide(kv_rank) * (1 + expanded) + output
            }
        }
    }
}

impl FeedForward {
    fn parameters(&self, hidden: u128) -> u128 {
        let (width, inputs) = (wide(self.width), 1 + u128::from(self.gated));
        (inputs + 1) * hidden * width + u128::from(self.bias) * (inputs * width + hidden)
    }
}

impl LayerStack {
    /// Parameters of all layers: in all, and of those that one token uses.
    fn parameters(&self, hidden: u128) -> [u128; 2] {
        let norms = wide(self.norms) * (1 + u128::from(self.norm_bias)) * hidden;
        let attention = self.attention.parameters(hidden) * (1 + u128::from(self.cross));
        let layers = wide(self.layers);
        let dense = self.feed_forward.parameters(hidden);
        let feed_forward = match &self.experts {
            None => [layers * dense; 2],
            Some(experts) => [experts.count, experts.active].map(|used| {
                let of = |width| FeedForward { width, ..self.feed_forward.clone() }.parameters(hidden);
                let shared = if experts.shared_width > 0 { of(experts.shared_width) } else { 0 };
                let router = hidden * wide(experts.count) + wide(experts.router_parameters);
                let dense_layers = wide(experts.dense_layers);
                dense_layers * dense + (layers - dense_layers) * (router + shared + wide(used) * of(experts.width))
            }),
        };
        feed_forward.map(|feed_forward| layers * (attention + norms) + feed_forward)
    }

    /// Inputs and outputs of a projection, and how many such matrices the stack has, for each kind there is.
    fn projections(&self, hidden: u128, projection: Projection) -> Vec<(u128, u128, u128)> {
        let widths = self.attention.widths();
        let attentions = wide(self.layers) * (1 + u128::from(self.cross));
        let mut found = match projection {
            Projection::Query => vec![(hidden, widths.query, attentions)],
            Projection::Key => vec![(hidden, widths.key, attentions)],
            Projection::Value => vec![(hidden, widths.value, attentions)],
            Projection::Output => vec![(widths.output, hidden, attentions)],
            Projection::Gate if !self.feed_forward.gated => Vec::new(),
            Projection::Gate | Projection::Up | Projection::Down => {
                let dense = self.experts.as_ref().map_or(self.layers, |experts| experts.dense_layers);
                let mut found = vec![(hidden, wide(self.feed_forward.width), wide(dense))];
                if let Some(experts) = &self.experts {
                    let layers = wide(self.layers - experts.dense_layers);
                    found.push((hidden, wide(experts.width), layers * wide(experts.count)));
                    found.push((hidden, wide(experts.shared_width), layers * u128::from(experts.shared_width > 0)));
                }
                found
            }
        };
        if projection == Projection::Down {
            found.iter_mut().for_each(|(input, output, _)| std::mem::swap(input, output));
        }
        found
    }

    fn check(&self, file: &str) -> Result<(), EstimateError> {
        let limits = |field, value, least, most| limit(file, field, value, least, most);
        limits("layers", self.layers, 1, MAX_LAYERS)?;
        limits("windowed layers", self.windowed_layers, 0, self.layers)?;
        limits("norms of a layer", self.norms, 0, 16)?;
        limits("inner width", self.feed_forward.width, 0, MAX_WIDTH)?;
        let widths: Vec<(&str, u64)> = match self.attention {
            AttentionShape::Heads { heads, kv_heads, head_dim, .. } => {
                limits("heads of keys and values", kv_heads, 1, heads)?;
                vec![("heads", heads), ("width of a head", head_dim), ("heads * width", heads.saturating_mul(head_dim))]
            }
            AttentionShape::Latent { heads, query_rank, kv_rank, nope, rope, value } => {
                let all = heads.saturating_mul(nope.saturating_add(rope).max(value));
                let query_rank = ("rank of queries", query_rank.unwrap_or(1));
                vec![("heads", heads), query_rank, ("rank of keys and values", kv_rank), ("heads * width", all)]
            }
        };
        widths.into_iter().try_for_each(|(field, value)| limits(field, value, 1, MAX_WIDTH))?;
        if let Some(experts) = &self.experts {
            limits("experts", experts.count, 1, MAX_WIDTH)?;
            limits("active experts", experts.active, 1, experts.count)?;
            limits("inner width of an expert", experts.width, 1, MAX_WIDTH)?;
            limits("inner width of shared experts", experts.shared_width, 0, MAX_WIDTH)?;
            limits("parameters of the router", experts.router_parameters, 0, MAX_WIDTH)?;
            limits("layers without experts", experts.dense_layers, 0, self.layers)?;
        }
        Ok(())
    }
}

/// The error of a number outside of its limits.
pub(crate) fn limit(file: &str, field: &str, value: u64, least: u64, most: u64) -> Result<(), EstimateError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(EstimateError::new(file, field, format!("{value} is not within {least} to {most}")))
}

impl ModelShape {
    /// Refuses shapes that no model has, beyond which counts could overflow.
    ///
    /// # Errors
    /// The first number outside of its limits; neither encoder nor decoder.
    pub fn check(&self) -> Result<(), EstimateError> {
        limit(&self.name, "hidden size", self.hidden, 1, MAX_WIDTH)?;
        limit(&self.name, "vocabulary", self.vocabulary, 1, MAX_VOCABULARY)?;
        limit(&self.name, "learned rows", self.learned_rows, 0, MAX_VOCABULARY)?;
        limit(&self.name, "other parameters", self.other_parameters, 0, 1 << 48)?;
        if self.stacks().next().is_none() {
            return Err(EstimateError::new(&self.name, "layers", "there is neither an encoder nor a decoder"));
        }
        self.stacks().try_for_each(|stack| stack.check(&self.name))
    }

    /// The encoder and the decoder, as far as there are.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = &LayerStack> {
        self.encoder.iter().chain(&self.decoder)
    }

    /// Parameters: in all, and of those that one token uses. The shape must have passed [`check`](Self::check).
    pub(crate) fn parameters(&self) -> [u128; 2] {
        let hidden = wide(self.hidden);
        let rows = wide(self.vocabulary) * (2 - u128::from(self.tied)) + wide(self.learned_rows);
        let outside = rows * hidden + wide(self.other_parameters);
        let mut sums = [outside; 2];
        for stack in self.stacks() {
            let [all, active] = stack.parameters(hidden);
            sums = [sums[0] + all, sums[1] + active];
        }
        sums
    }

    /// Parameters of low-rank adapters beside the matrices named.
    pub(crate) fn adapter_parameters(&self, rank: u64, targets: &[Projection]) -> u128 {
        let of = |target: &Projection| -> u128 {
            let matrices = self.stacks().flat_map(|stack| stack.projections(wide(self.hidden), *target));
            matrices.map(|(input, output, count)| wide(rank) * (input + output) * count).sum()
        };
        targets.iter().map(of).sum()
    }
}
