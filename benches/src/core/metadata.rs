//! The records' share of a full pool.
//!
//! Promises upward: a pool of 100 MB, filled with blocks of 4 KiB on average until one is refused, then two turnovers
//! of random victims; the records are what the allocator itself reports at its most.
//! Asks from below: `stats().metadata` of each.

use super::options::Options;
use super::subjects::{GRANULE, Name};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use terrace_core::{
    Allocator, BestFit, Block, Branch, FirstFit, GoodFit, Index, NoFence, Owner, Range, Request, Slot, WorstFit,
};
use terrace_models::{Bfc, BfcOptions, PyTorch, Rmm, RmmOptions, Segments};

/// Bytes of the pool: 100 MB, a multiple of every granule used here up to 256 (100,000,000 = 256 * 390,625).
pub const POOL: u64 = 100_000_000;
/// Sizes are uniform from 64 to this: (64 + 8128) / 2 = 4096 bytes on average.
const LARGEST: u64 = 8128;
/// Slots lent: blocks of 4 KiB in the pool are 24,414; twice that, as blocks that stay become smaller.
const SLOTS: usize = 50_000;

/// What the records of a full pool took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Title of the subject.
    pub subject: String,
    /// Its granule in bytes.
    pub granule: u64,
    /// Blocks live at the end.
    pub blocks: u64,
    /// Bytes of a block on average at the end.
    pub mean: f64,
    /// Bytes taken from the source.
    pub reserved: u64,
    /// Bytes of records.
    pub metadata: u64,
    /// Records over bytes taken.
    pub share: f64,
}

/// Measures those of `options` that report their records.
///
/// # Errors
/// A set-up or a free that was refused.
pub fn measure(options: &Options) -> Result<Vec<Share>, String> {
    options.subjects().into_iter().filter_map(|name| of(name, options.list.seed).transpose()).collect()
}

fn of(name: Name, seed: u64) -> Result<Option<Share>, String> {
    let branches = || vec![Branch::EMPTY; SLOTS];
    let rmm = RmmOptions { initial: POOL, maximum: POOL };
    let bfc = BfcOptions { limit: POOL, allow_growth: false, ..BfcOptions::default() };
    let share = match name {
        Name::Good => fill(name, GRANULE, seed, range(GoodFit::new())?)?,
        Name::Best => fill(name, GRANULE, seed, range(BestFit::new(branches()))?)?,
        Name::First => fill(name, GRANULE, seed, range(FirstFit::new(branches()))?)?,
        Name::Worst => fill(name, GRANULE, seed, range(WorstFit::new(branches()))?)?,
        Name::Pytorch => fill(name, 512, seed, PyTorch::new(Segments::new(POOL)))?,
        Name::Rmm => fill(name, 256, seed, Rmm::with(Segments::new(POOL), NoFence, rmm))?,
        Name::Bfc => fill(name, 256, seed, Bfc::with(Segments::new(POOL), NoFence, bfc))?,
        _ => return Ok(None),
    };
    Ok(Some(share))
}

fn range<I: Index>(index: I) -> Result<Range<Vec<Slot>, I>, String> {
    let failed = |error| format!("cannot be set up: {error}");
    let mut range = Range::new(vec![Slot::EMPTY; SLOTS], GRANULE, index).map_err(failed)?;
    range.add_region(0, POOL).map_err(failed)?;
    Ok(range)
}

fn fill(name: Name, granule: u64, seed: u64, mut pool: impl Allocator) -> Result<Share, String> {
    let mut random = Rng::with_seed(seed);
    let mut request = || Request::new(random.u64(64..=LARGEST));
    let mut live: Vec<Block> = Vec::new();
    while let Ok(block) = pool.allocate(request()) {
        live.push(block);
    }
    let mut random = Rng::with_seed(seed + 1);
    for _ in 0..2 * live.len() {
        let block = live.swap_remove(random.usize(0..live.len()));
        pool.free(block, Owner(0)).map_err(|error| format!("{}: {error}", name.title()))?;
        // A full pool may refuse the next size: the block's place then stays empty for a while.
        live.extend(pool.allocate(request()).ok());
        if live.is_empty() {
            break;
        }
    }
    let stats = pool.stats();
    Ok(Share {
        subject: name.title().into(),
        granule,
        blocks: stats.live_blocks,
        mean: stats.in_use as f64 / stats.live_blocks.max(1) as f64,
        reserved: stats.reserved,
        metadata: stats.metadata,
        share: stats.metadata_share(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_every_strategy_stay_below_one_percent() {
        for name in [Name::Good, Name::Best, Name::First, Name::Worst] {
            let share = of(name, 1).unwrap().unwrap();
            assert!(share.share < 0.01, "{share:?}");
            assert!(share.metadata >= 32 * share.blocks, "every live block has its record: {share:?}");
            assert_eq!(share.reserved, POOL);
        }
    }
}
