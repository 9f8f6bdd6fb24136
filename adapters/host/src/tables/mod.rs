//! The reserved address range that every block lies in, and the tables beside it, one entry for each slice of 64 KiB.
//!
//! Promises upward: the class of the block at any address, in a few instructions and without touching the memory there;
//! [`Tables`] for what else is known. Tables are address space: entries that are never used cost no memory.
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
//! The allocator writes nothing into free memory, so pages of a span whose blocks are all free can be purged.

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

/// Words of a span's bits: one bit for each block of 16 bytes in a slice.
pub const BIT_WORDS: usize = SLICE / 16 / 64;

/// The record of a slice at which a span or a large block starts.
///
/// The lock of its size class guards a span's; the page heap's lock guards every other.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Span {
    /// The block in the page heap's range: address and bytes; slot and region; ticket. 0 bytes: no block starts here.
    block: [AtomicU64; 4],
    /// The next span in its list; of a large block the pages that were requested.
    pub next: AtomicU32,
    /// The previous span in its list; of slices of the allocator's own the pages that count as used.
    pub prev: AtomicU32,
    /// The next span in the list of all spans of a heap.
    pub after: AtomicU32,
    /// The previous span in that list.
    pub before: AtomicU32,
    /// Blocks of a span that are allocated or cached; unused in a large block.
    pub used: AtomicU16,
    /// The first word of bits that may have a bit set.
    pub hint: AtomicU16,
    /// The number of its heap; 0: the global heap.
    pub heap: AtomicU16,
    /// The class of its blocks, also where `classes` says none because a heap owns it; none: a large block.
    pub class: AtomicU8,
    /// The list of its class it is linked in, plus one; 0: none, because no block of it is free.
    pub list: AtomicU8,
}

const _: () = assert!(size_of::<Span>() == 64, "a span's record is a cache line");

impl Span {
    /// The block that starts here, if one does.
    pub fn block(&self) -> Option<Block> {
        let [address, bytes, slot, ticket] = [0, 1, 2, 3].map(|i| self.block[i].load(Relaxed));
        (bytes != 0).then_some(Block { address, bytes, slot: slot as u32, region: (slot >> 32) as u32, ticket })
    }

    /// Bytes that were requested of a large block, in whole pages.
    pub fn requested_bytes(&self) -> usize {
        self.next.load(Relaxed) as usize * PAGE
    }

    /// Records which block starts here.
    pub fn set_block(&self, block: Option<Block>) {
        let words = block.map_or([0; 4], |block| {
            [block.address, block.bytes, u64::from(block.region) << 32 | u64::from(block.slot), block.ticket]
        });
        self.block.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }
}

/// The bits of one span: a set bit is a free block.
#[derive(Debug)]
#[repr(transparent)]
pub struct BlockBits(UnsafeCell<[u64; BIT_WORDS]>);

// SAFETY: the bits are reached through `Tables::block_bits` only, whose caller holds the lock of the span's class.
unsafe impl Sync for BlockBits {}

/// The tables beside the address range.
#[derive(Debug)]
pub struct Tables {
    /// The range's first address. Pointers into it take the provenance that each mapping exposed (`PageHeap::grow`).
    base: NonNull<u8>,
    /// Where each table begins, and its bits for one slice.
    parts: [(NonNull<u8>, usize); 11],
    /// Slices whose entries are backed by memory.
    committed: AtomicUsize,
    /// Whether the tables' addresses are reserved mappings; otherwise they lie where nothing else is mapped.
    reserved: bool,
    /// The class of the blocks in a slice; none: no span of the global heap.
    pub classes: &'static [AtomicU8],
    /// The pages of a slice that may hold something else than zeros, lowest bit first.
    pub dirty: &'static [AtomicU16],
    /// Slices that are free and may be backed by memory, a bit each.
    pub free_backed: &'static [AtomicU64],
    /// Slices in which blocks were freed since the last round of purging, a bit each.
    pub young: &'static [AtomicU64],
    /// Slices in which blocks were freed in the round before, a bit each.
    pub old: &'static [AtomicU64],
    /// Slices that memory was moved to by `mremap`, each a mapping of its own since, a bit each.
    pub remapped: &'static [AtomicU64],
    /// Slices that are due to be purged: those of `old` in which nothing was freed since.
    pub due: &'static [AtomicU64],
    /// The record of each slice.
    pub spans: &'static [Span],
    block_bits: &'static [BlockBits],
}

// SAFETY: the range's address is only computed with; all else is atomic or guarded (see `BlockBits`).
unsafe impl Sync for Tables {}

/// Slices that a range can have at most: 4 TiB, less one, which makes the comparison one instruction. A constant, so that a
/// free compares with no variable.
const MOST: usize = (1 << 26) - 1;

/// What the fast paths read: the range's first address, as a pointer into the class table, which begins 64 MiB earlier: the
/// class of slice `i` stands `BEFORE - i` bytes before it. Before the start an address that no block is near.
static RANGE_BASE: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::without_provenance_mut(1 << (usize::BITS - 1)));
/// Bytes from the start of the range to the end of the last mapping, holes included.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(core::ptr::null_mut());

/// The class of the block at an address; none for large blocks; `None` outside the range and for null.
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

