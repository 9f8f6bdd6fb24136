//! A cache beside a map of stacks: for each owner and size, the items in the order they came.
// sanitizer: none
// seeded-env: cache_loses_entry
// seeded-env: cache_loses_bin
// seeded-env: cache_swaps_owners
#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use terrace_core::pressure::CachePolicy;
use terrace_core::{Bin, Cache, Entry, Owner};
use terrace_fuzz_core::{Forgetful, bug};

#[derive(Arbitrary, Debug)]
struct Input {
    /// Groups of four bins, and entries.
    lines: u8,
    entries: u8,
    pooled_per_bucket: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Put(u8, u8),
    Get(u8, u8),
    Drain(u8),
    TakeAny(u8),
    Cap(u8),
    PooledPerBucket(u8),
    /// Used, of a capacity of 255.
    Adapt(u8),
}

type Pair = (u32, u32);

struct World {
    cache: Cache<Forgetful<Bin>, Forgetful<Entry<u32>>>,
    model: BTreeMap<Pair, Vec<u32>>,
    entries: usize,
    pooled_per_bucket: u32,
    next: u32,
}

/// Pairs look much alike: few owners, few sizes, so that they meet often.
fn pair(owner: u8, size: u8) -> Pair {
    (u32::from(owner) % 5, u32::from(size) % 7 + 1)
}

impl World {
    fn held(&self) -> u64 {
        self.model.iter().map(|((_, size), items)| u64::from(*size) * items.len() as u64).sum()
    }

    fn count(&self) -> usize {
        self.model.values().map(Vec::len).sum()
    }

    fn put(&mut self, (owner, size): Pair) {
        let item = self.next;
        self.next += 1;
        let mine = self.model.get(&(owner, size)).map_or(0, Vec::len);
        let allowed = self.held() + u64::from(size) <= self.cache.cap() && (mine as u32) < self.pooled_per_bucket;
        let room = allowed && self.count() < self.entries;
        match self.cache.put(Owner(owner), size, item) {
            Ok(()) => {
                assert!(room, "every cap holds");
                self.model.entry((owner, size)).or_default().push(item);
            }
            Err(back) => {
                assert_eq!(back, item, "a refused item comes back");
                // A pair that has a list is refused by a cap only; a new one also when others have its places.
                let others = self.model.values().filter(|items| !items.is_empty()).count();
                assert!(!room || (mine == 0 && others >= 4) || self.places() == 0, "refused without a reason");
            }
        }
    }

    /// Bins that pairs can have.
    fn places(&self) -> usize {
        let bytes = self.cache.bytes() as usize - self.entries * size_of::<Entry<u32>>();
        bytes / size_of::<Bin>() / 4 * 4
    }

    fn take(&mut self, pair: Pair, item: u32) {
        let expected = self.model.get_mut(&pair).and_then(Vec::pop);
        assert_eq!(expected, Some(item), "the last item of its pair, {pair:?}");
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(owner, size) => self.put(pair(owner, size)),
            Step::Get(owner, size) => {
                let (owner, size) = pair(owner, size);
                let asked = if bug("cache_swaps_owners") && size == 3 { owner ^ 1 } else { owner };
                match self.cache.get(Owner(asked), size) {
                    Some(item) => self.take((owner, size), item),
                    None => assert!(self.model.get(&(owner, size)).is_none_or(Vec::is_empty), "a hit was missed"),
                }
            }
            Step::Drain(owner) => {
                let owner = u32::from(owner) % 5;
                let mut drained = Vec::new();
                self.cache.drain(|one, _| one == Owner(owner), |one, size, item| drained.push((one.0, size, item)));
                drained.into_iter().for_each(|(one, size, item)| self.take((one, size), item));
                assert!(self.model.iter().all(|((one, _), items)| *one != owner || items.is_empty()), "all of them");
            }
            Step::TakeAny(from) => match self.cache.take_any(usize::from(from)) {
                Some((at, owner, size, item)) => {
                    assert!(at >= usize::from(from));
                    self.take((owner.0, size), item);
                }
                None => assert!(from > 0 || self.count() == 0, "from 0 on everything is found"),
            },
            Step::Cap(cap) => self.cache.set_cap(u64::from(cap)),
            Step::PooledPerBucket(pooled_per_bucket) => {
                self.pooled_per_bucket = u32::from(pooled_per_bucket);
                self.cache.set_pooled_per_bucket(self.pooled_per_bucket);
            }
            Step::Adapt(used) => self.adapt(used.into()),
        }
    }

    /// Above 0.8 the cap falls, below 0.3 it rises, in between it stays.
    fn adapt(&mut self, used: u64) {
        let before = self.cache.cap();
        self.cache.adapt(&CachePolicy::default(), used, 255);
        let after = self.cache.cap();
        match used {
            205.. => assert!(after <= before),
            77..=203 => assert_eq!(after, before),
            _ => assert!(after >= before || used == 204),
        }
    }
}

fuzz_target!(|input: Input| {
    let (lines, entries) = (usize::from(input.lines) % 6, usize::from(input.entries) % 40);
    let bins = Forgetful::new(lines * 4, "cache_loses_bin", || Bin::EMPTY);
    let lent = Forgetful::new(entries, "cache_loses_entry", || Entry::EMPTY);
    let pooled_per_bucket = u32::from(input.pooled_per_bucket) % 8;
    let cache = Cache::new(bins, lent, pooled_per_bucket);
    let mut world = World { cache, model: BTreeMap::new(), entries, pooled_per_bucket, next: 0 };
    for step in input.steps.iter().take(400) {
        world.step(step);
        world.cache.check().expect("every invariant holds");
        assert_eq!((world.cache.held(), world.cache.count() as usize), (world.held(), world.count()));
    }
});
