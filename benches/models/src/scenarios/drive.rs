//! A scenario's way through a subject, and what came of it.
//!
//! Promises upward: each step is one call of the subject; a block that was refused is not freed; what is live at the end is
//! freed after the counters were read.
//! Asks from below: a [`Subject`].

use super::{Scenario, Step};
use crate::pytorch::BadOption;
use crate::{Growing, PyTorch, PyTorchOptions};
use terrace_core::{Allocator, Block, NoFence, Owner, Request, Stats};

/// What is measured.
pub trait Subject {
    /// What it hands out.
    type Block;

    /// Memory for work on a stream; `None` when it has none.
    fn allocate(&mut self, bytes: u64, stream: u32) -> Option<Self::Block>;

    /// Takes a block back, on the stream that it was allocated for.
    fn free(&mut self, block: Self::Block, stream: u32);

    /// What it counted so far.
    fn totals(&self) -> Totals;
}

/// What a subject counted, by the rule of [`scenarios`](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls to the device.
    pub calls: u64,
    /// Handles made for them.
    pub handles: u64,
    /// The most bytes ever taken from the device.
    pub peak_reserved: u64,
    /// The most bytes ever in live blocks, rounding included.
    pub peak_in_use: u64,
}

impl Totals {
    /// What an allocator's counters say.
    pub fn of(stats: &Stats) -> Self {
        let (peak_reserved, peak_in_use) = (stats.peak_reserved, stats.peak_in_use);
        Self { calls: stats.source_calls, handles: stats.handles, peak_reserved, peak_in_use }
    }
}

/// What came of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the subject counted.
    pub totals: Totals,
    /// The highest sum of live bytes as asked for, of blocks that were not refused.
    pub peak_live: u64,
    /// Allocations refused.
    pub failed: u64,
}

impl Outcome {
    /// Peak of live bytes as asked for / peak reserved; 0 when nothing was reserved.
    pub fn utilisation(&self) -> f64 {
        match self.totals.peak_reserved {
            0 => 0.0,
            reserved => self.peak_live as f64 / reserved as f64,
        }
    }
}

/// Takes a subject through a scenario.
pub fn run<S: Subject>(scenario: &Scenario, subject: &mut S) -> Outcome {
    let mut held: Vec<Option<(S::Block, u64, u32)>> = (0..scenario.slots).map(|_| None).collect();
    let (mut live, mut outcome) = (0, Outcome::default());
    for step in &scenario.steps {
        match *step {
            Step::Allocate { slot, bytes, stream } => match subject.allocate(bytes, stream) {
                Some(block) => {
                    held[slot as usize] = Some((block, bytes, stream));
                    live += bytes;
                    outcome.peak_live = outcome.peak_live.max(live);
                }
                None => outcome.failed += 1,
            },
            Step::Free { slot } => {
                if let Some((block, bytes, stream)) = held[slot as usize].take() {
                    live -= bytes;
                    subject.free(block, stream);
                }
            }
        }
    }
    outcome.totals = subject.totals();
    for (block, _, stream) in held.into_iter().flatten() {
        subject.free(block, stream);
    }
    outcome
}

/// Any allocator as a subject: owners are streams.
#[derive(Debug)]
pub struct Pooled<A>(pub A);

impl<A: Allocator> Subject for Pooled<A> {
    type Block = Block;

    fn allocate(&mut self, bytes: u64, stream: u32) -> Option<Block> {
        self.0.allocate(Request::new(bytes).owner(Owner(stream))).ok()
    }

    fn free(&mut self, block: Block, stream: u32) {
        // Refused only for a name that is not live; each block is freed once.
        let _ = self.0.free(block, Owner(stream));
    }

    fn totals(&self) -> Totals {
        Totals::of(&self.0.stats())
    }
}

/// PyTorch's allocator with `expandable_segments:True`, whose calls of the driver are counted one by one.
#[derive(Debug)]
pub struct Expandable(Pooled<PyTorch<Growing>>);

impl Expandable {
    /// Over a device of `capacity` bytes, 0 for no limit.
    ///
    /// # Errors
    /// Never, as long as the simulated device has pages of 2 MiB.
    pub fn new(capacity: u64) -> Result<Self, BadOption> {
        Self::within(capacity, None)
    }

    /// The same with a share of the capacity as `set_per_process_memory_fraction` sets it.
    ///
    /// # Errors
    /// A share that is none.
    pub fn within(capacity: u64, fraction: Option<f64>) -> Result<Self, BadOption> {
        let options = PyTorchOptions { expandable: true, fraction, ..PyTorchOptions::default() };
        PyTorch::with(Growing::new(capacity), NoFence, options).map(|policy| Self(Pooled(policy)))
    }
}

impl Subject for Expandable {
    type Block = Block;

    fn allocate(&mut self, bytes: u64, stream: u32) -> Option<Block> {
        self.0.allocate(bytes, stream)
    }

    fn free(&mut self, block: Block, stream: u32) {
        self.0.free(block, stream);
    }

    fn totals(&self) -> Totals {
        Totals { calls: self.0.0.driver_calls(), ..self.0.totals() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PyTorch, Segments};

    #[test]
    fn a_refused_block_is_counted_and_not_freed() {
        let steps = [
            Step::Allocate { slot: 0, bytes: 30 << 20, stream: 0 },
            Step::Allocate { slot: 1, bytes: 40 << 20, stream: 0 },
            Step::Free { slot: 1 },
            Step::Free { slot: 0 },
        ];
        let mut subject = Pooled(PyTorch::new(Segments::new(64 << 20)));
        let outcome = run(&Scenario::new("refused", steps), &mut subject);
        assert_eq!((outcome.failed, outcome.peak_live), (1, 30 << 20));
        assert_eq!((outcome.totals.peak_reserved, outcome.totals.calls), (30 << 20, 1));
        assert_eq!(subject.0.stats().live_blocks, 0);
    }

    #[test]
    fn expandable_segments_count_each_handle() {
        // 30 MiB: two handles of 20 MiB, made and mapped, and opened together.
        let steps = [Step::Allocate { slot: 0, bytes: 30 << 20, stream: 0 }, Step::Free { slot: 0 }];
        let mut subject = Expandable::new(64 << 20).expect("pages of 2 MiB");
        let outcome = run(&Scenario::new("expandable", steps), &mut subject);
        assert_eq!((outcome.totals.calls, outcome.totals.handles), (5, 2));
        subject.0.0.trim();
        assert_eq!(subject.totals().calls, 9, "each is unmapped and released");
    }

    #[test]
    fn what_is_live_at_the_end_counts_and_is_freed() {
        let steps = [Step::Allocate { slot: 0, bytes: 5 << 20, stream: 0 }];
        let mut subject = Pooled(PyTorch::new(Segments::new(0)));
        let outcome = run(&Scenario::new("kept", steps), &mut subject);
        assert_eq!((outcome.totals.peak_in_use, outcome.utilisation()), (5 << 20, 0.25));
        assert_eq!(subject.0.stats().in_use, 0);
    }
}
