//! A program that writes into memory it gave back: `check` says so, and neither it nor `usage` reads outside of the
//! region or walks for ever.

use crate::world::cut;
use crate::world::ground::Ground;
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use terrace_core::heap::{Bounded, Fast, HeaderHeap, HeapConfig, Narrow, Packed, RegionHeap, Small, Wide};

const LAYOUT: Layout = Layout::new::<[u64; 4]>();
const BYTES: usize = 8192;

/// Writes `garbage` over the record of a free block, which is `words` long.
fn broken<C: HeapConfig>(garbage: [u64; 2], words: usize) {
    let ground = Ground::new(0, BYTES);
    let mut heap = RegionHeap::<C>::empty();
    // SAFETY: the ground outlives the heap, and nothing else uses it.
    unsafe { heap.add_region(ground.start(), BYTES) }.expect("large enough");
    let blocks = [(); 9].map(|()| heap.allocate(LAYOUT).expect("room"));
    // The record of a free block fills no more of it than it needs; the rest is read below.
    // SAFETY: a live block of four words.
    blocks.iter().for_each(|block| unsafe { block.write_bytes(0, LAYOUT.size()) });
    for block in blocks.iter().step_by(2) {
        // SAFETY: live, and used once more only: below, which is the bug that is looked for.
        unsafe { heap.free(*block, LAYOUT) }.expect("live");
    }
    heap.check().expect("whole so far");
    let record = blocks[4].cast::<u64>();
    let mut changed = false;
    for (i, &word) in garbage.iter().enumerate().take(words) {
        // SAFETY: inside a block of four words.
        let place = unsafe { record.add(i) };
        // SAFETY: as above; the heap reads it with this right.
        changed |= unsafe { place.read() } != word;
        // SAFETY: as above.
        unsafe { place.write(word) };
    }
    assert!(heap.check().is_err() || !changed, "{garbage:x?}");
    assert_eq!(heap.usage().total, BYTES, "it comes to an end");
}

#[test]
fn a_record_that_was_written_over_is_found_and_leads_nowhere() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut random = move || random.u64(..);
    for round in 0..cut(3000, 12) {
        // Small numbers are places and sizes that exist; large ones are far outside.
        let mut word = || match round % 4 {
            0 => random(),
            1 => random() & 0x03ff_03ff_03ff_03ff,
            2 => random() & 0x0000_03ff_0000_03ff,
            _ => [0, u64::MAX, 0x2_ffff_0002, 0x7ff_ffc0_0002, 0xffff_ffff_0000_0001][round % 5],
        };
        let garbage = [word(), word()];
        broken::<Small<Narrow>>(garbage, 1);
        broken::<Small<Packed>>(garbage, 1);
        broken::<Small<Wide>>(garbage, 2);
        broken::<Fast<Packed>>(garbage, 1);
    }
}

/// A heap over memory that ends where its allocation ends, with every second of `N` blocks of 16 bytes freed.
fn every_second_freed<C: HeapConfig, const N: usize>(memory: &mut [u64]) -> (RegionHeap<C>, [NonNull<u8>; N]) {
    let mut heap = RegionHeap::<C>::empty();
    // SAFETY: the memory outlives the heap, and nothing else uses it.
    unsafe { heap.add_region(NonNull::from(&mut *memory).cast(), size_of_val(memory)) }.expect("large enough");
    let blocks = [(); N].map(|()| heap.allocate(Layout::new::<[u64; 2]>()).expect("room"));
    for block in blocks.iter().step_by(2) {
        // SAFETY: live; the tests write into it once more, which is the bug that is looked for.
        unsafe { heap.free(*block, Layout::new::<[u64; 2]>()) }.expect("live");
    }
    (heap, blocks)
}

/// Frees blocks of one granule that hold no value, in an order in which each meets its neighbours: Miri tells if one is read.
fn freed_without_a_value<C: HeapConfig>(memory: &mut [u64]) {
    let mut heap = RegionHeap::<C>::empty();
    // SAFETY: the memory outlives the heap, and nothing else uses it.
    unsafe { heap.add_region(NonNull::from(&mut *memory).cast(), size_of_val(memory)) }.expect("large enough");
    let layout = Layout::new::<u64>();
    let blocks = [(); 8].map(|()| heap.allocate(layout).expect("room").cast::<MaybeUninit<u64>>());
    // SAFETY: live blocks of this size.
    blocks.iter().for_each(|block| unsafe { block.write(MaybeUninit::uninit()) });
    for i in [0, 1, 4, 3, 6, 5, 2, 7] {
        // SAFETY: live, and used no more.
        unsafe { heap.free(blocks[i].cast(), layout) }.expect("live");
    }
    heap.merge();
    assert_eq!((heap.check(), heap.usage().free_blocks), (Ok(()), 1));
}

#[test]
fn what_a_block_holds_is_not_read_when_it_is_freed() {
    let mut memory = vec![0; 512];
    freed_without_a_value::<Small<Packed>>(&mut memory);
    freed_without_a_value::<Small<Narrow>>(&mut memory);
    freed_without_a_value::<Bounded<Packed>>(&mut memory);
    freed_without_a_value::<Fast<Packed>>(&mut memory);
}

#[test]
fn a_link_to_the_last_place_is_not_followed_behind_the_region() {
    let mut memory = vec![0; 256];
    let (heap, blocks) = every_second_freed::<Small<Packed>, 5>(&mut memory);
    let free = heap.usage().free;
    for place in 0..1024_u32 {
        // SAFETY: the link to the next block is the first word of a free block of this heap.
        unsafe { blocks[2].cast::<u32>().write(place) };
        assert!(heap.check().is_err() || heap.usage().free == free, "{place}");
    }
}

#[test]
fn merging_comes_to_an_end_when_links_between_blocks_that_wait_are_gone() {
    // Eight blocks may wait.
    let mut memory = vec![0; 4096];
    let (mut heap, blocks) = every_second_freed::<Fast<Narrow>, 40>(&mut memory);
    for block in blocks.iter().step_by(2) {
        // SAFETY: freed memory of this heap, which writes there too, but not now.
        unsafe { block.write_bytes(0, 16) };
    }
    assert!(heap.allocate(Layout::new::<[u64; 4096]>()).is_none(), "after all that waits was merged");
}

#[test]
fn a_header_that_was_written_over_is_a_foreign_block_by_the_address_that_was_given() {
    let ground = Ground::new(0, BYTES);
    let mut heap = HeaderHeap::<terrace_core::heap::Checked<Fast>>::empty();
    // SAFETY: the ground outlives the heap, and nothing else uses it.
    unsafe { heap.add_region(ground.start(), BYTES) }.expect("large enough");
    let block = heap.allocate(256, 1).expect("room");
    for lead in [1 << (usize::BITS - 2), 1 << 12, 16] {
        let inside = block.cast::<usize>();
        // SAFETY: inside the block.
        unsafe { inside.write(0) };
        // SAFETY: inside the block.
        let second = unsafe { inside.add(1) };
        // SAFETY: inside the block.
        unsafe { second.write(lead) };
        // SAFETY: inside the block.
        let forged = unsafe { block.add(2 * size_of::<usize>()) };
        // SAFETY: it is not a block, which a checked heap says.
        let error = unsafe { heap.free(forged) }.expect_err("no block");
        assert!(error.to_string().contains(&format!("{:#x}", forged.addr())), "{error}");
    }
    heap.check().expect("nothing was changed");
}
