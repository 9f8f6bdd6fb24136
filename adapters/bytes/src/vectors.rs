//! Loops that are compiled for AVX2, and stores that pass the caches by (x86-64).
//!
//! Promises upward: as `stream`.
//! Asks from below: the caller must have found [`has_vectors`] true; what is not in vectors is left to [`Each`].

use crate::each::{Each, LARGE, double};
use bytemuck::Pod;
use core::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

/// Bytes of results made at a time: an eighth of a first-level cache of 32 KiB, beside as much of the source or twice.
const CHUNK: usize = 4096;

/// A chunk of results.
#[repr(align(64))]
struct ResultChunk([u8; CHUNK]);

/// Whether the processor has what this file is compiled for. A load, after the first call.
pub fn has_vectors() -> bool {
    std::is_x86_feature_detected!("avx2")
}

/// Fences streaming stores when dropped: also where a type's own code panics between them.
struct StoreFence;

impl Drop for StoreFence {
    fn drop(&mut self) {
        // SAFETY: made only where AVX2 was found, which includes SSE.
        unsafe { _mm_sfence() };
    }
}

/// Copies whole vectors past the caches. The caller must hold a [`StoreFence`].
///
/// `to` begins at a multiple of 32, and its length is one.
#[target_feature(enable = "avx2")]
fn stream(to: &mut [u8], from: &[u8]) {
    debug_assert!(to.as_ptr().addr().is_multiple_of(32) && to.len().is_multiple_of(32) && to.len() == from.len());
    for (to, from) in to.chunks_exact_mut(32).zip(from.chunks_exact(32)) {
        // SAFETY: `from` has 32 bytes.
        let vector = unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) };
        // SAFETY: `to` has 32 bytes, at a multiple of 32; the caller's `StoreFence` orders the store.
        unsafe { _mm256_stream_si256(to.as_mut_ptr().cast::<__m256i>(), vector) };
    }
}

#[target_feature(enable = "avx2")]
pub fn change<T: Copy>(elements: &mut [T], each: impl Fn(T) -> T) {
    elements.iter_mut().for_each(|element| *element = each(*element));
}

#[target_feature(enable = "avx2")]
pub fn map<A: Copy, B: Pod>(from: &[A], to: &mut [B], each: impl Each<A, B>) {
    let size = size_of::<B>();
    // An element whose size divides a vector's can begin at one; others are no numbers.
    if size_of_val(to) < LARGE || size == 0 || 32 % size != 0 {
        return each.part(from, to);
    }
    let head = to.as_ptr().align_offset(32).min(to.len());
    let whole = head + (to.len() - head) / (32 / size) * (32 / size);
    each.part(&from[..head], &mut to[..head]);
    let mut chunk = ResultChunk([0; CHUNK]);
    let per_chunk = CHUNK / size;
    // Other threads that are told of the result see streamed bytes as all others.
    let fence = StoreFence;
    for (from, to) in from[head..whole].chunks(per_chunk).zip(to[head..whole].chunks_mut(per_chunk)) {
        let results: &mut [B] = &mut bytemuck::cast_slice_mut(&mut chunk.0)[..from.len()];
        each.part(from, results);
        stream(bytemuck::cast_slice_mut(to), bytemuck::cast_slice(results));
    }
    drop(fence);
    each.part(&from[whole..], &mut to[whole..]);
}

/// Bytes after which a pattern of `len` bytes, in vectors of 32, begins anew.
///
/// `None`: it does not within a chunk.
fn repeats(len: usize) -> Option<usize> {
    let twos = 1 << len.trailing_zeros().min(5);
    let least = len.checked_mul(32)? / twos;
    (len != 0 && least <= CHUNK).then(|| CHUNK / least * least)
}

#[target_feature(enable = "avx2")]
pub fn repeat(to: &mut [u8], pattern: &[u8]) {
    let Some(step) = repeats(pattern.len()) else { return double(to, pattern) };
    let (head, vectors) = to.split_at_mut(to.as_ptr().align_offset(32).min(to.len()));
    double(head, pattern);
    // A chunk of the pattern from where the head ends.
    let mut chunk = ResultChunk([0; CHUNK]);
    let turn = head.len() % pattern.len();
    double(&mut chunk.0[..step], pattern);
    chunk.0[..step].rotate_left(turn);
    let (whole, tail) = vectors.split_at_mut(vectors.len() / 32 * 32);
    let fence = StoreFence;
    whole.chunks_mut(step).for_each(|part| stream(part, &chunk.0[..part.len()]));
    drop(fence);
    let from = whole.len() % step;
    tail.copy_from_slice(&chunk.0[from..from + tail.len()]);
}
