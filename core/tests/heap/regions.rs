//! What can become a region, and what is answered when something cannot: nothing changes then.

use crate::world::ground::Ground;
use crate::world::shadow::Shadow;
use crate::world::target::Target;
use crate::world::{Kind, cut, kinds, told};
use std::alloc::Layout;
use std::num::NonZero;
use std::ptr::NonNull;
use terrace_core::heap::{Bounded, Checked, Fast, Narrow, Packed, RegionError, Small, Wide};

fn small(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 1).expect("small")
}

/// Lists of a region: bin 0, those of one size each, and eight for each power of two up to that of its size.
fn lists(exact: usize, granules: usize) -> usize {
    if granules < exact {
        granules + 1
    } else {
        exact + (granules.ilog2() - exact.ilog2()) as usize * 8 + eighth(granules) + 1
    }
}

/// Which eighth of its power of two a size is in.
fn eighth(granules: usize) -> usize {
    (granules >> (granules.ilog2() - 3)) - 8
}

/// Words of the bitmap of lists: a bit for each that the records allow, and one that stays 0; and, but for `Small`, a word that ends it.
fn map(kind: &Kind) -> usize {
    let bits = if kind.most == 1 << 16 { 16 } else { 32.min(usize::BITS - if usize::BITS < 64 { 4 } else { 0 }) };
    (kind.exact + (bits - kind.exact.ilog2()) as usize * 8 + 1).div_ceil(usize::BITS as usize)
        + usize::from(kind.exact > 32)
}

/// Granules of the tables: heads, those of 64 quick lists in a heap that defers, and one bit a granule and one for the end;
/// checked, twice. Each table is in whole words, and one word longer than its bits need.
fn tables(kind: &Kind, granules: usize) -> usize {
    let word = size_of::<usize>();
    let bits = (granules / usize::BITS as usize + 2) * word;
    let heads = (lists(kind.exact, granules) + if kind.defers { 64 } else { 0 }) * kind.head;
    let bits = bits * if kind.checked { 2 } else { 1 };
    (bits + map(kind) * word + heads).div_ceil(kind.granule)
}

#[test]
fn tables_take_a_bit_a_granule_and_a_head_a_list() {
    for kind in told(kinds()) {
        let larger = [1000, 1023, 1024, 1025, 5000, 20_000, 65_536].into_iter().take(cut(7, 5));
        for granules in (40..300).step_by(cut(1, 29)).chain(larger) {
            let (bytes, expected) = (granules * kind.granule, tables(&kind, granules));
            let mut shadow = Shadow::new(kind);
            let added = shadow.add(0, bytes);
            assert_eq!(added.is_ok(), expected < granules, "{granules} granules of {}", kind.name);
            if added.is_ok() {
                let usage = shadow.heap.usage();
                assert_eq!((usage.total, usage.tables), (bytes, expected * kind.granule), "{granules}: {}", kind.name);
            }
        }
    }
}

#[test]
fn the_smallest_region_has_one_granule_and_gives_it() {
    for kind in told(kinds()) {
        let least = (1..500).find(|&granules| tables(&kind, granules) < granules).expect("far less than 500");
        let mut shadow = Shadow::new(kind);
        assert_eq!(shadow.add(0, least * kind.granule - 1), Err(RegionError::TooSmall));
        assert_eq!(shadow.add(1, least * kind.granule), Err(RegionError::TooSmall), "its start is rounded up");
        shadow.add(0, (least + 1) * kind.granule - 1).expect("its end is rounded down");
        let free = shadow.heap.usage().free;
        assert_eq!(free, kind.granule * (least - tables(&kind, least)));
        if !kind.header {
            let block = shadow.allocate(small(free)).expect("all of it is one block");
            assert_eq!(shadow.allocate(small(1)), None);
            shadow.free(shadow.live(block));
        }
        shadow.drain();
    }
}

