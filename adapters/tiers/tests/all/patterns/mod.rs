//! Byte patterns that identify the buffer and the offset.

use terrace_tiers::Buffer;

pub fn pattern(seed: u8, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

pub fn holds(buffer: &Buffer, seed: u8) {
    let mut read = vec![0; buffer.bytes() as usize];
    buffer.read(0, &mut read).expect("read");
    assert!(read == pattern(seed, buffer.bytes()), "buffer {seed}");
}
