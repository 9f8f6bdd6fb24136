//! Addresses and physical memory: each rule, from both sides.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{c_int, c_ulonglong};

/// The least size of physical memory.
pub const PAGE: usize = 2 << 20;

/// `CUmemAllocationProp`, for memory of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: c_int,
    pub handle_types: c_int,
    location: c_int,
    device: c_int,
    security: usize,
    rest: u64,
}

pub fn properties(device: c_int) -> Properties {
    Properties { kind: 1, handle_types: 0, location: 1, device, security: 0, rest: 0 }
}

pub fn reserve(bytes: usize) -> Done<u64> {
    make!(cuMemAddressReserve -> u64; bytes => usize, 0 => usize, 0 => u64, 0 => c_ulonglong)
}

pub fn unreserve(start: u64, bytes: usize) -> Done {
    call!(cuMemAddressFree(start => u64, bytes => usize))
}

pub fn create(device: c_int, bytes: usize) -> Done<u64> {
    let properties = properties(device);
    make!(cuMemCreate -> u64; bytes => usize, &properties => *const Properties, 0 => c_ulonglong)
}

pub fn release(handle: u64) -> Done {
    call!(cuMemRelease(handle => u64))
}

pub fn map(start: u64, bytes: usize, handle: u64) -> Done {
    call!(cuMemMap(start => u64, bytes => usize, 0 => usize, handle => u64, 0 => c_ulonglong))
}

pub fn unmap(start: u64, bytes: usize) -> Done {
    call!(cuMemUnmap(start => u64, bytes => usize))
}

pub fn access(start: u64, bytes: usize, device: c_int, flags: c_int) -> Done {
    let wanted = [1, device, flags];
    call!(cuMemSetAccess(start => u64, bytes => usize, &wanted => *const [c_int; 3], 1 => usize))
}

/// Pages that are mapped and usable.
pub struct Pages {
    pub start: u64,
    pub bytes: usize,
    pub handles: Vec<u64>,
}

impl Pages {
    pub fn new(count: usize) -> Pages {
        let bytes = count * PAGE;
        let start = reserve(bytes).expect("addresses");
        let handles: Vec<u64> = (0..count).map(|_| create(0, PAGE).expect("memory")).collect();
        for (at, handle) in handles.iter().enumerate() {
            map(start + (at * PAGE) as u64, PAGE, *handle).expect("a free place");
        }
        access(start, bytes, 0, 3).expect("mappings");
        Pages { start, bytes, handles }
    }

    /// Gives everything back.
    pub fn end(self) {
        unmap(self.start, self.bytes).expect("mappings");
        self.end_unmapped();
    }

    /// Gives back what is left without mappings.
    pub fn end_unmapped(self) {
        self.handles.iter().for_each(|handle| release(*handle).expect("a handle"));
        unreserve(self.start, self.bytes).expect("addresses");
    }
}

#[test]
fn bytes_move_with_their_memory() {
    let _machine = Machine::discrete();
    let pages = Pages::new(2);
    upload(pages.start, &[1; 100]).and(upload(pages.start + PAGE as u64, &[2; 100])).expect("mappings");
    // Across the border of two mappings.
    let border = pages.start + PAGE as u64 - 4;
    upload(border, &[3; 8]).expect("neighbours");
    assert_eq!(download(border, 8), Ok(vec![3; 8]));
    let elsewhere = reserve(PAGE).expect("addresses");
    unmap(pages.start, pages.bytes).expect("two whole mappings");
    map(elsewhere, PAGE, pages.handles[0]).and(access(elsewhere, PAGE, 0, 3)).expect("a free place");
    assert_eq!(download(elsewhere, 100), Ok(vec![1; 100]));
    unmap(elsewhere, PAGE).and(unreserve(elsewhere, PAGE)).expect("all there");
    pages.end_unmapped();
}

