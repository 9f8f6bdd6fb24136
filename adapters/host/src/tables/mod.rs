//! The window: one interval of addresses that every block lies in, and the tables beside it, one entry for each slice.
//!
//! Promises upward: from any address, in a few instructions and without touching the memory there, the class of the block;
//! [`Tables`] for what else is known. Tables are address space: what is never used costs no memory.
//! Asks from below: [`os::map_at`]; or [`os::reserve`] and [`os::commit`].
//!
//! ```text
//! window   | slice 0 | slice 1 | slice 2 ........ | mapped | only addresses ...          |     8 times the machine's memory
//!          |  span   |  span   | large block      |        |                             |
//! classes      3         17        0      0    0      0       a byte a slice, 64 MiB before the window
//! spans     [used..]  [used..]  [block]                       who it is, what is out, which list: 64 bytes a slice
//! words     [bits..]  [bits..]                                which blocks are free: 512 bytes a slice, 8 to 512 used
//! dirty       ffff      001f     ffff                         which pages may hold something: 2 bytes a slice
//! ```
//!
//! Nothing is written into free memory, so pages inside a span whose blocks are all free can go back to the system.

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

/// BlockBits of a span's bits: blocks of 16 bytes in a slice, a bit each.
pub const BIT_WORDS: usize = SLICE / 16 / 64;

/// What is known of a slice that a span or a large block starts at. Which lock guards it: that of the shelf its span belongs
/// to, or, while it belongs to no span, that of the ground.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Span {
    /// The name of its slices in the ground's range: address and bytes; slot and region; ticket. 0 bytes: nothing starts here.
    block: [AtomicU64; 4],
    /// Neighbours in the shelf's list of spans as full as this one; of a large block the pages asked for.
    pub next: AtomicU32,
    /// See `next`.
    pub prev: AtomicU32,
    /// Neighbours in the list of all spans of a heap.
    pub after: AtomicU32,
    /// See `after`.
    pub before: AtomicU32,
    /// Blocks that are out, in caches or in use; of a large block: unused.
    pub used: AtomicU16,
    /// The first word of bits that may have one set.
    pub hint: AtomicU16,
    /// Its heap: 0 is everybody's.
    pub heap: AtomicU16,
    /// The class of its blocks, also where `classes` says none because a heap owns it; none: a large block.
    pub class: AtomicU8,
    /// The list of its shelf it is in, plus one; 0: in none, because every block is out.
    pub list: AtomicU8,
}

const _: () = assert!(size_of::<Span>() == 64, "a span's record is a cache line");

impl Span {
    /// The block that starts here.
    pub fn block(&self) -> Option<Block> {
        let [address, bytes, place, ticket] = [0, 1, 2, 3].map(|i| self.block[i].load(Relaxed));
        (bytes != 0).then_some(Block { address, bytes, slot: place as u32, region: (place >> 32) as u32, ticket })
    }

    /// Bytes that were requested of a large block, in whole pages.
    pub fn requested_bytes(&self) -> usize {
        self.next.load(Relaxed) as usize * PAGE
    }

    /// Says which block starts here.
    pub fn set_block(&self, block: Option<Block>) {
        let words = block.map_or([0; 4], |block| {
            [block.address, block.bytes, u64::from(block.region) << 32 | u64::from(block.slot), block.ticket]
        });
        self.block.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }
}

/// The bits of one span.
#[derive(Debug)]
#[repr(transparent)]
pub struct BlockBits(UnsafeCell<[u64; BIT_WORDS]>);

// SAFETY: the bits are reached through `Tables::block_bits` only, whose caller holds the lock of the span's shelf.
unsafe impl Sync for BlockBits {}

