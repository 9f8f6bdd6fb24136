//! The address range in which every block lies, and its tables, which have one entry for each slice of 64 KiB.
//!
//! Promises upward: the class of the block at any address, in a few instructions and without reading that address;
//! [`Tables`] for everything else about a slice. Tables are address space: an entry that is never used costs no memory.
//! Asks from below: [`os::map_at`]; or [`os::reserve`] and [`os::commit`].
//!
//! ```text
//! range    | slice 0 | slice 1 | slice 2 ........ | mapped | only addresses ...          |     8 times the machine's memory
//!          |  span   |  span   | large block      |        |                             |
//! classes      3         17        0      0    0      0       a byte a slice, 64 MiB before the range
//! spans     [used..]  [used..]  [block]                       size, used blocks, list links: 64 bytes a slice
//! bits      [bits..]  [bits..]                                which blocks are free: 512 bytes a slice, 8 to 512 used
//! dirty       ffff      001f     ffff                         which pages may hold something: 2 bytes a slice
//! ```
//!
//! These tables record which blocks are free, not the blocks themselves, so a page on which all blocks are free can be
//! purged.

use crate::class::{PAGE, SLICE};
use crate::os;
use crate::process::page_bytes;
mod layout;

use self::layout::{BEFORE, Reservation, TableLayout, choose_addresses, range_slices};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use terrace_core::{Block, Branch, Slot};

/// Number of words that a span's bits take: one bit for each block of 16 bytes in a slice.
pub const BIT_WORDS: usize = SLICE / 16 / 64;

/// The record of a slice, in use if a span or a large block starts there.
///
/// The lock of the size class guards the record of a span; the page heap's lock guards every other record.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Span {
    /// The page heap's block that starts here: address; bytes; slot and region; ticket. 0 bytes: no block starts here.
    block: [AtomicU64; 4],
    /// For a span, the next span in its list; for a large block, the number of pages requested.
    pub next: AtomicU32,
    /// For a span, the previous span in its list; for slices that hold the allocator's own data, the number of pages in
    /// use.
    pub prev: AtomicU32,
    /// The next entry in the list of all spans, or of all large blocks, of a first-class heap.
    pub after: AtomicU32,
    /// The previous entry in the list that `after` links.
    pub before: AtomicU32,
    /// Number of a span's blocks that the program or a cache holds; not used for a large block.
    pub used: AtomicU16,
    /// Index of the span's first word of bits that may have a bit set, that is, a free block.
    pub hint: AtomicU16,
    /// The number of the heap that owns the span or block; 0: the global heap.
    pub heap: AtomicU16,
    /// The class of the span's blocks, also for a first-class heap, whose spans have no class in `classes`. None: a
    /// large block.
    pub class: AtomicU8,
    /// Index, plus one, of the list of the span's class that links the span; 0: none, because all of its blocks are
    /// used.
    pub list: AtomicU8,
}

const _: () = assert!(size_of::<Span>() == 64, "a span's record is a cache line");

impl Span {
    /// The page heap's block that starts at this slice, if one does.
    pub fn block(&self) -> Option<Block> {
        let [address, bytes, slot, ticket] = [0, 1, 2, 3].map(|i| self.block[i].load(Relaxed));
        (bytes != 0).then_some(Block { address, bytes, slot: slot as u32, region: (slot >> 32) as u32, ticket })
    }

    /// Bytes that were requested for a large block, in whole pages.
    pub fn requested_bytes(&self) -> usize {
        self.next.load(Relaxed) as usize * PAGE
    }

    /// Records which of the page heap's blocks starts at this slice.
    pub fn set_block(&self, block: Option<Block>) {
        let words = block.map_or([0; 4], |block| {
            [block.address, block.bytes, u64::from(block.region) << 32 | u64::from(block.slot), block.ticket]
        });
        self.block.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }
}

/// The bits of one span, one for each block; a set bit means that the block is free.
#[derive(Debug)]
#[repr(transparent)]
pub struct BlockBits(UnsafeCell<[u64; BIT_WORDS]>);

// SAFETY: the bits are reached through `Tables::block_bits` only, whose caller holds the lock of the span's class.
unsafe impl Sync for BlockBits {}

/// The tables beside the address range.
#[derive(Debug)]
pub struct Tables {
    /// The range's first address. Pointers into the range take the provenance that each mapping exposed
    /// (`PageHeap::grow`).
    base: NonNull<u8>,
    /// First address of each table, and the number of bits that one slice takes in it.
    parts: [(NonNull<u8>, usize); 11],
    /// Number of slices whose table entries are mapped.
    committed: AtomicUsize,
    /// Whether the tables' addresses are reserved, so that memory is committed there; otherwise memory is mapped there.
    reserved: bool,
    /// The class of the blocks in each slice; none: the slice is no span of the global heap.
    pub classes: &'static [AtomicU8],
    /// The dirty pages of each slice, which may hold other bytes than zeros; the lowest bit is the first page.
    pub dirty: &'static [AtomicU16],
    /// One bit for each slice: the slice is free, and memory may lie under it.
    pub free_backed: &'static [AtomicU64],
    /// One bit for each slice: memory in it was freed since the last round of purging.
    pub young: &'static [AtomicU64],
    /// One bit for each slice that was young at the last round of purging.
    pub old: &'static [AtomicU64],
    /// One bit for each slice: `mremap` moved a block to this slice, which since begins a mapping of its own.
    pub remapped: &'static [AtomicU64],
    /// One bit for each slice that the current round must still purge: nothing was freed in it since it became old.
    pub due: &'static [AtomicU64],
    /// The record of each slice.
    pub spans: &'static [Span],
    block_bits: &'static [BlockBits],
}