#[test]
fn memory_counts_until_it_is_released_and_unmapped() {
    let _machine = Machine::discrete();
    let (before, _) = info().expect("a context");
    let pages = Pages::new(1);
    assert_eq!(info().expect("a context").0, before - PAGE);
    release(pages.handles[0]).expect("a handle");
    assert_eq!(info().expect("a context").0, before - PAGE, "still mapped");
    set(pages.start, 9, PAGE, 0).and(sync()).expect("still usable");
    unmap(pages.start, PAGE).expect("a mapping");
    assert_eq!(info().expect("a context").0, before);
    unreserve(pages.start, PAGE).expect("addresses");
}

#[test]
fn sizes_and_places_follow_the_rules() {
    let _machine = Machine::discrete();
    assert_eq!(reserve(PAGE + 4096), Err(INVALID_VALUE));
    assert_eq!(reserve(0), Err(INVALID_VALUE));
    assert_eq!(create(0, PAGE / 2), Err(INVALID_VALUE));
    assert_eq!(create(1, PAGE), Err(INVALID_DEVICE));
    assert_eq!(create(0, 1 << 40), Err(OUT_OF_MEMORY));
    let start = reserve(4 * PAGE).expect("addresses");
    let (one, two) = (create(0, PAGE).expect("memory"), create(0, 2 * PAGE).expect("memory"));
    assert_eq!(map(start, PAGE, two), Err(INVALID_VALUE), "part of a handle");
    assert_eq!(map(start + 4096, PAGE, one), Err(INVALID_VALUE), "not at a multiple");
    assert_eq!(map(start + 3 * PAGE as u64, 2 * PAGE, two), Err(INVALID_VALUE), "past the reservation");
    map(start + PAGE as u64, 2 * PAGE, two).expect("a free place");
    assert_eq!(map(start + 2 * PAGE as u64, PAGE, one), Err(INVALID_VALUE), "on another mapping");
    assert_eq!(map(start, 2 * PAGE, two), Err(INVALID_VALUE), "into another mapping");
    map(start, PAGE, one).expect("beside it");
    assert_eq!(unmap(start, 2 * PAGE), Err(INVALID_VALUE), "half a mapping");
    assert_eq!(unmap(start, 4 * PAGE), Err(INVALID_VALUE), "a gap");
    assert_eq!(access(start, 2 * PAGE, 0, 3), Err(INVALID_VALUE), "half a mapping");
    assert_eq!(access(start, 3 * PAGE, 1, 3), Err(INVALID_DEVICE));
    unmap(start, 3 * PAGE).expect("two whole mappings");
    release(one).and(release(two)).and(unreserve(start, 4 * PAGE)).expect("all there");
}

#[test]
fn addresses_are_freed_whole_and_empty() {
    let machine = Machine::discrete();
    let pages = Pages::new(2);
    assert_eq!(unreserve(pages.start, pages.bytes), Err(INVALID_VALUE));
    machine.caught("free-while-pending");
    assert_eq!(unreserve(pages.start, PAGE), Err(INVALID_VALUE));
    machine.caught("bad-handle");
    let (start, bytes) = (pages.start, pages.bytes);
    pages.end();
    assert_eq!(unreserve(start, bytes), Err(INVALID_VALUE));
    machine.caught("double-free");
}

#[test]
fn nothing_touches_a_mapping_before_its_access_is_set() {
    let machine = Machine::discrete();
    let (start, handle) = (reserve(PAGE).expect("addresses"), create(0, PAGE).expect("memory"));
    map(start, PAGE, handle).and(access(start, PAGE, 0, 1)).expect("a mapping");
    download(start, 4).expect("reads are allowed");
    assert_eq!(set(start, 0, 4, 0), Err(ILLEGAL_ADDRESS));
    machine.caught("no-access");
    assert_eq!(sync(), Err(ILLEGAL_ADDRESS), "the context is lost");
}

