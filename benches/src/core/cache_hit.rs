//! What a hit costs: of the cache alone, and of the arena that has it.
//!
//! Promises upward: every pair is a hit: all sizes asked for wait in the cache before the clock starts, and each goes
//! back at once. Sizes come in random order, so that the branch predictor does not learn them.
//! Asks from below: [`Cache`], [`Arena`].

use super::options::Options;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;
use terrace_core::arena::{ArenaParts, ArenaSettings, ArenaStorage, PendingFree};
use terrace_core::{Allocator, Arena, Bin, Block, Cache, Entry, GoodFit, NoFence, Owner, Request, Segment, Slot};
use terrace_models::Segments;
use terrace_models::rounds::Rounds;

/// How many sizes there are, in each case.
pub const SIZES: [u32; 3] = [1, 16, 256];
/// Blocks of each size that wait in the cache.
const EACH: u32 = 4;
/// Bins and entries: 256 sizes in 1024 lines of four bins, so that none is without a place.
const PLACES: usize = 4096;
/// Sizes are 1, 2, .. of these.
const STEP: u64 = 512;
/// Granule of the cache and the arena.
const GRANULE: u64 = 64;

/// One timed round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// What was asked: `cache` or `arena`.
    pub subject: String,
    /// How many sizes took turns.
    pub sizes: u32,
    /// Round, from 0.
    pub round: usize,
    /// Pairs run.
    pub pairs: usize,
    /// Time of all of them in nanoseconds.
    pub ns: u64,
}

/// How many steps [`measure`] reports.
pub fn steps(options: &Options) -> usize {
    2 * SIZES.len() * (1 + options.rounds())
}

/// What is hit, how many sizes, and what runs all pairs: nanoseconds.
type Case = (&'static str, u32, Box<dyn FnMut() -> Option<u64>>);

/// Measures every case, taking turns. The first round warms up and is not kept.
///
/// # Errors
/// A hit that missed, or a set-up that was refused.
pub fn measure(options: &Options, step: &mut dyn FnMut(&str)) -> Result<Vec<Hit>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for sizes in SIZES {
        let mut random = Rng::with_seed(options.list.seed);
        let list: Rc<[u32]> = (0..options.pairs()).map(|_| random.u32(1..=sizes)).collect();
        let (same, mut cache, mut arena) = (Rc::clone(&list), filled_cache(sizes)?, filled_arena(sizes)?);
        cases.push(("cache", sizes, Box::new(move || cache_pairs(&mut cache, &same))));
        cases.push(("arena", sizes, Box::new(move || arena_pairs(&mut arena, &list))));
    }
    let rounds = Rounds { warm_up: 1, ..Rounds::new(options.rounds()) };
    let (hits, missed) = rounds.run(&mut cases, |(subject, sizes, pairs), round| {
        step("cache hits");
        let ns = pairs().ok_or_else(|| format!("{subject}: a pair missed that had to hit"))?;
        Ok(Hit { subject: (*subject).into(), sizes: *sizes, round, pairs: options.pairs(), ns })
    });
    missed.into_iter().next().map_or(Ok(hits), Err)
}

type BlockCache = Cache<Vec<Bin>, Vec<Entry<Block>>>;

/// A cache with blocks of each size. What the blocks name does not matter to it.
fn filled_cache(sizes: u32) -> Result<BlockCache, String> {
    let mut cache = Cache::new(vec![Bin::EMPTY; PLACES], vec![Entry::EMPTY; PLACES], 2 * EACH);
    for n in 1..=sizes {
        for _ in 0..EACH {
            let block = Block { address: 0, bytes: u64::from(n) * STEP, slot: n, region: 0, ticket: 1 };
            cache.put(Owner(0), granules(n), block).map_err(|_| "the cache refused a block while it was filled")?;
        }
    }
    Ok(cache)
}

fn granules(n: u32) -> u32 {
    n * (STEP / GRANULE) as u32
}

/// Nanoseconds of the pairs; `None` when one missed.
#[inline(never)]
fn cache_pairs(cache: &mut BlockCache, list: &[u32]) -> Option<u64> {
    let begin = Instant::now();
    for &n in list {
        let block = black_box(cache.get(Owner(0), granules(n))?);
        cache.put(Owner(0), granules(n), block).ok()?;
    }
    Some(begin.elapsed().as_nanos() as u64)
}

/// Vectors for everything.
struct Vectors;

impl ArenaStorage for Vectors {
    type Slots = Vec<Slot>;
    type Index = GoodFit;
    type Bins = Vec<Bin>;
    type Entries = Vec<Entry<Block>>;
    type Segments = Vec<Segment>;
    type Pending = Vec<PendingFree>;
}

type BlockArena = Arena<Segments, NoFence, Vectors>;

/// An arena that had blocks of each size live at once, and got them back.
fn filled_arena(sizes: u32) -> Result<BlockArena, String> {
    let parts = ArenaParts {
        slots: [vec![Slot::EMPTY; 2 * PLACES], vec![Slot::EMPTY; 2 * PLACES]],
        index: [GoodFit::new(), GoodFit::new()],
        bins: vec![Bin::EMPTY; PLACES],
        entries: vec![Entry::EMPTY; PLACES],
        segments: vec![Segment::EMPTY; 64],
        pending: [vec![], vec![]],
    };
    let settings = ArenaSettings { small_threshold: 1 << 20, granule: GRANULE, ..ArenaSettings::segments() };
    let failed = |error| format!("the arena cannot be set up: {error}");
    let mut arena = Arena::new(Segments::new(0), NoFence, parts, settings).map_err(failed)?;
    let mut blocks = Vec::new();
    for n in 1..=sizes {
        for _ in 0..EACH {
            blocks.push(arena.allocate(Request::new(u64::from(n) * STEP)).map_err(failed)?);
        }
    }
    for block in blocks {
        arena.free(block, Owner(0)).map_err(|error| error.to_string())?;
    }
    if arena.cache_mut().count() != EACH * sizes {
        return Err("the arena did not cache what was given back".into());
    }
    Ok(arena)
}

/// Nanoseconds of the pairs; `None` when one was refused or did not come from the cache.
#[inline(never)]
fn arena_pairs(arena: &mut BlockArena, list: &[u32]) -> Option<u64> {
    let cached = arena.cache_mut().count();
    let begin = Instant::now();
    for &n in list {
        let block = black_box(arena.allocate(Request::new(u64::from(n) * STEP)).ok()?);
        arena.free(block, Owner(0)).ok()?;
    }
    let ns = begin.elapsed().as_nanos() as u64;
    // A miss would have left one block more in the cache than before, as every size had some.
    (arena.cache_mut().count() == cached).then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_hit() {
        for sizes in SIZES {
            let list: Vec<u32> = (1..=sizes).chain(1..=sizes).collect();
            assert!(cache_pairs(&mut filled_cache(sizes).unwrap(), &list).is_some());
            assert!(arena_pairs(&mut filled_arena(sizes).unwrap(), &list).is_some());
        }
    }

    #[test]
    fn a_miss_is_noticed() {
        assert_eq!(cache_pairs(&mut filled_cache(4).unwrap(), &[1, 2, 5]), None);
        assert_eq!(arena_pairs(&mut filled_arena(4).unwrap(), &[1, 2, 5]), None);
    }
}
