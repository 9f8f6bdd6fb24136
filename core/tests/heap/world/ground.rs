//! Memory for regions: starts and ends anywhere, full of rubbish, with bytes on both sides that must stay as they are.
//!
//! Promises upward: [`Ground::is_intact`] tells whether anybody wrote outside the region; bytes of a block are filled
//! with a pattern and compared with it.
//! Asks from below: the system's allocator.

use super::cut;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Every ground's memory starts at a multiple of this: alignments up to it can be had at known places.
pub const ALIGN: usize = 4096;
/// Guard bytes behind a region. None for a fuzzer: the sanitizer has its own right behind the last byte.
const BEHIND: usize = if cfg!(fuzzing) { 0 } else { 24 };
/// What the guard bytes are.
const GUARD: u8 = 0xa5;

/// Memory of a region.
#[derive(Debug)]
pub struct Ground {
    memory: NonNull<u8>,
    layout: Layout,
    front: usize,
    bytes: usize,
}

impl Ground {
    /// `bytes` bytes, `front` bytes behind a multiple of [`ALIGN`].
    pub fn new(front: usize, bytes: usize) -> Self {
        let layout = Layout::from_size_align((front + bytes + BEHIND).max(1), ALIGN).expect("a small size");
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let ground = Self { memory, layout, front, bytes };
        // Not zeros: a heap must not count on them. Miri's memory has no value at all where it was not written, and is
        // told of by the first read: there the region stays so.
        let guarded = if cfg!(miri) { [(0, front), (front + bytes, BEHIND)] } else { [(0, layout.size()), (0, 0)] };
        for (from, count) in guarded {
            // SAFETY: inside what was just given to us.
            unsafe { memory.as_ptr().wrapping_add(from).write_bytes(GUARD, count) };
        }
        ground
    }

    /// The first byte of the region.
    pub fn start(&self) -> NonNull<u8> {
        self.at(0)
    }

    /// Bytes of the region.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address `offset` bytes behind the region's start, which may lie outside of it.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::new(self.memory.as_ptr().wrapping_add(self.front + offset)).expect("not around the end of memory")
    }

    /// Whether the bytes in front and behind are as they were.
    pub fn is_intact(&self) -> bool {
        let behind = self.at(self.bytes);
        matches(self.memory, 0..self.front, |_| GUARD) && matches(behind, 0..BEHIND, |_| GUARD)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and the heap above is gone.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// Byte `i` of a pattern.
pub fn pattern(fill: u8, i: usize) -> u8 {
    (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ fill
}

/// Writes a pattern over a live block.
pub fn fill(block: NonNull<u8>, bytes: usize, fill: u8) {
    for i in marked(bytes) {
        // SAFETY: the caller has a live block of so many bytes.
        unsafe { block.as_ptr().wrapping_add(i).write(pattern(fill, i)) };
    }
}

/// Whether a live block still holds its pattern.
pub fn holds(block: NonNull<u8>, bytes: usize, fill: u8) -> bool {
    matches(block, marked(bytes), |i| pattern(fill, i))
}

/// The bytes of a block that have its pattern: all; under Miri a few of each size.
fn marked(bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes).step_by(cut(1, 37))
}

fn matches(from: NonNull<u8>, mut bytes: impl Iterator<Item = usize>, expected: impl Fn(usize) -> u8) -> bool {
    // SAFETY: the caller owns these bytes, and they were written.
    bytes.all(|i| unsafe { from.as_ptr().wrapping_add(i).read() } == expected(i))
}
