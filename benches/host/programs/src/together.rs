//! Programs with several threads. Each returns a sum of what it did, the same under every allocator and in whatever order
//! its threads run.
//!
//! The work is fixed, not the time, so that CPU time can be compared; four threads whatever the machine has.

use crate::block::Block;
use crate::random::Random;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// Threads of every program here.
const THREADS: usize = 4;

/// Runs `work` on every thread and adds up what they return.
fn all(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS as u64).map(|i| scope.spawn(move || work(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).fold(0, u64::wrapping_add)
    })
}

/// Like `larson` (Larson and Krishnan, 1998): a server. Each of four lanes has 5000 blocks of 8 to 1000 bytes that the main
/// thread made; a thread replaces random ones, then hands its lane to a new thread and exits, twenty times.
pub fn larson(scale: usize) -> u64 {
    let mut random = Random::new(10);
    let lanes: Vec<Vec<Block>> =
        (0..THREADS).map(|_| (0..5000).map(|_| Block::new(random.between(8, 1000))).collect()).collect();
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for (i, lane) in lanes.into_iter().enumerate() {
            let sum = &sum;
            scope.spawn(move || lane_of(scope, lane, 20, scale * 1000, Random::new(11 + i as u64), sum));
        }
    });
    sum.into_inner()
}

fn lane_of<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    mut lane: Vec<Block>,
    handovers: usize,
    replaced: usize,
    mut random: Random,
    sum: &'scope AtomicU64,
) {
    for _ in 0..replaced {
        let slot = random.below(lane.len());
        lane[slot] = Block::new(random.between(8, 1000));
    }
    sum.fetch_add(lane.iter().map(|block| block.size() as u64).sum(), Ordering::Relaxed);
    if handovers > 0 {
        scope.spawn(move || lane_of(scope, lane, handovers - 1, replaced, random, sum));
    }
}

/// Like `xmalloc-test` (Lever and Boreham, 2000): two threads only allocate, two only free, batches of 120 blocks go between
/// them; sizes are small, rarely large.
pub fn handed(scale: usize) -> u64 {
    const BATCH: usize = 120;
    let queue: (Mutex<VecDeque<Vec<Block>>>, Condvar) = Default::default();
    let batches = scale * 100;
    let make = |i: u64| {
        let mut random = Random::new(20 + i);
        for _ in 0..batches {
            let size = |random: &mut Random| if random.below(64) == 0 { 4096 } else { random.between(16, 400) };
            let batch = (0..BATCH).map(|_| Block::new(size(&mut random))).collect();
            let guard = queue.0.lock().unwrap_or_else(PoisonError::into_inner);
            let full = |waiting: &mut VecDeque<_>| waiting.len() >= 64;
            let mut guard = queue.1.wait_while(guard, full).unwrap_or_else(PoisonError::into_inner);
            guard.push_back(batch);
            queue.1.notify_all();
        }
        0
    };
    let take = |_| {
        let mut sum = 0;
        for _ in 0..batches {
            let guard = queue.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut guard =
                queue.1.wait_while(guard, |waiting| waiting.is_empty()).unwrap_or_else(PoisonError::into_inner);
            let batch = guard.pop_front();
            queue.1.notify_all();
            drop(guard);
            sum += batch.into_iter().flatten().map(|block| block.size() as u64).sum::<u64>();
        }
        sum
    };
    all(|i| if i % 2 == 0 { make(i) } else { take(i) })
}

/// Like `cache-scratch` (Berger, Hoard): the main thread makes one small block for each thread, all in a row; each frees its
/// own, then allocates one like it, writes to it, frees it. An allocator that gives them the neighbours shares their line.
pub fn scratch(scale: usize) -> u64 {
    let given: Vec<Mutex<Option<Block>>> = (0..THREADS).map(|_| Mutex::new(Some(Block::new(8)))).collect();
    all(|i| {
        drop(given[i as usize].lock().unwrap_or_else(PoisonError::into_inner).take());
        write_often(scale)
    })
}

/// Like `cache-thrash` (Berger, Hoard): the same without the blocks of the main thread.
pub fn thrash(scale: usize) -> u64 {
    all(|_| write_often(scale))
}

fn write_often(scale: usize) -> u64 {
    (0..scale * 500)
        .map(|_| {
            let block = Block::new(8);
            block.bump(1000);
            block.size() as u64
        })
        .sum()
}

/// Like `sh8bench`: each thread fills batches of small blocks, sizes as in `batches`; half of a batch it frees itself, half
/// goes to the next thread, which frees it.
pub fn passed(scale: usize) -> u64 {
    ring(scale * 10, 1000, |random| 1 + random.below(1000) * random.below(1000) / 1000)
}

