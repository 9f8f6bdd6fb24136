//! A thread's cache: an array of free blocks for each size class; and push and pop, all that most calls do.
//!
//! Promises upward: [`pop`] and [`push`] take about seven instructions when the class is a constant: no atomic
//! read-modify-write, no lock, no search for a block's owner, no access to free memory. If they fail, the call takes
//! the slow path.
//! Asks from below: [`tls`] for the running thread's cache.
//!
//! ```text
//! tops[c] ──────────────────────────┐
//!                                   v
//! array of c   | .... | null | b b b b .. free entries . |   end at a multiple of 1024
//!                       floor
//! pop: the pointer below the top; null means empty.     push: write at the top; a top at the end means full.
//! ```
//!
//! So the tests for empty and full read one value each, which push and pop need anyway, and the position of the null
//! sets how many blocks a class may hold. The cache of a thread that has none of its own is [`EMPTY`], in which every
//! class is both empty and full: no test for a missing cache is needed.
//!
//! Invariants, whenever the thread is outside this file and its slow paths:
//! - `floor(c) < tops[c] <= end(c)`; the entry at `floor(c)` is null, and those above it and below the top are free
//!   blocks of class c, each in no other array
//! - the top of a class without room (cap 0) is that of [`EMPTY`]: the class is empty and full, and its array is not
//!   touched. Class 0 never has room, so large blocks and requests of 0 bytes need no test of their own

use super::reclaim::ClassArray;
use super::tls;
use crate::class::{self, CAP, COUNT};
use crate::lock::Lock;
use crate::steal;
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

/// Bytes of an array: a power of two, so that the low bits of an address tell the end.
///
/// 128 entries, of which one holds the null at the floor.
pub const ARRAY: usize = 1024;
const ENTRIES: usize = ARRAY / size_of::<*mut u8>();
const _: () = assert!(ENTRIES == CAP + 1, "the largest cap leaves one entry for the null");

/// One entry of an array.
pub type Entry = AtomicPtr<u8>;

/// Bytes of a cache in front of its arrays: as many as three arrays take.
const HEAD: usize = 3 * ARRAY;

/// The fields that the fast paths use; every kind of cache begins with them.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    /// For each class, the entry that the next push writes to. Only the owner writes a top; other threads read it to
    /// count blocks.
    tops: [AtomicPtr<Entry>; COUNT],
    /// The top that the owner announced in its last pop; null: no pop can be under way (see [`steal`]).
    pub announced: AtomicPtr<Entry>,
    /// A copy of [`class::SMALL`]: a load relative to the cache's address saves an instruction.
    small: [u8; class::SMALL.len()],
}

/// A thread's cache: the header, and an array for each class but 0.
///
/// 75 KiB of addresses; a thread touches only the header and the arrays of classes that it uses.
#[derive(Debug)]
#[repr(C, align(1024))]
pub struct Cache {
    pub head: Head,
    /// How many blocks of each class the cache may hold now; the null lies one entry further below the array's end.
    pub caps: [AtomicU8; COUNT],
    /// The next in the list of all caches, owned or spare; the lock of [`thread`](crate::thread) guards it.
    pub next: AtomicPtr<Cache>,
    /// The owner's thread-local pointer, to which the bypass writes; null: there is no owner, or the pointer has no address.
    pub word: AtomicPtr<AtomicPtr<Cache>>,
    /// Unique among all caches, from 1 on; 0: not numbered.
    pub number: AtomicU32,
    /// The counters of the owner in the tracker, a `ThreadLane`; null: not looked up yet.
    pub counters: AtomicPtr<c_void>,
    /// Whether the tracker leaves alone what the owner allocates and frees.
    pub untracked: AtomicBool,
    /// The mapping that held the owner's stack when a call stack was last read: first address, and the address behind it.
    pub mapping: [AtomicUsize; 2],
    /// The next in the list of spare caches.
    pub spare: AtomicPtr<Cache>,
    /// Whether the owner is in a slow path: a signal handler that interrupts it must take no lock.
    pub in_slow_path: AtomicBool,
    /// An address in the stack frame of the thread's outermost signal handler; 0: the thread is in none, or it is not
    /// yet recorded.
    pub handler: AtomicUsize,
    /// The alternate signal stack on which that handler runs: first address, and the address behind it; both 0: the
    /// usual stack.
    pub stack: [AtomicUsize; 2],
    /// Number of the thread's guards that are alive (see [`Handler`](crate::Handler)).
    pub guards: AtomicUsize,
    /// Number of stays in handlers that ended otherwise than by the drop of their last guard (see
    /// [`signal`](crate::signal)).
    pub handler_epoch: AtomicUsize,
    /// Held by the owner in its slow paths, and by a thread that steals from the cache.
    pub lock: Lock<()>,
    /// A digest of the tops when another thread last searched for idle caches.
    pub last_tops: AtomicUsize,
    /// The contested block of each class, null: none (see [`steal::restore`]); and the distance of its entry from the
    /// array's end.
    pub contested: [AtomicPtr<u8>; COUNT],
    pub contested_at: [AtomicU8; COUNT],
    /// Whether any class has a contested block.
    pub has_contested: AtomicBool,
    arrays: Arrays,
}