// SAFETY: `base` is only used to compute addresses; all other fields are atomic or guarded by locks (see `BlockBits`).
unsafe impl Sync for Tables {}

/// The most slices of a range: 4 TiB, less one, so that the comparison is one instruction. A constant, so that a free
/// loads no variable for it.
const MOST: usize = (1 << 26) - 1;

/// The range's first address, which the fast paths read, as a pointer into the class table's allocation: the class of
/// slice `i` lies at this address - `BEFORE` + `i`. Before the start, an address near which no block lies.
static RANGE_BASE: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::without_provenance_mut(1 << (usize::BITS - 1)));
/// Distance in bytes from the start of the range to the end of the last mapping; it includes holes.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(core::ptr::null_mut());

/// The class of the block at an address, [`class::NONE`](crate::class::NONE) for a large block.
///
/// `None` outside the range and for null.
#[inline(always)]
pub fn class_at(block: *const u8) -> Option<usize> {
    let base = RANGE_BASE.load(Relaxed);
    let slice = block.addr().wrapping_sub(base.addr()) / SLICE;
    if slice >= MOST {
        return None;
    }
    let entry = base.cast::<u8>().wrapping_sub(BEFORE).wrapping_add(slice);
    // SAFETY: the table has an entry for each slice of the range. (Behind a range of less than 4 TiB nothing is mapped;
    // freeing an address there faults here.) Entries change only while no block of their slice is live, so no thread writes
    // the entry of a block that may be freed.
    Some(usize::from(unsafe { entry.read() }))
}

/// The tables; `None` before the allocator's start.
#[inline]
pub fn tables() -> Option<&'static Tables> {
    // SAFETY: set once, by `Tables::start`, to tables that live as long as the process.
    unsafe { TABLES.load(Acquire).as_ref() }
}

/// Distance in bytes from the start of the range to the end of the last mapping; it includes holes.
pub fn mapped() -> usize {
    MAPPED.load(Relaxed)
}