/// Everything beside the window.
#[derive(Debug)]
pub struct Tables {
    /// The window's first address. Pointers into it take the provenance that each of its mappings exposed (`PageHeap::grow`).
    base: NonNull<u8>,
    /// Where each table begins, and the bits it has for a slice.
    parts: [(NonNull<u8>, usize); 11],
    /// Slices whose entries have memory.
    committed: AtomicUsize,
    /// Whether the tables' addresses are reserved; otherwise they lie where nobody else maps anything.
    reserved: bool,
    /// The class of the blocks in a slice; none: no span of everybody's heap.
    pub classes: &'static [AtomicU8],
    /// The pages of a slice that may hold something else than zeros, the lowest first.
    pub dirty: &'static [AtomicU16],
    /// Slices that are free and may have memory under them, a bit each.
    pub free_backed: &'static [AtomicU64],
    /// Slices that lost blocks since the last tick of the purge clock, a bit each.
    pub young: &'static [AtomicU64],
    /// Slices that lost blocks in the period before.
    pub old: &'static [AtomicU64],
    /// Slices at which memory was moved to by its page tables and whose mapping stands alone since, a bit each.
    pub remapped: &'static [AtomicU64],
    /// What a tick works on: those of `old` that lost nothing since.
    pub due: &'static [AtomicU64],
    /// A record for each slice.
    pub spans: &'static [Span],
    block_bits: &'static [BlockBits],
}

// SAFETY: the window's address is only computed with; all else is atomic or guarded (see `BlockBits`).
unsafe impl Sync for Tables {}

/// Slices that a window can have at most: 4 TiB, less one, which makes the comparison one instruction. A constant, so that a
/// free compares with no variable.
const MOST: usize = (1 << 26) - 1;

/// What the fast paths read: the window's first address, as a pointer into the table of classes, which begins 64 MiB
/// earlier: the class of slice `i` stands `BEFORE - i` bytes before it. Before the start an address that no block is near.
static WINDOW: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::without_provenance_mut(1 << (usize::BITS - 1)));
/// How many bytes of the window are mapped, holes included.
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(core::ptr::null_mut());

/// The class of the block at an address; none for large blocks; `None` outside the window and for null.
#[inline(always)]
pub fn class_at(block: *const u8) -> Option<usize> {
    let window = WINDOW.load(Relaxed);
    let slice = block.addr().wrapping_sub(window.addr()) / SLICE;
    if slice >= MOST {
        return None;
    }
    let entry = window.cast::<u8>().wrapping_sub(BEFORE).wrapping_add(slice);
    // SAFETY: the table has an entry for each slice of the window. (Behind a window of less than 4 TiB nobody maps
    // anything; freeing an address there faults here.) Entries change only while no block of their slice is live, so a block
    // that may be freed is in a slice whose entry nobody writes.
    Some(usize::from(unsafe { entry.read() }))
}

/// The tables, once there are any.
#[inline]
pub fn tables() -> Option<&'static Tables> {
    // SAFETY: set once, by `Tables::start`, to a table that lives as long as the process.
    unsafe { TABLES.load(Acquire).as_ref() }
}

/// How many bytes of the window are mapped, holes included.
pub fn mapped() -> usize {
    MAPPED.load(Relaxed)
}

