//! How far memory fills, what a block costs, and how often a block grows where it is.
//!
//! Promises upward: the same requests for every heap, as long as it serves them; shares are of all the memory given, what
//! the heap keeps in it for itself included.
//! Asks from below: [`Subject`].

#![allow(unsafe_code, reason = "blocks are given back by pointers")]

use super::run::Memory;
use super::subjects::{Block, Subject, Task};
use super::works::{NATURAL, Request, log_uniform};
use clap::ValueEnum;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::alloc::Layout;

/// Sizes that fill memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
pub enum Mix {
    /// 8 to 64 bytes, 1 MiB.
    Tiny,
    /// 16 to 512 bytes, 1 MiB.
    Middle,
    /// Log-uniform 16 bytes to 64 KiB, 4 MiB.
    Wide,
    /// 16 to 2048 bytes at alignments of 64 to 4096, 4 MiB.
    Aligned,
    /// Log-uniform 16 bytes to 64 KiB, 16 MiB; half of the blocks go at each failure.
    Churn,
    /// Up to 10,000 bytes, 16 MiB; four calls of ten grow a block to at most 100,000 bytes. An empty heap follows each
    /// failure. After the heap efficiency benchmark of talc, whose calls also shrink blocks.
    Growth,
}

impl Mix {
    /// In words, for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Tiny => "8..64",
            Self::Middle => "16..512",
            Self::Wide => "log-uniform",
            Self::Aligned => "aligned",
            Self::Churn => "16 MiB churn",
            Self::Growth => "growth",
        }
    }

    /// Bytes of memory.
    pub fn memory(self) -> usize {
        match self {
            Self::Tiny | Self::Middle => 1 << 20,
            Self::Wide | Self::Aligned => 4 << 20,
            Self::Churn | Self::Growth => 16 << 20,
        }
    }

    fn request(self, random: &mut Rng) -> Request {
        match self {
            Self::Tiny => (random.u32(8..=64), NATURAL),
            Self::Middle => (random.u32(16..=512), NATURAL),
            Self::Wide | Self::Churn => (log_uniform(random, 16, 64 << 10), NATURAL),
            Self::Aligned => (random.u32(16..=2048), 1 << random.u32(6..=12)),
            Self::Growth => (random.u32(1..=10_000), NATURAL),
        }
    }
}

fn layout((size, align): Request) -> Layout {
    Layout::from_size_align(size as usize, align as usize).unwrap_or(Layout::new::<u64>())
}

/// Live payload over memory at the moments at which a request was refused, averaged. After each, one random block is
/// freed (of [`Mix::Churn`] half of all, of [`Mix::Growth`] all) and the next request follows. `None`: it does not fit.
#[derive(Debug)]
pub struct Share<'a> {
    /// Sizes.
    pub mix: Mix,
    /// Refusals; the first quarter of them is not averaged. Of the last two mixes a thousandth, and all of them are.
    pub refusals: usize,
    /// Of the sizes.
    pub seed: u64,
    /// Where.
    pub memory: &'a mut Memory,
}

impl Task for Share<'_> {
    type Output = Option<f64>;

    fn run<S: Subject>(self) -> Option<f64> {
        let bytes = self.mix.memory();
        if self.mix == Mix::Growth {
            return self.after_growth::<S>();
        }
        let mut heap: S = self.memory.heap(bytes)?;
        let mut random = Rng::with_seed(self.seed);
        let mut live: Vec<(S::Block, Layout)> = Vec::new();
        let (mut payload, mut sum, mut refused) = (0, 0, 0);
        let churn = self.mix == Mix::Churn;
        let refusals = if churn { (self.refusals / 1000).max(2) } else { self.refusals };
        let unused = if churn { 0 } else { refusals / 4 };
        while refused < refusals {
            let layout = layout(self.mix.request(&mut random));
            if let Some(block) = heap.allocate(layout) {
                payload += layout.size();
                live.push((block, layout));
                continue;
            }
            refused += 1;
            sum += if refused > unused { payload } else { 0 };
            if live.is_empty() {
                // Nothing to free and nothing served: it will not get better.
                return Some(0.0);
            }
            for _ in 0..if churn { live.len() / 2 } else { 1 } {
                let (block, layout) = live.swap_remove(random.usize(0..live.len()));
                payload -= layout.size();
                // SAFETY: live until here, of this layout.
                unsafe { heap.free(block, layout) };
            }
        }
        Some(sum as f64 / (refusals - unused) as f64 / bytes as f64)
    }
}

/// The largest size that [`Mix::Growth`] asks a block to grow to.
const GROWN: usize = 100_000;

impl Share<'_> {
    /// The average over heaps that each serve [`Mix::Growth`] until the first failure.
    fn after_growth<S: Subject>(self) -> Option<f64> {
        let (bytes, heaps) = (self.mix.memory(), (self.refusals / 1000).max(2));
        let mut random = Rng::with_seed(self.seed);
        let mut payload = 0;
        for _ in 0..heaps {
            let mut heap: S = self.memory.heap(bytes)?;
            let live = grow_until_refused(&mut heap, &mut random);
            payload += live.iter().map(|(_, layout)| layout.size()).sum::<usize>();
        }
        Some(payload as f64 / (heaps * bytes) as f64)
    }
}