impl Tables {
    /// The record of a slice.
    #[inline]
    pub fn span(&self, slice: u32) -> &'static Span {
        // Callers pass slices of the range only; the remainder keeps the compiler from adding code that panics.
        &self.spans[slice as usize % self.spans.len()]
    }

    /// The entry of a slice in the class table.
    #[inline]
    pub fn class(&self, slice: u32) -> &'static AtomicU8 {
        &self.classes[slice as usize % self.classes.len()]
    }

    /// The bits of a slice's dirty pages.
    #[inline]
    pub fn pages(&self, slice: u32) -> &'static AtomicU16 {
        &self.dirty[slice as usize % self.dirty.len()]
    }

    /// The slice in which an address lies; `None` outside the mapped part of the range.
    #[inline]
    pub fn slice_of(&self, address: usize) -> Option<u32> {
        let offset = address.wrapping_sub(self.base.addr().get());
        (offset < MAPPED.load(Relaxed)).then_some((offset / SLICE) as u32)
    }

    /// The first address of a slice.
    #[inline]
    pub fn address(&self, slice: u32) -> NonNull<u8> {
        let address = self.base.addr().saturating_add(slice as usize * SLICE);
        NonNull::with_exposed_provenance(address)
    }

    /// The bits of a span's blocks; a set bit means that the block is free.
    ///
    /// # Safety
    /// The caller must hold the lock of the span's class, and have no other reference to these bits.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub unsafe fn block_bits(&self, slice: u32) -> &mut [u64; BIT_WORDS] {
        let cell = self.block_bits[slice as usize % self.block_bits.len()].0.get();
        // SAFETY: the caller's promise makes the reference exclusive; the tables live as long as the process.
        unsafe { &mut *cell }
    }

    /// Makes a pointer from an address in the range.
    pub fn block_at(&self, address: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(address)
    }

    /// The first address of the range.
    pub fn base(&self) -> usize {
        self.base.addr().get()
    }

    /// Bytes of the whole range, mapped or not.
    pub fn bytes(&self) -> usize {
        self.spans.len() * SLICE
    }

    /// Records that the first `bytes` bytes of the range are mapped, holes included.
    pub fn set_mapped(&self, bytes: usize) {
        MAPPED.store(bytes, Release);
    }

    /// Maps and makes the tables, and the slots of the page heap's range. Must be called once.
    pub fn start() -> Option<(&'static Self, &'static mut [Slot], &'static mut [Branch])> {
        let mut slices = range_slices();
        let reservation = loop {
            if let Some(reservation) = choose_addresses(slices) {
                break reservation;
            }
            // Address space is short: tries half as large a range.
            slices /= 2;
            if slices < 64 {
                return None;
            }
        };
        let Reservation { memory, classes, reserved } = reservation;
        let layout = TableLayout::of(slices);
        // SAFETY: nothing else uses these addresses, and there are as many as the layout says; each part lies at its
        // own offset, aligned to a page. `commit` maps zeros there, which are valid for every type. The references also
        // cover addresses that are not mapped yet, but no entry beyond the committed ones is read.
        let part = |offset: usize| unsafe { memory.add(offset) };
        let bits = |which: usize| zeroed(part(layout.bits[which]).cast(), slices.div_ceil(64));
        let tables = Self {
            base: classes.with_addr(classes.addr().saturating_add(BEFORE)),
            parts: [
                (classes, 8),
                (part(layout.dirty), 16),
                (part(layout.bits[0]), 1),
                (part(layout.bits[1]), 1),
                (part(layout.bits[2]), 1),
                (part(layout.bits[3]), 1),
                (part(layout.bits[4]), 1),
                (part(layout.spans), 8 * size_of::<Span>()),
                (part(layout.block_bits), 8 * size_of::<BlockBits>()),
                (part(layout.slots), 8 * size_of::<Slot>()),
                (part(layout.branches), 8 * size_of::<Branch>()),
            ],
            committed: AtomicUsize::new(0),
            reserved,
            classes: zeroed(classes.cast(), slices),
            dirty: zeroed(part(layout.dirty).cast(), slices),
            free_backed: bits(0),
            young: bits(1),
            old: bits(2),
            due: bits(3),
            remapped: bits(4),
            spans: zeroed(part(layout.spans).cast(), slices),
            block_bits: zeroed(part(layout.block_bits).cast(), slices),
        };
        if !tables.map_piece(memory, page_bytes()) || !tables.commit(1) {
            return None;
        }
        let own = memory.cast::<Self>();
        // SAFETY: `map_piece` mapped this page in front of all tables, and nothing else uses it.
        unsafe { own.write(tables) };
        // SAFETY: the tables were written above, and live as long as the process.
        let tables = unsafe { own.as_ref() };
        RANGE_BASE.store(tables.base.as_ptr().cast(), Relaxed);
        TABLES.store(own.as_ptr(), Release);
        let slots = zeroed_mut(part(layout.slots).cast(), slices);
        Some((tables, slots, zeroed_mut(part(layout.branches).cast(), slices)))
    }

    /// Backs the table entries of the first `slices` slices with memory. `false` without memory.
    ///
    /// The caller must hold the page heap's lock.
    pub fn commit(&self, slices: usize) -> bool {
        /// Number of slices by which the tables grow: 64 MiB of the range, 0.6 MiB of tables, of which only used
        /// entries are touched.
        const STEP: usize = 1024;
        let before = self.committed.load(Relaxed);
        if slices <= before {
            return true;
        }
        let after = slices.next_multiple_of(STEP);
        // The page heap's range needs a slot for each block and hole and for the region: a few more than there are
        // slices.
        let bytes = |slices: usize, bits: usize| {
            if slices == 0 { 0 } else { ((slices + 64) * bits / 8).next_multiple_of(page_bytes()) }
        };
        let piece = |&(start, bits): &(NonNull<u8>, usize)| {
            let from = bytes(before, bits);
            // SAFETY: `from` lies inside the table, which has room for 64 entries more than slices.
            (unsafe { start.add(from) }, bytes(after, bits) - from)
        };
        let mapped =
            self.parts.iter().map(piece).take_while(|&(at, bytes)| bytes == 0 || self.map_piece(at, bytes)).count();
        if mapped == self.parts.len() {
            self.committed.store(after, Relaxed);
            return true;
        }
        for (at, bytes) in self.parts.iter().map(piece).take(mapped).filter(|&(_, bytes)| bytes > 0 && !self.reserved) {
            // SAFETY: mapped above, used by nothing yet.
            unsafe { os::unmap(at, bytes) };
        }
        false
    }

    /// Backs a part of a table with zeros.
    fn map_piece(&self, at: NonNull<u8>, bytes: usize) -> bool {
        if self.reserved {
            // SAFETY: `choose_addresses` reserved these addresses.
            unsafe { os::commit(at, bytes) }
        } else {
            os::map_at(at.addr().get(), bytes).is_some()
        }
    }
}

/// A shared table over memory that `Tables::start` laid out and that holds zeros, which must be a valid `T`.
fn zeroed<T>(at: NonNull<T>, count: usize) -> &'static [T] {
    // SAFETY: see `Tables::start`, which alone calls this, once for each part.
    unsafe { NonNull::slice_from_raw_parts(at, count).as_ref() }
}

/// Like [`zeroed`], but a table that only one caller may use.
fn zeroed_mut<T>(at: NonNull<T>, count: usize) -> &'static mut [T] {
    // SAFETY: see `Tables::start`, which alone calls this, once for each part.
    unsafe { NonNull::slice_from_raw_parts(at, count).as_mut() }
}
