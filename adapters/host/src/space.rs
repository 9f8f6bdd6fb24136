//! The window: one interval of addresses that every block lies in, and the tables beside it, one entry for each slice.
//!
//! Promises upward: from any address, in a few instructions and without touching the memory there, the class of the block;
//! [`Tables`] for what else is known. Tables are address space: what is never used costs no memory.
//! Asks from below: [`os::map`].
//!
//! ```text
//! window   | slice 0 | slice 1 | slice 2 ........ | mapped | only addresses ...          |     8 times the machine's memory
//!          |  span   |  span   | large block      |        |                             |
//! classes      3         17        0      0    0      0       a byte a slice: free(p) reads classes[(p - base) >> 16]
//! spans     [used..]  [used..]  [block]                       who it is, what is out, which list: 64 bytes a slice
//! words     [bits..]  [bits..]                                which blocks are free: 512 bytes a slice, 8 to 512 used
//! dirty       ffff      001f     ffff                         which pages may hold something: 2 bytes a slice
//! ```
//!
//! Nothing is written into free memory, so pages inside a span whose blocks are all free can go back to the system.

use crate::class::{self, SLICE};
use crate::os;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
use terrace_core::{Block, Branch, Slot};

/// Words of a span's bits: blocks of 16 bytes in a slice, a bit each.
const WORDS: usize = SLICE / 16 / 64;

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
pub struct Words(UnsafeCell<[u64; WORDS]>);

// SAFETY: the bits are reached through `Tables::words` only, whose caller holds the lock of the span's shelf.
unsafe impl Sync for Words {}

/// Everything beside the window.
#[derive(Debug)]
pub struct Tables {
    /// The window's first address; its provenance covers what is mapped there.
    base: NonNull<u8>,
    /// The class of the blocks in a slice; none: no span of everybody's heap.
    pub classes: &'static [AtomicU8],
    /// The pages of a slice that may hold something else than zeros, the lowest first.
    pub dirty: &'static [AtomicU16],
    /// Slices that are free and may have memory under them, a bit each.
    pub idle: &'static [AtomicU64],
    /// Slices that lost blocks since the last tick of the purge clock, a bit each.
    pub young: &'static [AtomicU64],
    /// Slices that lost blocks in the period before.
    pub old: &'static [AtomicU64],
    /// What a tick works on: those of `old` that lost nothing since.
    pub ripe: &'static [AtomicU64],
    /// A record for each slice.
    pub spans: &'static [Span],
    words: &'static [Words],
}

// SAFETY: the window's address is only computed with; all else is atomic or guarded (see `Words`).
unsafe impl Sync for Tables {}

/// What the fast paths read: the window's first address, how many bytes of it are mapped, the classes. All 0 before the start.
static BASE: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static CLASSES: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(core::ptr::null_mut());