#[test]
fn a_start_anywhere_is_rounded_up_to_a_granule() {
    for kind in told(kinds()) {
        for front in (0..33).step_by(cut(1, 8)) {
            let mut shadow = Shadow::new(kind);
            shadow.add(front, 3000).expect("large enough");
            let start = shadow.address(0, 0).expect("a ground");
            let skip = front.next_multiple_of(kind.granule) - front;
            assert_eq!(shadow.heap.usage().total, (3000 - skip) / kind.granule * kind.granule);
            let usage = shadow.heap.usage();
            for offset in (0..3010).step_by(cut(1, 43)) {
                let inside = (skip + usage.tables..skip + usage.total).contains(&offset);
                let address = NonNull::new(start.as_ptr().wrapping_add(offset)).expect("near a ground");
                assert_eq!(shadow.heap.contains(address), inside);
            }
        }
    }
}

#[test]
fn nothing_and_next_to_nothing_are_too_small() {
    for kind in told(kinds()) {
        let mut shadow = Shadow::new(kind);
        for (front, bytes) in [(0, 0), (0, 1), (3, 1), (3, 5), (8, 8), (15, 1), (0, 16), (1, 31), (0, 32)] {
            assert_eq!(shadow.add(front, bytes), Err(RegionError::TooSmall));
        }
        assert_eq!(shadow.allocate(small(1)), None);
        // SAFETY: no bytes are given, so nothing is touched.
        let said = unsafe { shadow.heap.add_region(NonNull::dangling(), 0) };
        assert_eq!(said, Err(RegionError::TooSmall));
        shadow.add(0, 4096).expect("the refused ones took no room");
        shadow.drain();
    }
}

#[test]
fn a_region_past_the_end_of_memory_is_refused() {
    for kind in told(kinds()) {
        let mut shadow = Shadow::new(kind);
        for (below_end, bytes) in [(64, 65), (64, usize::MAX), (4096, 5000), (7, 100), (1, 2)] {
            let start = NonZero::new(usize::MAX - below_end + 1).expect("not 0");
            // SAFETY: refused, which is asserted.
            let said = unsafe { shadow.heap.add_region(NonNull::without_provenance(start), bytes) };
            assert_eq!(said, Err(RegionError::TooSmall), "{bytes} bytes, {below_end} below the end");
        }
        shadow.judge();
    }
}

#[test]
fn no_bytes_at_the_end_of_memory_are_too_small() {
    for kind in told(kinds()) {
        let mut shadow = Shadow::new(kind);
        for below_end in 0..20 {
            let start = NonZero::new(usize::MAX - below_end).expect("not 0");
            // SAFETY: no bytes are given, so nothing is touched.
            let said = unsafe { shadow.heap.add_region(NonNull::without_provenance(start), 0) };
            assert_eq!(said, Err(RegionError::TooSmall), "{below_end} below the end");
        }
        shadow.judge();
    }
}

/// The largest region is taken, and one granule more is refused.
fn limit(kind: Kind, bytes: usize) {
    let ground = Ground::new(0, bytes + kind.granule);
    let mut shadow = Shadow::new(kind);
    // SAFETY: refused, which is asserted.
    let said = unsafe { shadow.heap.add_region(ground.start(), bytes + kind.granule) };
    assert_eq!(said, Err(RegionError::TooLarge { max: bytes }), "{}", kind.name);
    assert_eq!(shadow.heap.usage().total, 0);
    shadow.judge();
    // Part of a granule more is not counted.
    shadow.add(0, bytes + kind.granule - 1).expect("as large as can be");
    assert_eq!(shadow.heap.usage().total, bytes);
}

#[test]
fn narrow_records_reach_512_kib() {
    limit(Kind::plain::<Fast<Narrow>, 1>(), 512 << 10);
    limit(Kind::plain::<Small<Narrow>, 3>(), 512 << 10);
    limit(Kind::header::<Checked<Fast<Narrow>>, 3>(), 512 << 10);
}

