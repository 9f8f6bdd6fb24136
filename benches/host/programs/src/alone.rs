//! Programs with one thread. Each returns a sum of what it did, the same under every allocator.

use crate::block::Block;
use crate::random::Random;

/// Like glibc's `bench-malloc-simple`: for each of a few sizes, rows of 25 to 6400 blocks, freed in the order of allocation
/// and against it.
pub fn simple(scale: usize) -> u64 {
    let mut sum = 0;
    for size in [16, 24, 64, 128, 512, 2048, 4096] {
        for count in [25, 100, 400, 1600, 6400] {
            for turn in 0..(24 * scale * 64).div_ceil(count) {
                let mut blocks: Vec<Block> = (0..count).map(|_| Block::new(size)).collect();
                sum += blocks.len() as u64 * size as u64;
                if turn % 2 == 1 {
                    blocks.reverse();
                }
                drop(blocks);
            }
        }
    }
    sum
}

/// Like `alloc-test`: a large table, at random either emptied or filled, sizes log-uniform from 8 to 1 KiB; blocks are read
/// again now and then.
pub fn table(scale: usize) -> u64 {
    let mut random = Random::new(1);
    let mut slots: Vec<Option<Block>> = (0..1 << 16).map(|_| None).collect();
    let mut sum = 0;
    for _ in 0..scale * 120_000 {
        let slot = random.below(slots.len());
        slots[slot] = match slots[slot].take() {
            Some(block) => {
                block.bump(1);
                sum += block.size() as u64;
                None
            }
            None => Some(Block::new(random.log_uniform(3, 10))),
        };
    }
    sum
}

/// Like `sh6bench`: batches of small blocks, sizes 1 to 1000 with small ones far more often; a batch is freed one round
/// later, in turn forwards, backwards, and each second one first.
pub fn batches(scale: usize) -> u64 {
    let mut random = Random::new(2);
    let mut sum = 0;
    let mut waiting: Vec<Block> = Vec::new();
    for turn in 0..scale * 40 {
        let size = |random: &mut Random| 1 + random.below(1000) * random.below(1000) / 1000;
        let batch: Vec<Block> = (0..2000).map(|_| Block::new(size(&mut random))).collect();
        sum += batch.iter().map(|block| block.size() as u64).sum::<u64>();
        let mut old = std::mem::replace(&mut waiting, batch);
        match turn % 3 {
            0 => drop(old),
            1 => {
                old.reverse();
                drop(old);
            }
            _ => {
                let (even, odd): (Vec<_>, Vec<_>) = old.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
                drop(even);
                drop(odd);
            }
        }
    }
    sum
}

/// Vectors that grow by half, from 16 bytes to 1 MiB, 64 at a time, each in its own time; then strings that grow a byte at a
/// time.
pub fn growth(scale: usize) -> u64 {
    let mut random = Random::new(3);
    let mut sum = 0;
    let mut blocks: Vec<Block> = (0..64).map(|_| Block::new(16)).collect();
    for _ in 0..scale * 1000 {
        let block = &mut blocks[random.below(64)];
        let size = block.size() + block.size() / 2;
        sum += size as u64;
        if size > 1 << 20 { *block = Block::new(16) } else { block.resize(size) }
    }
    for _ in 0..scale * 200 {
        let mut string = Block::new(8);
        (9..random.between(20, 200)).for_each(|size| string.resize(size));
        sum += string.size() as u64;
    }
    sum
}

/// The whole interface: 40 % malloc, 25 % calloc, 20 % aligned by 16 to 4096, 15 % realloc of a live block; sizes
/// log-uniform from 8 to 16 KiB, 4096 live.
pub fn mixed(scale: usize) -> u64 {
    let mut random = Random::new(4);
    let mut slots: Vec<Block> = (0..4096).map(|_| Block::new(16)).collect();
    let mut sum = 0;
    for _ in 0..scale * 15_000 {
        let slot = random.below(slots.len());
        let size = random.log_uniform(3, 14);
        match random.below(20) {
            0..8 => slots[slot] = Block::new(size),
            8..13 => slots[slot] = Block::zeroed(size),
            13..17 => slots[slot] = Block::aligned(1 << random.between(4, 12), size),
            _ => slots[slot].resize(size),
        }
        sum += slots[slot].size() as u64;
    }
    sum
}

/// Like `malloc-large`: 20 blocks of 5 to 25 MiB, a random one replaced at a time, every page written.
pub fn large(scale: usize) -> u64 {
    let mut random = Random::new(5);
    let mut slots: Vec<Option<Block>> = (0..20).map(|_| None).collect();
    let mut sum = 0;
    for _ in 0..scale * 6 {
        let slot = random.below(slots.len());
        // Freed first, so that its memory can be taken again.
        slots[slot] = None;
        let block = Block::new(random.between(5 << 20, 25 << 20));
        block.touch();
        sum += block.size() as u64;
        slots[slot] = Some(block);
    }
    sum
}