/// The class of the block at an address; none for large blocks, for foreign addresses and null.
#[inline(always)]
pub fn class_at(block: *const u8) -> usize {
    let offset = block.addr().wrapping_sub(BASE.load(Relaxed));
    if offset >= MAPPED.load(Relaxed) {
        return class::NONE;
    }
    // SAFETY: the table has an entry for each slice of the window, and slices below MAPPED are in the window; MAPPED is
    // raised from 0 only after the table was set.
    let entry = unsafe { CLASSES.load(Relaxed).add(offset / SLICE) };
    // SAFETY: entries live as long as the process.
    let entry = unsafe { &*entry };
    usize::from(entry.load(Relaxed))
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
        // SAFETY: slices are below the window's count, and the window does not wrap around.
        unsafe { self.base.add(slice as usize * SLICE) }
    }

    /// The bits of a span.
    ///
    /// # Safety
    /// The caller holds the lock of the span's shelf, and has no other reference to these bits.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the lock makes it exclusive")]
    pub unsafe fn words(&self, slice: u32) -> &mut [u64; WORDS] {
        let cell = self.words[slice as usize % self.words.len()].0.get();
        // SAFETY: the caller's promise makes the reference exclusive; the table lives as long as the process.
        unsafe { &mut *cell }
    }

    /// The block at an address in the window.
    pub fn block_at(&self, address: usize) -> *mut u8 {
        self.base.as_ptr().with_addr(address)
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
        let mut slices = window_slices();
        let (layout, memory) = loop {
            let layout = Layout::of(slices);
            if let Some(memory) = os::map(layout.bytes, true) {
                break (layout, memory);
            }
            // Address space is short, or must be accounted for: a smaller window.
            slices /= 2;
            if slices < 64 {
                return None;
            }
        };
        let base = choose_base(slices * SLICE);
        // SAFETY: the mapping is new, zeroed, as long as the layout says, and never given back; each part lies at its
        // own offset, aligned to 64 bytes, and zeros are a value of every type.
        let part = |offset: usize| unsafe { memory.add(offset) };
        let bit_words = slices.div_ceil(64);
        let tables = Self {
            base,
            classes: zeroed(part(layout.classes).cast(), slices),
            dirty: zeroed(part(layout.dirty).cast(), slices),
            idle: zeroed(part(layout.bits).cast(), bit_words),
            young: zeroed(part(layout.bits + bit_words * 8).cast(), bit_words),
            old: zeroed(part(layout.bits + bit_words * 16).cast(), bit_words),
            ripe: zeroed(part(layout.bits + bit_words * 24).cast(), bit_words),
            spans: zeroed(part(layout.spans).cast(), slices),
            words: zeroed(part(layout.words).cast(), slices),
        };
        let own = memory.cast::<Self>();
        // SAFETY: the first bytes of the mapping are the tables' own.
        unsafe { own.write(tables) };
        // SAFETY: just written; lives as long as the process.
        let tables = unsafe { own.as_ref() };
        BASE.store(tables.base(), Relaxed);
        CLASSES.store(tables.classes.as_ptr().cast_mut(), Relaxed);
        TABLES.store(own.as_ptr(), Release);
        let slots = zeroed_mut(part(layout.slots).cast(), slices);
        Some((tables, slots, zeroed_mut(part(layout.branches).cast(), slices)))
    }
}

/// Where the parts of the tables lie. 620 bytes for a slice of 65536: 1 %, of which a program touches what it uses.
struct Layout {
    classes: usize,
    dirty: usize,
    bits: usize,
    spans: usize,
    words: usize,
    slots: usize,
    branches: usize,
    bytes: usize,
}

impl Layout {
    fn of(slices: usize) -> Self {
        // The tables' own record stands in front.
        let mut end = 4096;
        let mut take = |bytes: usize| {
            let at = end;
            end += bytes.next_multiple_of(4096);
            at
        };
        let classes = take(slices);
        let dirty = take(slices * size_of::<AtomicU16>());
        let bits = take(slices.div_ceil(64) * 4 * size_of::<AtomicU64>());
        let spans = take(slices * size_of::<Span>());
        let words = take(slices * size_of::<Words>());
        let slots = take(slices * size_of::<Slot>());
        let branches = take(slices * size_of::<Branch>());
        Self { classes, dirty, bits, spans, words, slots, branches, bytes: end }
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

/// Slices of the window: 8 times the memory of the machine, at least 64 GiB (programs map more than there is), but no more
/// than the process may map at all: the tables are 1 % of it.
fn window_slices() -> usize {
    const LEAST: usize = 64 << 30;
    let wanted = os::physical_bytes().saturating_mul(8).max(LEAST).min(os::address_limit().max(64 << 20));
    // Slots and branches count with 31 bits.
    (wanted / SLICE).next_power_of_two().min(1 << 30)
}

/// A place for the window where nothing else is put: between the program (which starts low or at 0x55...) and the
/// libraries (0x7f...), at random. Where such an address does not exist (39-bit systems), where the system has room.
fn choose_base(bytes: usize) -> NonNull<u8> {
    // 16 TiB, and 2^19 places of 64 MiB from there: up to 48 TiB.
    let address = (1 << 44) + ((os::random() as usize) & ((1 << 19) - 1)) * (64 << 20);
    let found = os::map_at(address, SLICE).or_else(|| os::map(bytes, true));
    let Some(found) = found else { return NonNull::<u8>::without_provenance(NonNull::<SliceAligned>::dangling().addr()) };
    let base = found.addr().get().next_multiple_of(SLICE);
    let held = if found.addr().get() == address { SLICE } else { bytes };
    // SAFETY: just mapped, used by nobody: it was only asked for to see where there is room.
    unsafe { os::unmap(found, held) };
    found.with_addr(core::num::NonZero::new(base).unwrap_or(found.addr()))
}

/// The alignment of a slice.
#[repr(align(65536))]
struct SliceAligned;
