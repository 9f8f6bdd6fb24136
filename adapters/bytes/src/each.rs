//! What is done to each element, and to memory that repeats: plain loops, which each caller compiles for its processor.

/// Bytes from which results are written past the caches, and fills repeat bytes.
///
/// Below this a result still fits into a second-level cache of 1 MiB beside its source, and its reader finds it there.
pub const LARGE: usize = 512 << 10;

/// Converts slices of one length: what `stream::map` needs of a conversion.
pub trait Each<A, B> {
    /// Converts a part. Called for parts of one length, in order.
    fn part(&self, from: &[A], to: &mut [B]);
}

/// Converts slices by converting each element.
pub struct ByElement<F>(pub F);

impl<A: Copy, B, F: Fn(A) -> B> Each<A, B> for ByElement<F> {
    #[inline(always)]
    fn part(&self, from: &[A], to: &mut [B]) {
        for (from, to) in from.iter().zip(to) {
            *to = (self.0)(*from);
        }
    }
}

/// Writes `pattern` once, and then copies what is written, a block at a time.
pub fn double(to: &mut [u8], pattern: &[u8]) {
    /// Bytes that stay in a first-level cache while they are copied.
    const BLOCK: usize = 16 << 10;
    let mut done = pattern.len().min(to.len());
    to[..done].copy_from_slice(&pattern[..done]);
    let block = (BLOCK / pattern.len().max(1)).max(1) * pattern.len();
    while done != 0 && done < to.len() {
        let (from, rest) = to.split_at_mut(done);
        let count = done.min(block).min(rest.len());
        rest[..count].copy_from_slice(&from[..count]);
        done += count;
    }
}
