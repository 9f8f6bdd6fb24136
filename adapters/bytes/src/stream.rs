//! What large results need: code for the processor at hand, and stores that pass its caches by.
//!
//! A result larger than the caches is gone from them before it is read. Written by ordinary stores, each of its lines is first
//! read from memory; written by streaming stores it is not, which is a third of the traffic of a conversion. So results
//! are made a chunk at a time in a buffer that stays in the first cache, and streamed from there.
//!
//! Promises upward: [`map`] writes what `each` says of each element, whatever the processor, the length and the addresses.
//! Asks from below: `vectors`, on a processor with AVX2.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
use crate::each::LARGE;
use crate::each::{Each, double};
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use crate::vectors;

/// Writes the conversion of `from` to `to`. The caller must have checked that they have one length.
pub fn map<A: Copy, B: bytemuck::Pod>(from: &[A], to: &mut [B], each: impl Each<A, B>) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if vectors::has_vectors() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { vectors::map(from, to, each) };
    }
    each.part(from, to);
}

/// Changes each element. As [`map`], in place.
pub fn change<T: Copy>(elements: &mut [T], each: impl Fn(T) -> T) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if vectors::has_vectors() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { vectors::change(elements, each) };
    }
    elements.iter_mut().for_each(|element| *element = each(*element));
}

/// Writes `pattern`, a whole number of times and a part of it, over `to`.
pub fn repeat(to: &mut [u8], pattern: &[u8]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if to.len() >= LARGE && vectors::has_vectors() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { vectors::repeat(to, pattern) };
    }
    double(to, pattern);
}