#[test]
fn wide_records_reach_further_than_memory() {
    assert_eq!(Kind::plain::<Fast<Wide>, 1>().most, u32::MAX as usize);
    assert_eq!(Kind::plain::<Bounded<Packed>, 1>().most, u32::MAX as usize);
    if usize::BITS == 64 {
        let mut shadow = Shadow::new(Kind::plain::<Fast<Wide>, 1>());
        let start = NonNull::without_provenance(NonZero::new(4096).expect("not 0"));
        // SAFETY: refused, which is asserted.
        let said = unsafe { shadow.heap.add_region(start, 16 << 32) };
        assert_eq!(said, Err(RegionError::TooLarge { max: 16 * (u32::MAX as usize) }));
    }
}

#[test]
fn what_a_heap_has_is_not_given_again() {
    for kind in told(kinds().into_iter().filter(|kind| kind.regions == 3).collect()) {
        let ground = Ground::new(0, 12 << 10);
        let at = |offset: usize| ground.at(offset);
        let mut heap = (kind.make)();
        let add = |heap: &mut Box<dyn Target>, offset: usize, bytes: usize| {
            // SAFETY: the ground outlives the heap; an overlap is refused, which is asserted.
            unsafe { heap.add_region(at(offset), bytes) }
        };
        assert_eq!(add(&mut heap, 4096, 4096), Ok(()));
        let before = heap.usage();
        for (offset, bytes) in [(4096, 4096), (0, 4097), (0, 12 << 10), (8191, 2000), (5000, 100), (4096, 1)] {
            assert_eq!(add(&mut heap, offset, bytes), Err(RegionError::Overlaps), "{bytes} at {offset}");
            assert_eq!((heap.usage(), heap.check()), (before, Ok(())));
        }
        assert_eq!(add(&mut heap, 6000, 0), Err(RegionError::TooSmall));
        assert_eq!(add(&mut heap, 0, 4096), Ok(()), "what only touches is another region");
        assert_eq!(add(&mut heap, 8192, 4096), Ok(()));
        assert_eq!(add(&mut heap, 8192, 4096), Err(RegionError::Overlaps));
        assert_eq!((heap.usage().free_blocks, heap.check()), (3, Ok(())), "regions never merge");
    }
}

#[test]
fn there_is_room_for_so_many_regions() {
    for kind in told(kinds()) {
        let mut shadow = Shadow::new(kind);
        for i in 0..kind.regions {
            shadow.add(i, 4000 + i).expect("room for it");
        }
        assert_eq!(shadow.add(0, 4096), Err(RegionError::TooMany));
        // All of them are used: blocks of more than half a region each.
        let blocks = (0..kind.regions).filter_map(|_| shadow.allocate(small(1600))).count();
        assert_eq!(blocks, kind.regions);
        shadow.drain();
    }
}

#[test]
fn regions_that_are_not_there_are_not_asked() {
    for kind in told(kinds()) {
        let mut shadow = Shadow::with(kind, 8 << 10);
        let block = shadow.allocate(small(1000)).expect("room");
        for align in [1, 64, 512, 4096] {
            let layout = Layout::from_size_align(7000, align).expect("small");
            assert_eq!(shadow.allocate(layout), None);
        }
        for bytes in [6000, 9000, 1 << 20] {
            shadow.reallocate(shadow.live(*shadow.blocks().last().expect("one")), bytes);
            shadow.judge();
        }
        assert!(shadow.blocks().len() == 1 && shadow.heap.contains(block));
        shadow.drain();
    }
}

#[test]
fn errors_say_what_to_do() {
    let said = |error: RegionError| error.to_string();
    assert!(said(RegionError::TooSmall).contains("too small"));
    assert!(said(RegionError::TooLarge { max: 4096 }).contains("at most 4096 bytes"));
    assert!(said(RegionError::Overlaps).contains("overlaps"));
    assert!(said(RegionError::TooMany).contains("REGIONS"));
}
