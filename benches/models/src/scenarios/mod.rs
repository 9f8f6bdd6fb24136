//! Five scenarios: lists of operations, the same for every allocator that is measured.
//!
//! | name | operations | what it is for |
//! | --- | --- | --- |
//! | `same` | blocks of 1 MiB, 100 at a time, freed last to first | caches |
//! | `large` | 64 MiB to 1 GiB, 1000 random steps | fragmentation by what is large |
//! | `recorded` | what a program did ([`Scenario::recorded`]) | life |
//! | `tight` | the same in 1.1 times its peak ([`Scenario::tight`]) | pressure |
//! | `mixed` | 512 B to 256 MiB, all magnitudes alike, 1000 live, 10^5 steps | variable sizes |
//!
//! Eight more hurt allocators of device memory: [`Scenario::hostile`]. Four are about pinned host memory: [`Scenario::request`], [`Scenario::staging`], [`Scenario::checkpoint`],
//! [`Scenario::kv`].
//!
//! ```text
//!   Scenario: steps, limit ──► run ──► Subject: a model, an arena, a device
//!                               └────► Outcome: calls, handles, peaks, failures
//! ```
//!
//! Promises upward: the same steps on every machine and in every year; a slot is filled by one step and emptied by another,
//! and never filled twice in between; sizes are at least 1.
//! Asks from below: nothing; recorded events, where there are any, come from the caller.
//!
//! # The counting rule
//! One *call* is one call of the driver: a segment taken or given back; of pages, a handle created, mapped or released, a range opened
//! or unmapped. (An arena over [`Growing`](crate::Growing), which has no driver, counts a contiguous range mapped, unmapped or moved as
//! one.) One *handle* is a segment, or physical memory that is created at once. *Utilisation* is the highest sum of live bytes as asked for, over the highest sum of bytes taken
//! from the device. All subjects count so.
//!
//! # Example
//! ```
//! use terrace_models::scenarios::{Pooled, Scenario, run};
//! use terrace_models::{PyTorch, Segments};
//!
//! let outcome = run(&Scenario::same(10), &mut Pooled(PyTorch::new(Segments::new(0))));
//! // 100 blocks of 1 MiB, two in each segment of 2 MiB.
//! assert_eq!((outcome.totals.calls, outcome.utilisation()), (50, 1.0));
//! ```

mod device;
mod drive;
mod hostile;
mod made;
mod pinned;
mod recorded;

pub use device::OnDevice;
pub use drive::{Expandable, Outcome, Pooled, Subject, Totals, run};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Fill an empty slot.
    Allocate {
        /// Which one. Slots are dense from 0.
        slot: u32,
        /// At least 1.
        bytes: u64,
        /// For work on which stream, dense from 0.
        stream: u32,
    },
    /// Empty a slot that was filled; its block is of the stream that it was allocated for.
    Free {
        /// Which one.
        slot: u32,
    },
}

/// A list of operations, and how much memory there is for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What it is called in tables.
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
    /// All slots are below this.
    pub slots: u32,
    /// All streams are below this.
    pub streams: u32,
    /// The highest sum of live bytes as asked for.
    pub peak: u64,
    /// The most bytes to take from the device; 0: no limit.
    pub limit: u64,
}

/// What a subject may take beyond the peak where memory is tight: a tenth, in permille.
pub const TIGHT: u64 = 1100;

impl Scenario {
    /// A scenario of these steps. Steps that break the rules above are left out: no subject could do them.
    pub fn new(name: impl Into<String>, steps: impl IntoIterator<Item = Step>) -> Self {
        let mut kept = Vec::new();
        let mut held: Vec<u64> = Vec::new();
        let (mut streams, mut live, mut peak) = (0, 0, 0);
        for step in steps {
            let (Step::Allocate { slot, .. } | Step::Free { slot }) = step;
            let at = slot as usize;
            held.resize(held.len().max(at + 1), 0);
            match step {
                Step::Allocate { bytes, stream, .. } if held[at] == 0 && bytes > 0 => {
                    (held[at], live, streams) = (bytes, live + bytes, streams.max(stream + 1));
                    peak = peak.max(live);
                }
                Step::Free { .. } if held[at] > 0 => live -= std::mem::take(&mut held[at]),
                _ => continue,
            }
            kept.push(step);
        }
        Self { name: name.into(), steps: kept, slots: held.len() as u32, streams, peak, limit: 0 }
    }

