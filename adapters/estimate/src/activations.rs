//! Activations: what a backward pass needs, or the working memory of a forward pass.
//!
//! The terms are those of Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
//! section 4, without tensor parallelism, in elements instead of bytes, and with what PyTorch keeps on top: results of
//! activation functions, and the loss. `docs/design.md` lists them, and where they do not hold.
//!
//! Promises upward: 128 bits hold every sum within the limits of shapes and workloads.
//! Asks from below: shapes.

use crate::model::{Activation, Experts, FeedForward, LayerStack, ModelShape};
use crate::workload::{AttentionKernel, ModelWorkload};

/// Bytes of activations at their peak, with elements of `element` bytes.
pub(crate) fn bytes(shape: &ModelShape, work: &ModelWorkload, element: u128) -> u128 {
    let terms = Terms {
        element,
        mask: if !shape.dropout {
            0
        } else if work.cpu {
            element
        } else {
            1
        },
        hidden: u128::from(shape.hidden),
        batch: u128::from(work.batch),
        context: u128::from(work.context),
        eager: work.attention == AttentionKernel::Eager,
    };
    match &work.training {
        None => shape.stacks().map(|stack| terms.forward(stack)).max().unwrap_or(0).max(terms.next_token(shape)),
        Some(training) => terms.kept(shape, training.checkpoint),
    }
}

struct Terms {
    /// Bytes of an element, and of one in a dropout's mask.
    element: u128,
    mask: u128,
    hidden: u128,
    batch: u128,
    context: u128,
    eager: bool,
}

impl Terms {
    fn tokens(&self) -> u128 {
        self.batch * self.context
    }

    /// Pairs of positions that a head scores, in the whole batch.
    fn pairs(&self) -> u128 {
        self.tokens() * self.context
    }

    /// Bytes that are kept for the backward pass.
    fn kept(&self, shape: &ModelShape, checkpoint: bool) -> u128 {
        // Behind the last layer: the last norm's input and output; the embedding's dropout.
        let ends = shape.stacks().count() as u128 * self.tokens() * self.hidden * (2 * self.element + self.mask);
        // The loss in 32 bits: its softmax, and the gradients of that and of its input.
        let loss = 3 * 4 * self.tokens() * u128::from(shape.vocabulary);
        let layers = || shape.stacks().map(|stack| (u128::from(stack.layers), stack));
        if checkpoint {
            let inputs: u128 = layers().map(|(count, _)| count * self.tokens() * self.hidden * self.element).sum();
            let layer =
                layers().flat_map(|(_, stack)| self.all_layers(stack)).map(|(_, bytes)| bytes).max().unwrap_or(0);
            return ends + inputs + loss.max(layer);
        }
        let all = layers().flat_map(|(_, stack)| self.all_layers(stack)).map(|(count, bytes)| count * bytes);
        ends + loss + all.sum::<u128>()
    }

    /// Layers that are alike, and bytes that one of them keeps.
    fn all_layers(&self, stack: &LayerStack) -> Vec<(u128, u128)> {
        let rest = self.attention(stack) * (1 + u128::from(stack.cross))
            + u128::from(stack.norms) * self.tokens() * self.hidden * self.element;
        let dense = rest + self.feed_forward(&stack.feed_forward);
        let layers = u128::from(stack.layers);
        match &stack.experts {
            None => vec![(layers, dense)],
            Some(experts) => {
                let plain = u128::from(experts.dense_layers);
                let routed = rest + self.experts(&stack.feed_forward, experts);
                [(plain, dense), (layers - plain, routed)].into_iter().filter(|(count, _)| *count > 0).collect()
            }
        }
    }

    /// Kept of one attention: its input, queries, keys, values, its output, a mask; and scores, if they are written.
    fn attention(&self, stack: &LayerStack) -> u128 {
        let widths = stack.attention.widths();
        // Eager attention repeats keys and values for each head of queries.
        let kv = if self.eager { widths.query + widths.output } else { widths.key + widths.value };
        let wide = self.hidden + widths.query + kv + widths.output + widths.compressed;
        let dropped = if self.mask > 0 { self.element + self.mask } else { 0 };
        let scores = if self.eager { self.pairs() * (self.element + dropped) } else { 4 * self.tokens() };
        self.tokens() * (wide * self.element + self.hidden * self.mask) + widths.heads * scores
    }

    /// Elements kept between a feed-forward part's matrices, for each of its width.
    fn between(part: &FeedForward) -> u128 {
        let function = match part.activation {
            Activation::Result => 0,
            Activation::Input => 1,
            Activation::Steps => 4,
        };
        // The last matrix's input; a gate keeps both that it multiplies.
        function + 1 + 2 * u128::from(part.gated)
    }

    fn feed_forward(&self, part: &FeedForward) -> u128 {
        let inner = Self::between(part) * u128::from(part.width);
        self.tokens() * ((self.hidden + inner) * self.element + self.hidden * self.mask)
    }

    /// Kept of experts: each token's way through as many as it goes to, and through those that all share.
    fn experts(&self, part: &FeedForward, experts: &Experts) -> u128 {
        let inner = Self::between(part);
        let routed = u128::from(experts.active) * (self.hidden * 2 + inner * u128::from(experts.width));
        let shared = inner * u128::from(experts.shared_width);
        self.tokens() * (self.hidden + routed + shared + u128::from(experts.count)) * self.element
    }

    /// Working memory of a forward pass over all positions: the residual stream, and the larger part of a layer.
    fn forward(&self, stack: &LayerStack) -> u128 {
        let widths = stack.attention.widths();
        let attention = widths.query + widths.key + widths.value + widths.output + widths.compressed;
        let scores = if self.eager { 2 * widths.heads * self.pairs() } else { 0 };
        let matrices = 2 + u128::from(stack.feed_forward.gated);
        let feed_forward = match &stack.experts {
            None => matrices * u128::from(stack.feed_forward.width),
            Some(experts) => {
                let routed = u128::from(experts.active) * (matrices * u128::from(experts.width) + self.hidden);
                let dense = if experts.dense_layers > 0 { matrices * u128::from(stack.feed_forward.width) } else { 0 };
                dense.max(routed + u128::from(experts.shared_width) * matrices)
            }
        };
        let attention = self.tokens() * attention + scores;
        // The layer's input, the stream, a norm's output, and the model's input, to which callers hold on.
        (4 * self.tokens() * self.hidden + attention.max(self.tokens() * feed_forward)) * self.element
    }

    /// Scores of each text's next token, and their copy in 32 bits.
    fn next_token(&self, shape: &ModelShape) -> u128 {
        if shape.decoder.is_none() {
            return 0;
        }
        self.batch * u128::from(shape.vocabulary) * (self.element + 4)
    }
}