/// The tables; `None` before the start.
#[inline]
pub fn tables() -> Option<&'static Tables> {
    // SAFETY: set once, by `Tables::start`, to tables that live as long as the process.
    unsafe { TABLES.load(Acquire).as_ref() }
}

/// Bytes from the start of the range to the end of the last mapping, holes included.
pub fn mapped() -> usize {
    MAPPED.load(Relaxed)
}

impl Tables {
    /// The record of a slice.
    #[inline]
    pub fn span(&self, slice: u32) -> &'static Span {
        // Slices are below the range's count by construction; the remainder keeps a panic out of the code.
        &self.spans[slice as usize % self.spans.len()]
    }

    /// The class entry of a slice.
    #[inline]
    pub fn class(&self, slice: u32) -> &'static AtomicU8 {
        &self.classes[slice as usize % self.classes.len()]
    }

    /// The dirty pages of a slice.
    #[inline]
    pub fn pages(&self, slice: u32) -> &'static AtomicU16 {
        &self.dirty[slice as usize % self.dirty.len()]
    }

    /// The slice of an address; `None` outside of what is mapped.
    #[inline]
    pub fn slice_of(&self, address: usize) -> Option<u32> {
        let offset = address.wrapping_sub(self.base.addr().get());
        (offset < MAPPED.load(Relaxed)).then_some((offset / SLICE) as u32)
    }

    /// The address of a slice.
    #[inline]
    pub fn address(&self, slice: u32) -> NonNull<u8> {
        let address = self.base.addr().saturating_add(slice as usize * SLICE);
        NonNull::with_exposed_provenance(address)
    }

    /// The bits of a span.
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

    /// The block at an address in the range.
    pub fn block_at(&self, address: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(address)
    }

    /// The first address of the range.
    pub fn base(&self) -> usize {
        self.base.addr().get()
    }

    /// Bytes of the whole range.
    pub fn bytes(&self) -> usize {
        self.spans.len() * SLICE
    }

    /// Records that the range is mapped up to `bytes` bytes (holes included).
    pub fn set_mapped(&self, bytes: usize) {
        MAPPED.store(bytes, Release);
    }

    /// Makes the tables, and the slots of the page heap's range. Must be called once.
    pub fn start() -> Option<(&'static Self, &'static mut [Slot], &'static mut [Branch])> {
        let mut slices = range_slices();
        let reservation = loop {
            if let Some(reservation) = choose_addresses(slices) {
                break reservation;
            }
            // Address space is short: a smaller range.
            slices /= 2;
            if slices < 64 {
                return None;
            }
        };
        let Reservation { memory, classes, reserved } = reservation;
        let layout = TableLayout::of(slices);
        // SAFETY: addresses that nothing else uses, as many as the layout says; each part lies at its own offset, aligned to a
        // page. Zeros, which `commit` maps there, are a value of every type. References reach over what has no memory yet, but
        // no entry beyond what is committed is read.
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
        // SAFETY: see above.
        unsafe { own.write(tables) };
        // SAFETY: written above; lives as long as the process.
        let tables = unsafe { own.as_ref() };
        RANGE_BASE.store(tables.base.as_ptr().cast(), Relaxed);
        TABLES.store(own.as_ptr(), Release);
        let slots = zeroed_mut(part(layout.slots).cast(), slices);
        Some((tables, slots, zeroed_mut(part(layout.branches).cast(), slices)))
    }

    /// Commits the entries of the first `slices` slices. `false` without memory.
    ///
    /// The caller must hold the page heap's lock.
    pub fn commit(&self, slices: usize) -> bool {
        /// Slices at a time: 64 MiB of the range, 0.6 MiB of tables, of which a program touches what it uses.
        const STEP: usize = 1024;
        let before = self.committed.load(Relaxed);
        if slices <= before {
            return true;
        }
        let after = slices.next_multiple_of(STEP);
        // Blocks, holes and the region have a slot each: a few more than there are slices.
        let bytes = |slices: usize, bits: usize| {
            if slices == 0 { 0 } else { ((slices + 64) * bits / 8).next_multiple_of(page_bytes()) }
        };
        let piece = |&(start, bits): &(NonNull<u8>, usize)| {
            let from = bytes(before, bits);
            // SAFETY: inside the part, which has room for 64 entries more.
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

    /// Maps zeros under a piece of a table.
    fn map_piece(&self, at: NonNull<u8>, bytes: usize) -> bool {
        if self.reserved {
            // SAFETY: reserved by `choose_addresses`.
            unsafe { os::commit(at, bytes) }
        } else {
            os::map_at(at.addr().get(), bytes).is_some()
        }
    }
}

/// A table of zeros. `T` must have zeros as a value, and the memory must be as `Tables::start` lays it out.
fn zeroed<T>(at: NonNull<T>, count: usize) -> &'static [T] {
    // SAFETY: see `Tables::start`, which alone calls this, once for each part.
    unsafe { NonNull::slice_from_raw_parts(at, count).as_ref() }
}

/// Like [`zeroed`], for an exclusive user.
fn zeroed_mut<T>(at: NonNull<T>, count: usize) -> &'static mut [T] {
    // SAFETY: see `Tables::start`, which alone calls this, once for each part.
    unsafe { NonNull::slice_from_raw_parts(at, count).as_mut() }
}
