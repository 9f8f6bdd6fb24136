//! An owner's cache beside its inbox, under loom: a block that another thread freed is reused exactly once, and its new
//! holder sees that thread's writes.
//!
//! Only the owner uses the cache, which has no atomics: the seeded bugs are those of the inbox, through which blocks arrive.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_cache
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: inbox_push_relaxed
// seeded-env: inbox_drain_relaxed
#![cfg(loom)]

mod explore;

use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use terrace_core::inbox::Inbox;
use terrace_core::sync::AtomicU32;
use terrace_core::{Bin, Cache, Entry, Owner};

/// The owner of the cache.
const OWNER: Owner = Owner(0);
/// Granules of every block here.
const SIZE: u32 = 4;

/// Links of the owner's inbox, and the memory of each block.
struct World {
    links: Vec<AtomicU32>,
    payload: Vec<UnsafeCell<u32>>,
}

impl World {
    fn new(blocks: u32) -> Arc<Self> {
        let links = (0..Inbox::links(blocks)).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { links, payload: (0..blocks).map(|_| UnsafeCell::new(0)).collect() })
    }

    fn inbox(&self) -> Inbox<'_> {
        Inbox::new(OWNER, &self.links)
    }

    /// Writes the block's memory: loom reports it if the last write did not happen before.
    fn write(&self, block: u32) {
        self.payload[block as usize].with_mut(|_| ());
    }

    /// Frees remotely: the last write, then the push.
    fn free_remotely(&self, block: u32) {
        self.write(block);
        self.inbox().push(block).expect("freed once");
    }
}

type Mine = Cache<Vec<Bin>, Vec<Entry<u32>>>;

fn cache(entries: usize) -> Mine {
    Cache::new(vec![Bin::EMPTY; 4], vec![Entry::EMPTY; entries], 8)
}

/// Does what an owner does on a miss: moves remotely freed blocks to its cache. Returns the blocks that the cache refuses,
/// which are for the range.
fn refill(world: &World, cache: &mut Mine) -> Vec<u32> {
    world.inbox().drain().filter_map(|block| cache.put(OWNER, SIZE, block).err()).collect()
}

#[test]
fn a_block_freed_remotely_is_handed_out_once_and_what_was_written_is_seen() {
    explore(|| {
        let world = World::new(2);
        let frees: Vec<_> = (0..2)
            .map(|block| {
                let world = world.clone();
                thread::spawn(move || world.free_remotely(block))
            })
            .collect();
        let mut cache = cache(2);
        let mut handed_out = [0; 2];
        let mut take_all = |cache: &mut Mine| {
            assert_eq!(refill(&world, cache), [0u32; 0], "there is room for both");
            while let Some(block) = cache.get(OWNER, SIZE) {
                world.write(block);
                handed_out[block as usize] += 1;
            }
        };
        take_all(&mut cache);
        frees.into_iter().for_each(|free| free.join().expect("no panic"));
        take_all(&mut cache);
        assert_eq!(handed_out, [1, 1], "each once");
        assert_eq!((cache.count(), cache.held()), (0, 0));
        cache.check().expect("every invariant holds");
        world.inbox().check().expect("at rest");
    });
}

#[test]
fn a_block_goes_round_between_two_threads() {
    explore(|| {
        let world = World::new(1);
        let mut cache = cache(1);
        cache.put(OWNER, SIZE, 0).expect("room");
        // Handed out to another thread, which frees it remotely.
        let block = cache.get(OWNER, SIZE).expect("cached");
        world.write(block);
        let other = world.clone();
        let user = thread::spawn(move || other.free_remotely(block));
        refill(&world, &mut cache);
        let early = cache.get(OWNER, SIZE);
        early.into_iter().for_each(|block| world.write(block));
        user.join().expect("no panic");
        refill(&world, &mut cache);
        let late = cache.get(OWNER, SIZE);
        late.into_iter().for_each(|block| world.write(block));
        assert_eq!(early.or(late), Some(0), "it came back");
        assert!(early.is_none() || late.is_none(), "once");
        cache.check().expect("every invariant holds");
    });
}

#[test]
fn what_a_full_cache_refuses_is_not_lost() {
    explore(|| {
        let world = World::new(2);
        let other = world.clone();
        let user = thread::spawn(move || other.free_remotely(1));
        let mut cache = cache(1);
        cache.put(OWNER, SIZE, 0).expect("room");
        let mut refused = refill(&world, &mut cache);
        user.join().expect("no panic");
        refused.extend(refill(&world, &mut cache));
        assert_eq!(refused, [1], "for the range");
        refused.iter().for_each(|&block| world.write(block));
        assert_eq!(cache.get(OWNER, SIZE), Some(0));
        cache.check().expect("every invariant holds");
    });
}