    /// The blocks that are live at the highest sum of live bytes within some of the steps, without those that were live before:
    /// (bytes, how many), as a warm-up takes them.
    pub fn at_peak(&self, within: std::ops::Range<usize>) -> Vec<(u64, u32)> {
        let (mut live, mut best, mut at) = (0, 0, within.start);
        self.play(within.end, |count, bytes| {
            live += bytes;
            if count > within.start && live > best {
                (best, at) = (live, count);
            }
        });
        let (before, peak) = (self.play(within.start, |_, _| ()), self.play(at, |_, _| ()));
        let mut sizes = std::collections::BTreeMap::new();
        for (bytes, _) in peak.into_iter().zip(before).filter(|(bytes, before)| *bytes > 0 && bytes != before) {
            *sizes.entry(bytes).or_default() += 1;
        }
        sizes.into_iter().collect()
    }

    /// The bytes in each slot after so many steps; says after each step how many were done and how live bytes changed.
    fn play(&self, steps: usize, mut done: impl FnMut(usize, i64)) -> Vec<u64> {
        let mut held = vec![0; self.slots as usize];
        for (at, step) in self.steps.iter().take(steps).enumerate() {
            let (slot, now) = match *step {
                Step::Allocate { slot, bytes, .. } => (slot as usize, bytes),
                Step::Free { slot } => (slot as usize, 0),
            };
            let before = std::mem::replace(&mut held[slot], now);
            done(at + 1, now as i64 - before as i64);
        }
        held
    }

    /// The same in so many permille of its peak, under another name.
    pub fn limited(&self, name: impl Into<String>, permille: u64) -> Self {
        let limit = (u128::from(self.peak) * u128::from(permille)).div_ceil(1000);
        Self { name: name.into(), limit: u64::try_from(limit).unwrap_or(u64::MAX), ..self.clone() }
    }

    /// The same with [`TIGHT`] permille of its peak.
    pub fn tight(&self) -> Self {
        self.limited(format!("tight {}", self.name), TIGHT)
    }

    /// The same with every size divided by 2^`shift` (and at least 1), for devices that are smaller.
    pub fn scaled(&self, shift: u32) -> Self {
        let smaller = |bytes: u64| bytes.checked_shr(shift).unwrap_or(0).max(1);
        let steps = self.steps.iter().map(|&step| match step {
            Step::Allocate { slot, bytes, stream } => Step::Allocate { slot, bytes: smaller(bytes), stream },
            free @ Step::Free { .. } => free,
        });
        let scaled = Self::new(self.name.clone(), steps);
        if self.limit == 0 { scaled } else { Self { limit: smaller(self.limit), ..scaled } }
    }
}

#[cfg(test)]
mod tests {
    use super::{Scenario, Step};

    #[test]
    fn what_is_live_at_the_peak_of_some_steps_without_what_was_live_before() {
        let allocate = |slot, bytes| Step::Allocate { slot, bytes, stream: 0 };
        let free = |slot| Step::Free { slot };
        let steps = [allocate(0, 100), allocate(1, 10), allocate(2, 30), free(1), allocate(1, 30), free(2), free(1)];
        let scenario = Scenario::new("peak", steps);
        assert_eq!(scenario.at_peak(1..7), [(30, 2)]);
        assert_eq!(scenario.at_peak(0..3), [(10, 1), (30, 1), (100, 1)]);
        assert_eq!(scenario.at_peak(5..7), [], "less and less");
    }
}