/// The arrays of classes 1 and up.
#[derive(Debug)]
#[repr(C, align(1024))]
struct Arrays([[Entry; ENTRIES]; COUNT - 1]);

const _: () = assert!(core::mem::offset_of!(Cache, arrays) == HEAD, "the arrays begin where the header ends");

/// A cache for threads that have none of their own: every class is both empty and full.
#[derive(Debug)]
#[repr(C, align(1024))]
pub struct Empty {
    head: Head,
    rest: [u8; HEAD - size_of::<Head>()],
    /// All tops point just behind this array: its last entry is null, so a pop finds it empty; its end is a multiple of
    /// 1024, so a push finds it full.
    array: [Entry; ENTRIES],
}

impl Empty {
    /// Makes the empty cache that will lie at address `own`; its tops point to the end of its own array.
    const fn new(own: *const Self) -> Self {
        let end = own.cast::<Entry>().cast_mut().wrapping_add((HEAD + ARRAY) / size_of::<Entry>());
        let mut tops = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];
        let mut class = 0;
        while class < COUNT {
            tops[class] = AtomicPtr::new(end);
            class += 1;
        }
        let array = [const { AtomicPtr::new(core::ptr::null_mut()) }; ENTRIES];
        let announced = AtomicPtr::new(core::ptr::null_mut());
        Self { head: Head { tops, announced, small: class::SMALL }, rest: [0; HEAD - size_of::<Head>()], array }
    }
}

/// The cache of threads that have none of their own, or whose cache is detached.
pub static EMPTY: Empty = Empty::new(&raw const EMPTY);

/// The cache of threads in a signal handler; as [`EMPTY`], every class is both empty and full.
pub static IN_SIGNAL: Empty = Empty::new(&raw const IN_SIGNAL);

/// Whether a thread-local pointer names a thread's own cache, neither [`EMPTY`] nor [`IN_SIGNAL`].
#[inline]
pub fn is_own(cache: *mut Cache) -> bool {
    !core::ptr::addr_eq(cache, &raw const EMPTY) && !core::ptr::addr_eq(cache, &raw const IN_SIGNAL)
}

const _: () = assert!(size_of::<Empty>() == HEAD + ARRAY && core::mem::offset_of!(Empty, array) == HEAD);

/// The head of the cache that the running thread's pointer names.
#[inline(always)]
fn head<'a>() -> &'a Head {
    // SAFETY: the pointer names the thread's own cache or one of the two empty ones; all begin with a head and live as
    // long as the process.
    unsafe { &*tls::get().cast::<Head>() }
}

/// The top of a class, which must be below `COUNT`.
#[inline(always)]
pub fn top(head: &Head, class: usize) -> &AtomicPtr<Entry> {
    debug_assert!(class < COUNT);
    // SAFETY: classes come from `class::of` and from the table of classes, which hold none above the last.
    unsafe { head.tops.get_unchecked(class) }
}

/// Pops the block freed last; `None` if the cache has none of the class, as always for class 0.
#[inline(always)]
pub fn pop(class: usize) -> Option<*mut u8> {
    steal::pop(&ClassArray { head: head(), class })
}

/// The class of a request of at most 1 KiB, read from the table in the cache.
#[inline(always)]
pub fn small_class(bytes: usize) -> usize {
    debug_assert!(bytes <= class::TABLED);
    // SAFETY: the caller passes at most `TABLED`, for which the table has an entry.
    usize::from(unsafe { *head().small.get_unchecked(bytes) })
}

/// Pushes a freed block of a class. `false`: the cache has no room, as always for class 0.
#[inline(always)]
pub fn push(block: *mut u8, class: usize) -> bool {
    push_to(head(), block, class)
}

/// Pushes a freed block of a class into the running thread's cache. `false`: the cache has no room.
#[inline(always)]
pub fn push_to(head: &Head, block: *mut u8, class: usize) -> bool {
    let top = top(head, class);
    let at = top.load(Relaxed);
    if at.addr() & (ARRAY - 1) == 0 {
        return false;
    }
    // Release: a thread that steals the block sees the last writes of the program to it.
    // SAFETY: below the end of the array.
    unsafe { (*at).store(block, Release) };
    top.store(top.load(Relaxed).wrapping_add(1), Relaxed);
    true
}

impl Cache {
    /// Makes an empty cache without an owner out of zeroed memory.
    pub fn start(&mut self) {
        self.head.small = class::SMALL;
        self.reset();
    }

    /// Gives every class cap 0 and the top of [`EMPTY`], so that unused arrays are not touched.
    ///
    /// Does not free blocks: the caller must have flushed the cache.
    pub fn reset(&self) {
        let nothing = EMPTY.head.tops[0].load(Relaxed);
        self.head.tops.iter().for_each(|top| top.store(nothing, Relaxed));
        self.caps.iter().for_each(|cap| cap.store(0, Relaxed));
    }

