//! The contract of sources, fixed and growing.
//!
//! Promises upward: [`source_contract`] in one call, [`SourceContract`] where the defaults do not fit. A source with
//! pages is also asked to reserve, map, unmap and move; one without must refuse that.
//! Asks from below: random numbers and the model.

use crate::Random;
use crate::drive::{self, Stopped};
use crate::failure::Failure;
use crate::source_model::Model;
use terrace_core::Source;

/// Tests a source with the default programs: each on a fresh source from `make`.
///
/// # Errors
/// The first rule broken, with a short program that shows it.
pub fn source_contract<S: Source>(make: impl FnMut() -> S) -> Result<(), Failure> {
    SourceContract::new().check(make)
}

/// One step. Regions are picked by number, modulo how many there are; pages are counted from a region's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Take a region of so many bytes.
    Take(u64),
    /// Give a region back.
    GiveBack(u64),
    /// Give a region back that is not out any more: must be refused.
    GiveBackDead(u64),
    /// Give a region back under a changed name: must be refused.
    GiveBackForged(u64),
    /// Reserve so many pages of addresses.
    Reserve(u64),
    /// Map pages: region, first page, pages.
    Map(u64, u64, u64),
    /// Unmap pages: region, first page, pages.
    Unmap(u64, u64, u64),
    /// Move pages: region, first page, to page, pages.
    Shift(u64, u64, u64, u64),
    /// Map off the page grid: must be refused.
    MapOdd(u64),
}

/// What the programs ask for.
///
/// # Example
/// ```
/// use terrace_models::Growing;
/// terrace_tests::SourceContract::new().largest(8 << 20).check(|| Growing::new(64 << 20)).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SourceContract {
    programs: u64,
    steps: u64,
    largest: u64,
}

impl Default for SourceContract {
    fn default() -> Self {
        Self::new()
    }
}

/// Pages of the largest reservation that programs make: enough for several runs of mapped pages side by side.
const SPACE: u64 = 24;

impl SourceContract {
    /// 64 programs of 150 steps; regions up to 1 MiB.
    pub const fn new() -> Self {
        Self { programs: 64, steps: 150, largest: 1 << 20 }
    }

    /// How many programs, and how many steps each has.
    pub const fn programs(self, programs: u64, steps: u64) -> Self {
        Self { programs, steps, ..self }
    }

    /// The largest region in bytes, at least 1: best about a quarter of what the source has.
    pub const fn largest(self, bytes: u64) -> Self {
        Self { largest: if bytes == 0 { 1 } else { bytes }, ..self }
    }

    /// Runs the programs, each on a source from `make`.
    ///
    /// # Errors
    /// The first rule broken, with a short program that shows it.
    pub fn check<S: Source>(&self, mut make: impl FnMut() -> S) -> Result<(), Failure> {
        let generate = |random: &mut Random| (0..self.steps).map(|_| self.step(random)).collect();
        drive::drive(self.programs, 0, generate, |steps| play(&mut make(), steps))
    }

    fn step(&self, random: &mut Random) -> SourceStep {
        let (at, page, to) = (random.next(), random.below(SPACE), random.below(SPACE));
        // Mostly short runs, so that many fit; some that leave the region.
        let pages = random.size(SPACE / 2);
        match random.below(16) {
            0..=2 => SourceStep::Take(if random.once_in(20) { 0 } else { random.size(self.largest) }),
            3 | 4 => SourceStep::GiveBack(at),
            5 => SourceStep::GiveBackDead(at),
            6 => SourceStep::GiveBackForged(at),
            7 => SourceStep::Reserve(1 + random.below(SPACE)),
            8..=10 => SourceStep::Map(at, page, pages),
            11 | 12 => SourceStep::Unmap(at, page, 1 + random.below(3)),
            13 | 14 => SourceStep::Shift(at, page, to, 1 + random.below(2)),
            _ => SourceStep::MapOdd(at),
        }
    }
}

fn play(source: &mut dyn Source, steps: &[SourceStep]) -> Result<(), Stopped> {
    let mut model = Model::new(source);
    for (at, step) in steps.iter().enumerate() {
        model.step(source, step).map_err(Stopped::at(at + 1))?;
    }
    model.finish(source).map_err(Stopped::at(steps.len()))
}