/// Of ten calls five allocate, one frees and four grow a random block. Returns the blocks that live at the first failure.
fn grow_until_refused<S: Subject>(heap: &mut S, random: &mut Rng) -> Vec<(S::Block, Layout)> {
    let mut live: Vec<(S::Block, Layout)> = Vec::new();
    loop {
        let (call, pick) = (random.u32(0..10), random.usize(0..live.len().max(1)));
        if call < 5 || live.is_empty() {
            let layout = layout(Mix::Growth.request(random));
            let Some(block) = heap.allocate(layout) else { return live };
            live.push((block, layout));
        } else if call == 5 {
            let (block, layout) = live.swap_remove(pick);
            // SAFETY: live until here, of this layout.
            unsafe { heap.free(block, layout) };
        } else {
            let (block, old) = live[pick];
            let new = layout((random.usize(1..GROWN).max(old.size()) as u32, NATURAL));
            // SAFETY: live, of this layout; the new size is at least the old one.
            let Some(grown) = (unsafe { heap.grow(block, old, new.size()) }) else { return live };
            live[pick] = (grown, new);
        }
    }
}

/// Bytes of memory that a block of a size takes beyond it, everything that grows with the memory included: how many
/// blocks more fit into twice the memory. `None`: it does not fit.
#[derive(Debug)]
pub struct Overhead<'a> {
    /// Bytes of each block.
    pub size: u32,
    /// Where.
    pub memory: &'a mut Memory,
}

impl Task for Overhead<'_> {
    type Output = Option<f64>;

    fn run<S: Subject>(self) -> Option<f64> {
        // Twice this is what the narrowest records can have.
        const BYTES: usize = 256 << 10;
        let mut blocks = [0; 2];
        for (bytes, blocks) in [BYTES, 2 * BYTES].into_iter().zip(&mut blocks) {
            let mut heap: S = self.memory.heap(bytes)?;
            let layout = layout((self.size, NATURAL));
            *blocks = std::iter::repeat_with(|| heap.allocate(layout)).take_while(Option::is_some).count();
        }
        let more = blocks[1].checked_sub(blocks[0]).filter(|&more| more > 0)?;
        Some(BYTES as f64 / more as f64 - f64::from(self.size))
    }
}

/// Of the doublings of vectors the share that was served in place: 16 vectors grow from 16 bytes to 64 KiB, in random
/// order, with small blocks coming and going between them; 8 MiB. `None`: it does not fit.
#[derive(Debug)]
pub struct InPlace<'a> {
    /// How often all of that is done.
    pub rounds: usize,
    /// Of the order.
    pub seed: u64,
    /// Where.
    pub memory: &'a mut Memory,
}

/// Memory of [`InPlace`].
const VECTORS_IN: usize = 8 << 20;
const VECTORS: usize = 16;
/// Bytes of a vector at first and at last.
const VECTOR: [usize; 2] = [16, 64 << 10];
/// Small blocks that live beside them.
const SMALL: usize = 200;

impl Task for InPlace<'_> {
    type Output = Option<f64>;

    fn run<S: Subject>(self) -> Option<f64> {
        let mut heap: S = self.memory.heap(VECTORS_IN)?;
        let mut random = Rng::with_seed(self.seed);
        let (mut doublings, mut in_place, mut small) = (0u32, 0u32, Vec::new());
        for _ in 0..self.rounds {
            let first = layout((VECTOR[0] as u32, NATURAL));
            let mut growing = (0..VECTORS).map(|_| Some((heap.allocate(first)?, first))).collect::<Option<Vec<_>>>()?;
            let mut grown_up = Vec::new();
            while !growing.is_empty() {
                let pick = random.usize(0..growing.len());
                let (block, old) = growing[pick];
                let new = layout((2 * old.size() as u32, NATURAL));
                // SAFETY: live, of this layout; the new size is larger.
                let grown = unsafe { heap.grow(block, old, new.size()) }?;
                doublings += 1;
                in_place += u32::from(grown.address() == block.address());
                growing[pick] = (grown, new);
                if new.size() >= VECTOR[1] {
                    grown_up.push(growing.swap_remove(pick));
                }
                let beside = layout((random.u32(16..=128), NATURAL));
                small.push((heap.allocate(beside)?, beside));
                if small.len() > SMALL {
                    let (block, layout) = small.swap_remove(random.usize(0..small.len()));
                    // SAFETY: live until here, of this layout.
                    unsafe { heap.free(block, layout) };
                }
            }
            for (block, layout) in grown_up {
                // SAFETY: live until here, of this layout.
                unsafe { heap.free(block, layout) };
            }
        }
        Some(f64::from(in_place) / f64::from(doublings.max(1)))
    }
}
