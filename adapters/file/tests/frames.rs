//! The resident memory of frames of all sizes beside each other.

use std::fs;
use terrace_file::{Frame, FramePool};
use terrace_tests::Random;

/// Resident bytes of this process.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux says");
    let pages: usize = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn frames_of_all_sizes_stay_within_what_the_pool_was_given() {
    const CAP: usize = 64 << 20;
    let (frames, mut rng) = (FramePool::sparse(CAP).expect("addresses"), Random::new(7));
    let mut held: Vec<(Frame, u8)> = Vec::new();
    let before = resident();
    let (mut worst, mut refused_at) = (0, CAP);
    for step in 0..12_000u64 {
        // Sizes from 1 byte to 4 MiB, evenly over powers of two; phases grow and shrink in turns.
        let bytes = 1 << (rng.below(23) as usize);
        let bytes = 1 + rng.below(bytes as u64) as usize;
        let grows = rng.below(100) < if step / 1000 % 2 == 0 { 60 } else { 40 };
        if grows {
            match frames.take_packed(bytes) {
                Ok(mut frame) => {
                    let tag = step as u8;
                    frame.fill(tag);
                    held.push((frame, tag));
                }
                Err(_) => {
                    let used = frames.usage().0 + bytes;
                    refused_at = refused_at.min(used);
                    held.swap_remove(rng.below(held.len() as u64) as usize);
                }
            }
        } else if !held.is_empty() {
            let (frame, tag) = held.swap_remove(rng.below(held.len() as u64) as usize);
            assert!(frame.iter().all(|byte| *byte == tag), "its holder's alone");
        }
        assert!(frames.resident() <= CAP);
        if step % 100 == 0 {
            worst = worst.max(resident() - before.min(resident()));
        }
    }
    println!("worst {} KiB, refused at {} KiB of {}", worst >> 10, refused_at >> 10, CAP >> 10);
    assert!(worst <= CAP + (8 << 20), "{worst}");
}