#[test]
fn an_unmapped_range_is_unmapped_once() {
    let machine = Machine::discrete();
    let pages = Pages::new(1);
    unmap(pages.start, PAGE).expect("a mapping");
    assert_eq!(unmap(pages.start, PAGE), Err(INVALID_VALUE));
    machine.caught("double-free");
    assert_eq!(set(pages.start, 0, 1, 0), Err(INVALID_VALUE));
    machine.caught("use-after-free");
    pages.end_unmapped();
}

#[test]
fn unmapping_waits_for_nobody() {
    let machine = Machine::discrete();
    let pages = Pages::new(1);
    let stream = stream(1).expect("a stream");
    set(pages.start, 1, PAGE, stream).expect("a mapping");
    let done = event().expect("an event");
    record(done, stream).and(event_sync(done)).expect("a stream");
    // The host knows: no finding.
    unmap(pages.start, PAGE).expect("a mapping");
    map(pages.start, PAGE, pages.handles[0]).and(access(pages.start, PAGE, 0, 3)).expect("a free place");
    set(pages.start, 1, PAGE, stream).expect("a mapping");
    while stream_query(stream) == Err(NOT_READY) {}
    unmap(pages.start, PAGE).expect("a mapping, and the query told the host");
    map(pages.start, PAGE, pages.handles[0]).and(access(pages.start, PAGE, 0, 3)).expect("a free place");
    set(pages.start, 1, PAGE, stream).expect("a mapping");
    unmap(pages.start, PAGE).expect("a mapping");
    machine.caught("free-while-pending");
    // The operation ran before its memory went, or was found to have none: both may be.
    let late = sync();
    assert!(matches!(late, Ok(()) | Err(ILLEGAL_ADDRESS)), "{late:?}");
    if late.is_err() {
        machine.caught("use-after-free");
    } else {
        stream_destroy(stream).and(event_destroy(done)).expect("all live");
        pages.end_unmapped();
    }
}

#[test]
fn races_are_seen_through_other_mappings_of_the_same_memory() {
    let machine = Machine::discrete();
    let pages = Pages::new(1);
    let again = reserve(PAGE).expect("addresses");
    map(again, PAGE, pages.handles[0]).and(access(again, PAGE, 0, 3)).expect("shown twice");
    let (a, b) = (stream(1).expect("stream"), stream(1).expect("stream"));
    set(pages.start, 1, 64, a).and(set(again + 63, 2, 1, b)).expect("mappings");
    machine.caught("race");
    sync().and(unmap(again, PAGE)).and(unreserve(again, PAGE)).expect("all there");
    stream_destroy(a).and(stream_destroy(b)).expect("streams");
    pages.end();
}

#[test]
fn a_machine_may_have_other_sizes_and_limits() {
    let json = r#"{"profile": "orin", "granularity": 65536, "recommended_granularity": 4194304}"#;
    let _machine = Machine::new(json);
    let wanted = properties(0);
    let size =
        |option: c_int| make!(cuMemGetAllocationGranularity -> usize; &wanted => *const Properties, option => c_int);
    assert_eq!((size(0), size(1)), (Ok(65536), Ok(4 << 20)));
    assert_eq!(size(2), Err(INVALID_VALUE));
    assert_eq!(reserve((128 << 30) + 65536), Err(OUT_OF_MEMORY));
    let half = reserve(64 << 30).expect("within the limit");
    assert_eq!(reserve((64 << 30) + 65536), Err(OUT_OF_MEMORY), "the limit is on all together");
    unreserve(half, 64 << 30).expect("addresses");
}

#[test]
fn a_machine_may_have_none_of_this() {
    let _machine = Machine::new(r#"{"profile": "vgpu"}"#);
    assert_eq!(reserve(PAGE), Err(NOT_SUPPORTED));
    assert_eq!(create(0, PAGE), Err(NOT_SUPPORTED));
    assert_eq!(make!(cuMemAllocAsync -> u64; 8 => usize, 0 => u64), Err(NOT_SUPPORTED));
    assert_eq!(make!(cuMemAllocManaged -> u64; 8 => usize, 1 => u32), Err(NOT_SUPPORTED));
}
