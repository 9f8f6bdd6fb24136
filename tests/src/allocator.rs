//! The contract of allocators.
//!
//! Promises upward: [`contract`] in one call, [`Contract`] where the defaults do not fit.
//! Asks from below: programs and the model.

use crate::drive::{self, Stopped};
use crate::failure::{Broken, Failure, rule};
use crate::model::{Model, nothing_handed_out};
use crate::program::{Shape, Step, program};
use terrace_core::{Allocator, Owner, Request};

/// Tests an allocator with the default programs: each on a fresh allocator from `make`, played twice.
///
/// # Errors
/// The first rule broken, with a short program that shows it.
pub fn contract<A: Allocator>(make: impl FnMut() -> A) -> Result<(), Failure> {
    Contract::new().check(make)
}

/// What the programs ask for.
///
/// # Example
/// ```
/// use terrace_core::pool::{Buckets, SizeClasses};
/// use terrace_core::sync::AtomicUsize;
/// use terrace_tests::Contract;
/// Contract::new()
///     .largest(256)
///     .check(|| {
///         let words: Vec<_> = (0..Buckets::words(&[8, 8, 8])).map(|_| AtomicUsize::new(0)).collect();
///         let steps = SizeClasses::new(64, 1).expect("64 is a power of two");
///         Buckets::new(steps, [8, 8, 8], 0, words.leak()).expect("enough words")
///     })
///     .unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Contract {
    programs: u64,
    seed: u64,
    shape: Shape,
    in_flight: bool,
}

impl Default for Contract {
    fn default() -> Self {
        Self::new()
    }
}

impl Contract {
    /// 64 programs of 150 steps; requests up to 64 KiB, alignments up to 4 KiB, three owners who free each other's blocks.
    pub const fn new() -> Self {
        let shape = Shape { steps: 150, largest: 64 << 10, align: 4096, owners: 3, remote: true };
        Self { programs: 64, seed: 0, shape, in_flight: false }
    }

    /// How many programs, and how many steps each has.
    pub const fn programs(mut self, programs: u64, steps: u64) -> Self {
        (self.programs, self.shape.steps) = (programs, steps);
        self
    }

    /// The seed of the first program; the others follow.
    pub const fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The largest request in bytes, at least 1: best about a sixteenth of what the allocator has, so that it fills up.
    pub const fn largest(mut self, bytes: u64) -> Self {
        self.shape.largest = if bytes == 0 { 1 } else { bytes };
        self
    }

    /// The largest alignment in bytes, rounded down to a power of two.
    pub const fn largest_align(mut self, bytes: u64) -> Self {
        self.shape.align = if bytes == 0 { 1 } else { 1 << bytes.ilog2() };
        self
    }

    /// Owners 0 to `owners`, exclusive; at least one.
    pub const fn owners(mut self, owners: u32) -> Self {
        self.shape.owners = if owners == 0 { 1 } else { owners as u64 };
        self
    }

    /// Only who asked for a block frees it: for allocators that refuse others.
    pub const fn own_blocks_only(mut self) -> Self {
        self.shape.remote = false;
        self
    }

    /// Freed blocks wait for work in flight, which the suite cannot end (it trims several times, so that fences are asked
    /// again): while something is still pooled, memory may stay reserved.
    pub const fn work_in_flight(self) -> Self {
        Self { in_flight: true, ..self }
    }

    /// Runs the programs, each on an allocator from `make`.
    ///
    /// # Errors
    /// The first rule broken, with a short program that shows it.
    pub fn check<A: Allocator>(&self, mut make: impl FnMut() -> A) -> Result<(), Failure> {
        let generate = |random: &mut _| program(&self.shape, random);
        drive::drive(self.programs, self.seed, generate, |steps| self.play(&mut make(), steps))
    }

    /// Plays a program twice, so that the second time meets what the first left behind; afterwards a large block can be
    /// had exactly as before: nothing leaked.
    fn play(&self, allocator: &mut dyn Allocator, steps: &[Step]) -> Result<(), Stopped> {
        let end = Stopped::at(steps.len());
        let mut model = Model::new(allocator);
        let before = probe(allocator, self.shape.largest).map_err(Stopped::at(0))?;
        for _ in 0..2 {
            for (at, step) in steps.iter().enumerate() {
                model.step(allocator, step).map_err(Stopped::at(at + 1))?;
            }
            model.finish(allocator, self.in_flight).map_err(&end)?;
        }
        let after = probe(allocator, self.shape.largest).map_err(&end)?;
        rule(before == after || self.in_flight, "when all is free, what could be had at first can be had again", || {
            format!("at first {before} bytes, in the end {after}")
        })
        .map_err(&end)
    }
}

/// The largest of a few sizes that the empty allocator gives, and takes back.
fn probe(allocator: &mut dyn Allocator, largest: u64) -> Result<u64, Broken> {
    let sizes = (0..8).map(|shift| largest.saturating_mul(16) >> shift).filter(|&bytes| bytes > 0);
    for bytes in sizes {
        let before = allocator.stats();
        let Ok(block) = allocator.allocate(Request::new(bytes)) else {
            nothing_handed_out(&before, &allocator.stats(), Request::new(bytes))?;
            continue;
        };
        let freed = allocator.free(block, Owner(0));
        rule(freed.is_ok(), "a live block can be freed", || format!("{block:?} gave {freed:?}"))?;
        allocator.trim();
        return Ok(bytes);
    }
    Ok(0)
}