/// Like `rptest` (rpmalloc-benchmark): sizes of 16 to 8000 with a linear fall, cross-thread frees, as in `passed`.
pub fn falling(scale: usize) -> u64 {
    ring(scale * 6, 1000, |random| {
        let (a, b) = (random.between(16, 8000), random.between(16, 8000));
        a.min(b)
    })
}

/// Batches between neighbours in a ring of mail boxes.
fn ring(turns: usize, batch: usize, size: impl Fn(&mut Random) -> usize + Sync) -> u64 {
    let boxes: Vec<Mutex<Vec<Block>>> = (0..THREADS).map(|_| Mutex::default()).collect();
    all(|i| {
        let mut random = Random::new(30 + i);
        let (own, next) = (&boxes[i as usize], &boxes[(i as usize + 1) % THREADS]);
        let mut sum = 0;
        for _ in 0..turns {
            let mut blocks: Vec<Block> = (0..batch).map(|_| Block::new(size(&mut random))).collect();
            sum += blocks.iter().map(|block| block.size() as u64).sum::<u64>();
            random.shuffle(&mut blocks);
            let half = blocks.split_off(batch / 2);
            next.lock().unwrap_or_else(PoisonError::into_inner).extend(half);
            drop(blocks);
            drop(std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        sum
    })
}

/// Like `mstress` (mimalloc): rounds of new threads that keep some blocks, free some, and swap some through a table that all
/// share; sizes mostly small, one in 500 up to 128 KiB.
pub fn stress(scale: usize) -> u64 {
    let table: Vec<Mutex<Option<Block>>> = (0..1000).map(|_| Mutex::new(None)).collect();
    let mut sum = 0u64;
    for round in 0..scale.div_ceil(2) as u64 {
        sum = sum.wrapping_add(all(|i| stress_thread(&table, Random::new(1000 * round + i))));
    }
    sum
}

fn stress_thread(table: &[Mutex<Option<Block>>], mut random: Random) -> u64 {
    let (mut kept, mut sum) = (Vec::new(), 0);
    for _ in 0..15_000 {
        let most = if random.below(500) == 0 { 17 } else { 9 };
        let block = Block::new(random.log_uniform(3, most));
        sum += block.size() as u64;
        match random.below(4) {
            0 => drop(block),
            1 => {
                let slot = &table[random.below(table.len())];
                drop(slot.lock().unwrap_or_else(PoisonError::into_inner).replace(block));
            }
            _ => kept.push(block),
        }
        if kept.len() > 2000 {
            drop(kept.swap_remove(random.below(2000)));
        }
    }
    sum
}

/// Like glibc's `bench-malloc-thread`: each thread has a table of 1024 blocks and replaces random ones; sizes 4 to 32 KiB
/// with small ones far more often. No thread meets another.
pub fn apart(scale: usize) -> u64 {
    all(|i| {
        let mut random = Random::new(40 + i);
        let mut slots: Vec<Block> = (0..1024).map(|_| Block::new(16)).collect();
        let mut sum = 0;
        for _ in 0..scale * 15_000 {
            let slot = random.below(slots.len());
            // Twice log-uniform: half of the sizes below 128 bytes.
            let bits = 2 + random.below(14).min(random.below(14)) as u32;
            slots[slot] = Block::new(random.log_uniform(bits, bits + 1));
            sum += slots[slot].size() as u64;
        }
        sum
    })
}

/// Threads that start, allocate forty blocks, free all but two, and exit; the main thread frees those two.
pub fn churn(scale: usize) -> u64 {
    let mut sum = 0;
    for round in 0..scale * 40 {
        let work = |i: usize| {
            let mut random = Random::new((round * THREADS + i) as u64);
            let mut blocks: Vec<Block> = (0..40).map(|_| Block::new(random.between(16, 600))).collect();
            blocks.truncate(2);
            blocks
        };
        let kept: Vec<Block> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|i| scope.spawn(move || work(i))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        sum += kept.iter().map(|block| block.size() as u64).sum::<u64>();
    }
    sum
}

/// Threads that start one after the other, allocate ten blocks, free them, and exit.
pub fn starts(scale: usize) -> u64 {
    let work = |round: usize| {
        let mut random = Random::new(round as u64);
        let blocks: Vec<Block> = (0..10).map(|_| Block::new(random.between(16, 600))).collect();
        blocks.iter().map(|block| block.size() as u64).sum::<u64>()
    };
    (0..scale * 100).map(|round| thread::spawn(move || work(round)).join().unwrap_or(0)).sum()
}