impl Tables {
    /// The record of a slice.
    #[inline]
    pub fn span(&self, slice: u32) -> &'static Span {
        // Slices are below the window's count by construction; the remainder keeps the compiler from a panic.
        &self.spans[slice as usize % self.spans.len()]
    }

    /// The class entry of a slice.
    #[inline]
    pub fn class(&self, slice: u32) -> &'static AtomicU8 {
        &self.classes[slice as usize % self.classes.len()]
    }

    /// The page bits of a slice.
    #[inline]
    pub fn pages(&self, slice: u32) -> &'static AtomicU16 {
        &self.dirty[slice as usize % self.dirty.len()]
    }

    /// The slice of an address, if it lies in the mapped window.
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
    /// The caller holds the lock of the span's shelf, and has no other reference to these bits.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub unsafe fn block_bits(&self, slice: u32) -> &mut [u64; BIT_WORDS] {
        let cell = self.block_bits[slice as usize % self.block_bits.len()].0.get();
        // SAFETY: the caller's promise makes the reference exclusive; the table lives as long as the process.
        unsafe { &mut *cell }
    }

    /// The block at an address in the window.
    pub fn block_at(&self, address: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(address)
    }

    /// The first address of the window.
    pub fn base(&self) -> usize {
        self.base.addr().get()
    }

    /// Bytes of all the window.
    pub fn bytes(&self) -> usize {
        self.spans.len() * SLICE
    }

    /// Says that the window is mapped up to `bytes` bytes (holes included).
    pub fn set_mapped(&self, bytes: usize) {
        MAPPED.store(bytes, Release);
    }

    /// Makes the tables, and the slots of the ground's range. Called once.
    pub fn start() -> Option<(&'static Self, &'static mut [Slot], &'static mut [Branch])> {
        let mut slices = range_slices();
        let place = loop {
            if let Some(place) = choose_addresses(slices) {
                break place;
            }
            // Address space is short: a smaller window.
            slices /= 2;
            if slices < 64 {
                return None;
            }
        };
        let Reservation { memory, classes, reserved } = place;
        let layout = TableLayout::of(slices);
        // SAFETY: addresses that nobody else uses, as many as the layout says; each part lies at its own offset, aligned to
        // a page. Zeros, which `commit` lays there, are a value of every type. References reach over what has no memory
        // yet, but nothing looks past what is committed.
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
        if !tables.lay(memory, page_bytes()) || !tables.commit(1) {
            return None;
        }
        let own = memory.cast::<Self>();
        // SAFETY: see above.
        unsafe { own.write(tables) };
        // SAFETY: just written; lives as long as the process.
        let tables = unsafe { own.as_ref() };
        WINDOW.store(tables.base.as_ptr().cast(), Relaxed);
        TABLES.store(own.as_ptr(), Release);
        let slots = zeroed_mut(part(layout.slots).cast(), slices);
        Some((tables, slots, zeroed_mut(part(layout.branches).cast(), slices)))
    }

    /// Lays memory under the entries of the first `slices` slices. `false` when there is none. Under the ground's lock.
    pub fn commit(&self, slices: usize) -> bool {
        /// Slices at a time: 64 MiB of the window, 0.6 MiB of tables, of which a program touches what it uses.
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
        let laid = self.parts.iter().map(piece).take_while(|&(at, bytes)| bytes == 0 || self.lay(at, bytes)).count();
        if laid == self.parts.len() {
            self.committed.store(after, Relaxed);
            return true;
        }
        for (at, bytes) in self.parts.iter().map(piece).take(laid).filter(|&(_, bytes)| bytes > 0 && !self.reserved) {
            // SAFETY: laid a moment ago, used by nobody.
            unsafe { os::unmap(at, bytes) };
        }
        false
    }

    /// Lays zeros under a piece of a table.
    fn lay(&self, at: NonNull<u8>, bytes: usize) -> bool {
        if self.reserved {
            // SAFETY: reserved by `choose_addresses`.
            unsafe { os::commit(at, bytes) }
        } else {
            os::map_at(at.addr().get(), bytes).is_some()
        }
    }
}

/// A table of zeros. For types for which zeros are a value, and memory as `Tables::start` has it.
fn zeroed<T>(at: NonNull<T>, count: usize) -> &'static [T] {
    // SAFETY: see `Tables::start`, which alone calls this, once for each part.
    unsafe { NonNull::slice_from_raw_parts(at, count).as_ref() }
}

/// The same, for one user.
fn zeroed_mut<T>(at: NonNull<T>, count: usize) -> &'static mut [T] {
    // SAFETY: see `Tables::start`, which alone calls this, once for each part.
    unsafe { NonNull::slice_from_raw_parts(at, count).as_mut() }
}
