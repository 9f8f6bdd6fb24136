//! The in-band heap in every configuration, beside a shadow that knows every block and writes all over it.
//!
//! Run: `cargo +nightly fuzz run heap` in this folder's parent; longer: `-- -max_total_time=600`. With AddressSanitizer:
//! regions end where their memory ends, so that a record written behind them is seen at once.
// seeded-env: heap_frees_too_much
// seeded-env: heap_resizes_from_less
// seeded-env: heap_writes_behind_block
// seeded-env: heap_refuses_what_fits
#![no_main]

#[path = "../../core/tests/heap/world/mod.rs"]
mod world;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::heap::{HeapUsage, RegionError};
use terrace_core::{FreeError, Violation};
use terrace_fuzz_core::bug;
use world::act::{Act, play};
use world::kinds;
use world::shadow::Shadow;
use world::target::Target;

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    /// The first region: bytes off an aligned start, and bytes.
    front: u8,
    bytes: u16,
    acts: Vec<Act>,
}

/// A heap between which and its user something goes wrong, when a bug is on.
///
/// - `heap_frees_too_much`: every 2nd free names a granule of bytes more than the block has.
/// - `heap_resizes_from_less`: every 2nd resize of more than 32 bytes says that the block had 32 fewer.
/// - `heap_writes_behind_block`: every 2nd block's user writes a byte behind its last granule.
/// - `heap_refuses_what_fits`: requests ask for a third more than they need, and fail where they should not.
struct Faulty {
    inner: Box<dyn Target>,
    granule: usize,
    calls: u32,
}

impl Faulty {
    /// Whether this call goes wrong: one in two.
    fn now(&mut self, name: &str) -> bool {
        self.calls += u32::from(bug(name));
        bug(name) && self.calls.is_multiple_of(2)
    }
}

fn with_size(layout: Layout, bytes: usize) -> Layout {
    Layout::from_size_align(bytes, layout.align()).unwrap_or(layout)
}

impl Target for Faulty {
    unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.add_region(start, bytes) }
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let asked = if bug("heap_refuses_what_fits") { layout.size() / 3 } else { 0 };
        let block = self.inner.allocate(with_size(layout, layout.size().saturating_add(asked)))?;
        let behind = block.as_ptr().wrapping_add(layout.size().next_multiple_of(self.granule));
        let inside = NonNull::new(behind).is_some_and(|behind| self.inner.contains(behind));
        if inside && self.now("heap_writes_behind_block") {
            // SAFETY: inside a region; that it is not the block's is the bug.
            unsafe { behind.write(0xff) };
        }
        Some(block)
    }

    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        let more = if self.now("heap_frees_too_much") { self.granule } else { 0 };
        // SAFETY: the caller's promise, but for the bug.
        unsafe { self.inner.free(block, with_size(layout, layout.size() + more)) }
    }

    unsafe fn resize(&mut self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<Result<bool, FreeError>> {
        let less = if layout.size() > 32 && self.now("heap_resizes_from_less") { 32 } else { 0 };
        // SAFETY: the caller's promise, but for the bug.
        unsafe { self.inner.resize(block, with_size(layout, layout.size() - less), bytes) }
    }

    unsafe fn reallocate(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.reallocate(block, layout, bytes) }
    }

    unsafe fn bytes_of(&self, block: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.bytes_of(block) }
    }

    fn merge(&mut self) {
        self.inner.merge();
    }

    fn usage(&self) -> HeapUsage {
        self.inner.usage()
    }

    fn check(&self) -> Result<(), Violation> {
        self.inner.check()
    }

    fn contains(&self, address: NonNull<u8>) -> bool {
        self.inner.contains(address)
    }
}

fuzz_target!(|input: Input| {
    let kinds = kinds();
    let kind = kinds[usize::from(input.kind) % kinds.len()];
    let heap = Faulty { inner: (kind.make)(), granule: kind.granule, calls: 0 };
    let mut shadow = Shadow::around(kind, Box::new(heap));
    // Enough for sizes with lists of their own and beyond; small enough to be full soon.
    let _ = shadow.add(usize::from(input.front) % 48, usize::from(input.bytes) % (24 << 10));
    // Longer programs say nothing new and slow the search down.
    play(&mut shadow, &input.acts[..input.acts.len().min(200)]);
});
