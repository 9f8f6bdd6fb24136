//! Where large blocks find room: one that moves goes where it can grow on, and a foreign mapping is passed. One test, in a process
//! of its own.
//!
//! This program uses the system's allocator, so that free slices lie where the test put them.
#![cfg(target_os = "linux")]

use std::ptr::without_provenance_mut;
use terrace_host::{api, check, class::SLICE};

/// Frees a block that the test allocated, once.
fn free(block: *mut u8) {
    // SAFETY: see above.
    unsafe { api::free(block) };
}

/// Resizes a block that the test allocated and did not free.
fn resize(block: *mut u8, bytes: usize) -> *mut u8 {
    // SAFETY: see above.
    unsafe { api::resize(block, bytes, 1) }
}

/// Where the mappings end that follow each other from that of a block on, as the system says.
fn mapped_end(block: *mut u8) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let number = |text: &str| usize::from_str_radix(text, 16).expect("an address");
    let ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    let ranges = ranges.map(|(start, end)| number(start)..number(end)).filter(|range| range.end > block.addr());
    ranges.fold(block.addr(), |end, range| if range.start <= end { range.end } else { end })
}

/// Moves a block past a hole in which it would fit exactly: it grows on where it went.
fn a_block_that_moves_has_half_as_much_behind_it() {
    const BYTES: usize = 64 * SLICE;
    let [hole, wall, block, end] = [BYTES, SLICE, BYTES / 2, SLICE].map(|bytes| api::allocate(bytes, 1));
    free(hole);
    let moved = resize(block, BYTES);
    assert!(moved != block && moved != hole && !moved.is_null(), "{moved:p}, not {block:p} nor {hole:p}");
    assert_eq!(resize(moved, BYTES + BYTES / 2), moved, "grown where it is");
    [wall, end, moved].into_iter().for_each(free);
}

/// Maps a page where the heap, of more than 256 MiB, would grow: it grows behind that.
fn a_foreign_mapping_is_passed() {
    let large = api::allocate(600 << 20, 1);
    let address = mapped_end(large);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, which replaces none.
    let page = unsafe { libc::mmap(without_provenance_mut(address), 4096, libc::PROT_NONE, flags, -1, 0) };
    assert_eq!(page.addr(), address);
    let next = api::allocate(600 << 20, 1);
    assert!(!next.is_null(), "there is room behind {address:#x}");
    [large, next].into_iter().for_each(free);
    // SAFETY: mapped above, and used by nothing.
    unsafe { libc::munmap(page, 4096) };
}

#[test]
fn large_blocks_find_room() {
    a_block_that_moves_has_half_as_much_behind_it();
    a_foreign_mapping_is_passed();
    check().expect("every structure agrees");
}
