//! What stays resident after blocks were freed, and what a small process takes.
//!
//! Promises upward: between the measurements nothing is allocated but what is said. Asks from below: `/proc`.

use crate::block::Block;
use crate::random::Random;
use std::io::Read;
use std::time::Duration;

/// Two million blocks of 16 to 500 bytes, all freed in random order but one in `keep` (none for 0). Prints bytes resident
/// beyond those before: at the peak, after the last free, then a second later: with `called`, after one `malloc` and `free`
/// more; else without any call, and again two seconds later.
pub fn freed(blocks: usize, keep: usize, called: bool) -> String {
    let mut random = Random::new(50);
    let mut order: Vec<u32> = (0..blocks as u32).collect();
    random.shuffle(&mut order);
    let mut held: Vec<Option<Block>> = order.iter().map(|_| None).collect();
    let before = resident();
    let beyond = || resident().saturating_sub(before);
    for slot in &mut held {
        *slot = Some(Block::new(random.between(16, 500)));
    }
    let peak = beyond();
    for (i, &at) in order.iter().enumerate() {
        if keep == 0 || i % keep != 0 {
            held[at as usize] = None;
        }
    }
    let at_once = beyond();
    std::thread::sleep(Duration::from_secs(1));
    if called {
        drop(Block::new(1000));
    }
    let second = beyond();
    if !called {
        std::thread::sleep(Duration::from_secs(2));
    }
    let third = beyond();
    let live: usize = held.iter().flatten().map(Block::size).sum();
    format!("{peak} {at_once} {second} {third} {live}")
}

/// Bytes resident now, exactly, of a process that allocated one block.
pub fn small() -> String {
    drop(Block::new(100));
    resident().to_string()
}

/// Bytes resident, from `smaps_rollup`, which counts pages: `statm` may be off by some for each processor. Nothing is
/// allocated.
fn resident() -> usize {
    let mut text = [0; 1024];
    let read = std::fs::File::open("/proc/self/smaps_rollup").and_then(|mut file| file.read(&mut text));
    let text = &text[..read.unwrap_or(0)];
    let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"Rss:")).unwrap_or_default();
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    1024 * digits.fold(0, |number, digit| 10 * number + usize::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_is_resident() {
        let before = resident();
        let block = Block::new(64 << 20);
        block.touch();
        assert!(resident() > before + (60 << 20));
    }

    #[test]
    fn kept_blocks_are_counted() {
        let numbers: Vec<usize> = freed(10_000, 64, true).split(' ').map(|word| word.parse().unwrap()).collect();
        // 157 blocks stay, of 258 bytes on average.
        assert!((20_000..70_000).contains(&numbers[4]), "{numbers:?}");
    }
}
