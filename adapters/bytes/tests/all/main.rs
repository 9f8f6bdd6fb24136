//! Views, fills, orders of bytes and conversions, against the plainest code that does the same.

mod conversions;
mod fills;
mod orders;
mod quantization;
mod views;

/// Lengths at which vectors, chunks and streaming begin and end.
fn lengths() -> Vec<usize> {
    let small = 0..if cfg!(miri) { 20 } else { 100 };
    let large: &[usize] =
        if cfg!(miri) { &[] } else { &[4095, 4096, 4097, 131_072, 262_143, 524_288, 524_321, 600_001] };
    small.chain(large.iter().copied()).collect()
}

/// Random numbers, by bits: also those that are infinite, subnormal, or not numbers.
fn bits(len: usize) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(len as u64);
    (0..len).map(|_| random.u32(..)).collect()
}
