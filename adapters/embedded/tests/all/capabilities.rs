//! Regions with capabilities: wishes and fallbacks, the preference of the heap, resizes, frees by address.

use std::alloc::{GlobalAlloc, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use terrace_embedded::{Bounded, Checked, Fast, FirmwareHeap, FreeError, HeapConfig, MemoryCaps, Small, heap_arena};

const INTERNAL: MemoryCaps = MemoryCaps::INTERNAL;
const EXTERNAL: MemoryCaps = MemoryCaps::EXTERNAL;
const DMA: MemoryCaps = MemoryCaps::DMA;
const RETAINED: MemoryCaps = MemoryCaps::user::<3>();

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("small")
}

/// Adds a region of this size to a heap.
fn add<C: HeapConfig, const REGIONS: usize>(heap: &FirmwareHeap<C, REGIONS>, bytes: usize, has: MemoryCaps) {
    let memory: &'static mut [MaybeUninit<u8>] = Box::leak(Box::new_uninit_slice(bytes));
    heap.add_memory_with(memory, has).expect("a region");
}

/// Two regions: 8 KiB on the chip, 64 KiB outside.
fn two<C: HeapConfig>() -> FirmwareHeap<C, 2> {
    let heap = FirmwareHeap::empty();
    add(&heap, 8192, INTERNAL | DMA);
    add(&heap, 65_536, EXTERNAL);
    heap
}

#[test]
fn a_request_goes_to_the_first_region_that_has_what_it_needs() {
    let heap = two::<Bounded>();
    let outside = heap.allocate_in(layout(100), &[EXTERNAL]).expect("room");
    assert_eq!((heap.usage_of(INTERNAL).live, heap.usage_of(EXTERNAL).live), (0, 104));
    let inside = heap.allocate_in(layout(100), &[DMA | INTERNAL]).expect("room");
    assert_eq!((heap.usage_of(DMA).live, heap.usage_of(EXTERNAL).live), (104, 104));
    assert_eq!(heap.allocate_in(layout(100), &[DMA | EXTERNAL]), None, "no region has both");
    assert_eq!(heap.allocate_in(layout(100), &[RETAINED]), None);
    assert_eq!(heap.allocate_in(layout(100), &[]), None, "nothing suits");
    assert_eq!(heap.allocate_in(layout(0), &[EXTERNAL]), None);
    assert_eq!(heap.counters().failures, 4);
    // SAFETY: live, and used no more.
    [outside, inside].into_iter().for_each(|block| unsafe { heap.free(block, layout(100)) });
    assert_eq!((heap.stats().live, heap.usage_of(MemoryCaps::ANY).free_blocks, heap.counters().refused), (0, 2, 0));
}

#[test]
fn what_waits_is_merged_only_if_no_region_can_serve_without() {
    let heap: FirmwareHeap<Fast, 2> = FirmwareHeap::empty();
    add(&heap, 65_536, INTERNAL);
    add(&heap, 65_536, EXTERNAL);
    let blocks: Vec<_> = (0..).map_while(|_| heap.allocate_in(layout(96), &[INTERNAL])).collect();
    // Eight blocks, as many as wait in a region of this size.
    // SAFETY: live, and used no more.
    blocks.iter().step_by(200).for_each(|&block| unsafe { heap.free(block, layout(96)) });
    // SAFETY: as above.
    blocks.iter().skip(1).step_by(200).for_each(|&block| unsafe { heap.free(block, layout(96)) });
    let waiting = heap.usage_of(INTERNAL).free_blocks;
    heap.allocate(layout(150)).expect("the other region has room");
    assert_eq!(heap.usage_of(INTERNAL).free_blocks, waiting, "pairs of neighbours still wait");
    heap.allocate_in(layout(150), &[INTERNAL]).expect("a pair, merged");
    assert!(heap.usage_of(INTERNAL).free_blocks < waiting);
}

#[test]
fn a_block_that_leaves_its_region_merges_in_no_other_that_it_passes() {
    // The second is copied after the lock is released, by another path.
    for (old, new) in [(96, 150), (300, 400)] {
        let heap: FirmwareHeap<Fast, 3> = FirmwareHeap::empty();
        [INTERNAL, EXTERNAL, RETAINED].into_iter().for_each(|has| add(&heap, 65_536, has));
        let fill = |has| -> Vec<_> { (0..).map_while(|_| heap.allocate_in(layout(old), &[has])).collect() };
        let (inside, retained) = (fill(INTERNAL), fill(RETAINED));
        for i in [0, 100, 1, 101] {
            // SAFETY: live, and used no more.
            unsafe { heap.free(inside[i], layout(old)) };
        }
        let waiting = heap.usage_of(INTERNAL).free_blocks;
        // SAFETY: live; the old pointer is used no more.
        unsafe { heap.reallocate(retained[9], layout(old), new) }.expect("the second region is empty");
        let [inside, outside] = [INTERNAL, EXTERNAL].map(|has| heap.usage_of(has));
        assert_eq!((inside.free_blocks, outside.live), (waiting, new.next_multiple_of(16)));
    }
}

