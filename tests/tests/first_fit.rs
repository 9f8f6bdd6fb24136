//! First fit beside an independent allocator: the same random program on `linked_list_allocator` and on
//! `Range<FirstFit>` gives the same offsets, the same refusals, and the same gaps.
//!
//! What makes the two comparable: `linked_list_allocator` 0.10 keeps a hole's record (two words, 16 bytes on 64-bit
//! machines) in the hole, rounds sizes up to it, and passes over a place that would leave a smaller piece. With memory
//! aligned to 4 KiB and every size a multiple of the granule of 16 bytes, every piece that is ever left is a multiple of
//! 16 too, so that rule never says anything else than ours; and both then take the lowest address that fits. Requests
//! are therefore rounded up to 16 bytes before either sees them. Where words have 4 bytes the same holds.

use linked_list_allocator::Heap;
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use terrace::engine::{Allocator, Block, Branch, FirstFit, Owner, Range, Request, Slot};
use terrace_tests::Random;

/// Bytes of both heaps.
const BYTES: usize = 64 << 10;
/// Bytes of a granule: the record of a hole.
const GRANULE: u64 = 16;
/// Alignment of the memory; requests ask for at most that.
const ALIGN: u64 = 4096;

#[repr(align(4096))]
struct Memory([MaybeUninit<u8>; BYTES]);

/// Both allocators.
struct Pair {
    theirs: Heap,
    base: usize,
    ours: Range<Vec<Slot>, FirstFit<Vec<Branch>>>,
    live: Vec<(NonNull<u8>, Layout, Block)>,
    refused: u64,
}

impl Pair {
    fn new() -> Self {
        let memory = &mut Box::leak(Box::new(Memory([MaybeUninit::uninit(); BYTES]))).0;
        let base = memory.as_ptr().addr();
        let slots = BYTES / GRANULE as usize + 1;
        let index = FirstFit::new(vec![Branch::EMPTY; slots]);
        let mut ours = Range::new(vec![Slot::EMPTY; slots], GRANULE, index).expect("valid");
        ours.add_region(0, BYTES as u64).expect("room");
        Self { theirs: Heap::from_slice(memory), base, ours, live: Vec::new(), refused: 0 }
    }

    fn allocate(&mut self, bytes: u64, align: u64) {
        let bytes = bytes.next_multiple_of(GRANULE);
        let layout = Layout::from_size_align(bytes as usize, align as usize).expect("small");
        let theirs = self.theirs.allocate_first_fit(layout).ok();
        let ours = self.ours.allocate(Request::new(bytes).align(align)).ok();
        let offset = theirs.map(|pointer| (pointer.as_ptr().addr() - self.base) as u64);
        assert_eq!(offset, ours.map(|block| block.address), "{bytes} bytes at {align}");
        match theirs.zip(ours) {
            Some((pointer, block)) => self.live.push((pointer, layout, block)),
            None => self.refused += 1,
        }
    }

    fn free(&mut self, at: usize) {
        let (pointer, layout, block) = self.live.swap_remove(at);
        // SAFETY: the pointer came from this heap with this layout, and it leaves the list of live blocks here.
        unsafe { self.theirs.deallocate(pointer, layout) };
        self.ours.free(block, Owner(0)).expect("live");
    }

    fn compare(&self) {
        assert_eq!(self.theirs.used() as u64, self.ours.stats().in_use);
        assert_eq!(self.theirs.free() as u64, self.ours.stats().reserved - self.ours.stats().in_use);
    }
}

#[test]
fn first_fit_gives_the_offsets_of_linked_list_allocator() {
    let mut refused = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut pair = Pair::new();
        let largest = 64 << random.below(8);
        for _ in 0..4000 {
            if random.below(16) < 8 || pair.live.is_empty() {
                let align = if random.once_in(3) { 1 << random.below(u64::from(ALIGN.ilog2()) + 1) } else { 1 };
                let bytes = random.size(largest);
                pair.allocate(bytes, align);
            } else {
                let at = random.below(pair.live.len() as u64) as usize;
                pair.free(at);
            }
            pair.compare();
        }
        refused += pair.refused;
        while !pair.live.is_empty() {
            pair.free(0);
        }
        pair.allocate(BYTES as u64, 1);
        assert_eq!(pair.live.len(), 1, "all of it is one piece again");
    }
    assert!(refused > 100, "full heaps are compared too, not only {refused} refusals");
}