    /// Ends the thread's stay in signal handlers, and the slow path that the handler interrupted.
    ///
    /// Guards of that stay do nothing when they are dropped later.
    pub fn end_handlers(&self) {
        self.handler_epoch.fetch_add(1, Relaxed);
        self.guards.store(0, Relaxed);
        self.handler.store(0, Relaxed);
        self.in_slow_path.store(false, Relaxed);
    }

    /// The memory behind the cache's first page and its bytes: arrays that a spare cache does not need.
    pub fn arrays(&self) -> (*const u8, usize) {
        let page = crate::process::page_bytes().max(ARRAY);
        ((&raw const *self).cast::<u8>().wrapping_add(page), (size_of::<Self>() / page).saturating_sub(1) * page)
    }

    /// Whether any class got room since the last reset.
    pub fn is_touched(&self) -> bool {
        self.caps.iter().any(|cap| cap.load(Relaxed) != 0)
    }

    /// The end of a class's array.
    pub fn end(&self, class: usize) -> *const Entry {
        (&raw const *self).cast::<Entry>().wrapping_add(HEAD / size_of::<Entry>() + class * ENTRIES)
    }

    /// Number of blocks of a class; approximate for another thread's cache.
    pub fn count(&self, class: usize) -> usize {
        if self.cap(class) == 0 {
            return 0;
        }
        let free = self.end(class).addr().wrapping_sub(self.head.tops[class].load(Relaxed).addr()) / size_of::<Entry>();
        usize::from(self.caps[class].load(Relaxed)).saturating_sub(free)
    }

    /// Whether the top of a class that has room lies above its floor and not above its end.
    pub fn is_top_inside(&self, class: usize) -> bool {
        let free = self.end(class).addr().wrapping_sub(self.head.tops[class].load(Relaxed).addr());
        free.is_multiple_of(size_of::<Entry>()) && free / size_of::<Entry>() <= self.cap(class)
    }

    /// How many blocks of a class the cache may hold now.
    pub fn cap(&self, class: usize) -> usize {
        usize::from(self.caps[class].load(Relaxed))
    }

    /// The entry of a class's array that lies `below` entries below the array's end.
    pub fn entry(&self, class: usize, below: usize) -> &Entry {
        &self.arrays.0[(class + COUNT - 2) % (COUNT - 1)][(ENTRIES - below) % ENTRIES]
    }

    /// Sets how many blocks of a class the cache may hold; the class must hold none.
    pub fn set_cap(&self, class: usize, cap: usize) {
        self.entry(class, cap + 1).store(core::ptr::null_mut(), Relaxed);
        self.caps[class].store(cap as u8, Relaxed);
        self.head.tops[class].store(self.end(class).cast_mut().wrapping_sub(cap), Relaxed);
    }

    /// Raises the cap of a class, and moves its blocks down to the new floor.
    pub fn raise_cap(&self, class: usize, cap: usize) {
        let (count, before) = (self.count(class), self.cap(class));
        for at in 0..count {
            let block = self.entry(class, before - at).load(Relaxed);
            self.entry(class, cap - at).store(block, Relaxed);
        }
        self.set_cap(class, cap);
        self.set_count(class, count);
    }

    /// Sets the top of a class so that it holds `count` blocks, from the floor up.
    fn set_count(&self, class: usize, count: usize) {
        let free = self.cap(class) - count;
        self.head.tops[class].store(self.end(class).cast_mut().wrapping_sub(free), Relaxed);
    }

    /// Lowers the top of a class by some entries, wherever that leads.
    #[cfg(test)]
    pub fn lower_top(&self, class: usize, entries: usize) {
        let top = self.head.tops[class].load(Relaxed);
        self.head.tops[class].store(top.wrapping_sub(entries), Relaxed);
    }

    /// Pushes blocks, the last one on top. The class must have room for them.
    pub fn push(&self, class: usize, blocks: impl ExactSizeIterator<Item = *mut u8>) {
        let (count, cap) = (self.count(class), self.cap(class));
        let more = blocks.len();
        blocks.enumerate().for_each(|(at, block)| self.entry(class, cap - count - at).store(block, Relaxed));
        self.set_count(class, count + more);
    }

    /// Pops the block freed last.
    pub fn pop(&self, class: usize) -> Option<*mut u8> {
        let count = self.count(class).checked_sub(1)?;
        self.set_count(class, count);
        Some(self.entry(class, self.cap(class) - count).load(Relaxed))
    }

    /// Takes up to `out.len()` blocks from the bottom, those freed longest ago; returns how many.
    pub fn take_oldest(&self, class: usize, out: &mut [*mut u8]) -> usize {
        let (count, cap) = (self.count(class), self.cap(class));
        let taken = count.min(out.len());
        for (at, block) in out.iter_mut().take(taken).enumerate() {
            *block = self.entry(class, cap - at).load(Relaxed);
        }
        for at in taken..count {
            let block = self.entry(class, cap - at).load(Relaxed);
            self.entry(class, cap - (at - taken)).store(block, Relaxed);
        }
        self.set_count(class, count - taken);
        taken
    }
}

/// Cap of a class after its first miss; each further miss doubles it, up to the class's bound.
pub const START: usize = 8;
const _: () = assert!(class::CAP >= START);