#[test]
fn a_fallback_serves_what_the_wish_cannot_and_only_then() {
    let heap = two::<Bounded>();
    let want = [INTERNAL, EXTERNAL];
    let blocks: Vec<_> = (0..20).map(|_| heap.allocate_in(layout(1000), &want).expect("room in one of them")).collect();
    let inside = heap.usage_of(INTERNAL);
    assert!(inside.live >= 7000 && inside.largest_free < 1000, "full first: {inside:?}");
    assert_eq!(heap.usage_of(EXTERNAL).live, 20_000 - inside.live);
    assert_eq!(heap.allocate_in(layout(1000), &[DMA]), None, "without a fallback it fails");
    assert_eq!(heap.counters().failures, 1);
    // SAFETY: live, and used no more; each goes back to its own region.
    blocks.into_iter().for_each(|block| unsafe { heap.free(block, layout(1000)) });
    assert_eq!((heap.usage_of(INTERNAL).free_blocks, heap.usage_of(EXTERNAL).free_blocks), (1, 1));
    heap.check().expect("every invariant holds");
}

#[test]
fn the_preference_is_that_of_requests_without_a_wish() {
    let heap = two::<Small>();
    let first = heap.allocate(layout(64)).expect("room");
    assert_eq!(heap.usage_of(INTERNAL).live, 64, "the region added first");
    heap.set_preference(&[EXTERNAL]);
    // SAFETY: the layout has bytes.
    let block = NonNull::new(unsafe { heap.alloc(layout(64)) }).expect("room");
    assert_eq!((heap.usage_of(INTERNAL).live, heap.usage_of(EXTERNAL).live), (64, 64));
    assert_eq!(heap.allocate(layout(65_000)), None, "and nothing but it");
    let wish = heap.allocate_in(layout(64), &[INTERNAL]).expect("a wish of its own comes before");
    assert_eq!(heap.usage_of(INTERNAL).live, 128);
    heap.set_preference(&[EXTERNAL, INTERNAL]);
    // SAFETY: live, and used no more.
    [first, block, wish].into_iter().for_each(|block| unsafe { heap.free(block, layout(64)) });
    while heap.usage_of(EXTERNAL).largest_free >= 2 * 4096 {
        assert!(heap.allocate(layout(4096)).is_some() && heap.usage_of(INTERNAL).live == 0, "the first choice");
    }
    let blocks = [heap.allocate(layout(4096)), heap.allocate(layout(4096))];
    assert!(blocks.iter().all(Option::is_some) && heap.usage_of(INTERNAL).live >= 4096, "then the second");
}

#[test]
fn one_region_serves_everything_but_wishes_that_it_cannot_meet() {
    let heap: FirmwareHeap = FirmwareHeap::empty();
    add(&heap, 4096, INTERNAL);
    heap.set_preference(&[EXTERNAL]);
    assert!(heap.allocate(layout(8)).is_some(), "there is no choice to prefer");
    assert!(heap.allocate_in(layout(8), &[INTERNAL]).is_some());
    assert_eq!(heap.allocate_in(layout(8), &[EXTERNAL]), None);
}

#[test]
fn a_block_that_grows_stays_in_its_region_and_leaves_it_only_to_what_is_wanted() {
    for size in [100, 3000] {
        // Copied under the lock, and outside of it.
        let heap = two::<Checked<Bounded>>();
        let block = heap.allocate_in(layout(size), &[DMA]).expect("room");
        let behind = heap.allocate_in(layout(8), &[DMA]).expect("room");
        // SAFETY: a fresh block of `size` bytes.
        unsafe { block.write_bytes(7, size) };
        // SAFETY: live; only the returned pointer is used from here on.
        let grown = unsafe { heap.reallocate_in(block, layout(size), size + 800, &[DMA]) }.expect("room beside it");
        assert!(grown != block && grown != behind);
        assert_eq!(heap.usage_of(EXTERNAL).live, 0);
        // SAFETY: live, and unchanged when there is no room.
        let none = unsafe { heap.reallocate_in(grown, layout(size + 800), 9000, &[DMA]) };
        assert_eq!((none, heap.counters().failures), (None, 1));
        heap.set_preference(&[INTERNAL]);
        // SAFETY: as above.
        let none = unsafe { heap.reallocate(grown, layout(size + 800), 9000) };
        assert_eq!(none, None, "nor does the preference lead out");
        // SAFETY: live; only the returned pointer is used from here on.
        let out = unsafe { heap.reallocate_in(grown, layout(size + 800), 9000, &[DMA, EXTERNAL]) }.expect("outside");
        // SAFETY: the first `size` bytes were written above, and moved along.
        assert!(unsafe { std::slice::from_raw_parts(out.as_ptr(), size) }.iter().all(|&byte| byte == 7));
        assert_eq!((heap.usage_of(DMA).live, heap.usage_of(EXTERNAL).live), (8, 9000));
        assert_eq!((heap.counters().requested, heap.counters().refused), (9008, 0));
        // Nor does a block outside come in because it moves: the preference is for what has no place yet.
        let [here, _behind] = [size, 8].map(|size| heap.allocate_in(layout(size), &[EXTERNAL]).expect("room"));
        // SAFETY: as above.
        let there = unsafe { heap.reallocate(here, layout(size), size + 1000) }.expect("room outside, and inside");
        assert!(there != here && heap.usage_of(DMA).live == 8, "{:?}", heap.usage_of(DMA));
        heap.check().expect("every invariant holds");
    }
}

#[test]
fn six_regions_serve_their_own_and_take_back_their_own() {
    static HEAP: FirmwareHeap<Checked<Bounded>, 6> = FirmwareHeap::empty();
    let has = [INTERNAL, INTERNAL | DMA, DMA, EXTERNAL, RETAINED | INTERNAL, MemoryCaps::user::<23>()];
    has.into_iter().for_each(|has| add(&HEAP, 4096, has));
    assert!(heap_arena!(HEAP, 4096).is_err(), "a seventh");
    // Alignment may cut off 16 bytes of each.
    let regions = |has| (HEAP.usage_of(has).total + 6 * 16) / 4096;
    assert_eq!([INTERNAL, DMA, EXTERNAL, RETAINED, MemoryCaps::ANY].map(regions), [3, 2, 1, 1, 6]);
    let mut random = fastrand::Rng::with_seed(6);
    let mut live: Vec<(NonNull<u8>, Layout, u8)> = Vec::new();
    for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
        if random.bool() {
            let want = [has[random.usize(..6)], MemoryCaps::ANY];
            let layout = layout(random.usize(1..600));
            if let Some(block) = HEAP.allocate_in(layout, &want[..random.usize(1..=2)]) {
                // SAFETY: a fresh block of the layout's size.
                unsafe { block.write_bytes(round as u8, layout.size()) };
                live.push((block, layout, round as u8));
            }
        } else if !live.is_empty() {
            let (block, layout, fill) = live.swap_remove(random.usize(..live.len()));
            // SAFETY: live, and written when it was allocated.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == fill));
            // SAFETY: live, and used no more.
            unsafe { HEAP.free(block, layout) };
        }
    }
    assert!(cfg!(miri) || HEAP.counters().failures > 0, "some wishes were not met");
    HEAP.check().expect("every invariant holds");
    // SAFETY: live, and used no more.
    live.into_iter().for_each(|(block, layout, _)| unsafe { HEAP.free(block, layout) });
    let stats = HEAP.stats();
    assert_eq!((stats.live, stats.free_blocks, stats.counters.live, stats.counters.refused), (0, 6, 0, 0), "{stats}");
}

#[test]
fn a_pointer_of_no_region_is_refused() {
    static SEEN: std::sync::Mutex<Vec<FreeError>> = std::sync::Mutex::new(Vec::new());
    let heap = two::<Bounded>();
    heap.on_bad_free(|error| SEEN.lock().expect("alone").push(error.0));
    let mut elsewhere = 0u64;
    let foreign = NonNull::from(&mut elsewhere).cast();
    // SAFETY: refused: it lies in no region.
    unsafe { heap.free(foreign, layout(8)) };
    // SAFETY: as above.
    assert_eq!(unsafe { heap.reallocate(foreign, layout(8), 16) }, None);
    assert_eq!(*SEEN.lock().expect("alone"), [FreeError::Foreign { address: foreign.addr().get() as u64 }; 2]);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn a_collection_stays_in_the_memory_that_it_was_made_for() {
    use allocator_api2::vec::Vec;
    let heap = two::<Bounded>();
    let mut buffer = Vec::new_in(heap.within(&[DMA]));
    let mut samples = Vec::new_in(heap.within(&[EXTERNAL]));
    for i in 0..400u64 {
        buffer.push(i);
        samples.push(i);
    }
    assert!(heap.usage_of(DMA).live >= 3200 && heap.usage_of(EXTERNAL).live >= 3200);
    assert!(buffer.try_reserve(2000).is_err(), "it does not leave, though there is room outside");
    samples.shrink_to_fit();
    assert_eq!(heap.usage_of(EXTERNAL).live, 3200);
    assert!(buffer.iter().eq(samples.iter()));
    drop((buffer, samples));
    assert_eq!(heap.stats().live, 0);
}
