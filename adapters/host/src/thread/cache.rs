//! A thread's cache: an array of free blocks for each size class, and the two steps that almost every call takes.
//!
//! Promises upward: [`pop`] and [`push`] take about seven instructions when the class is a constant: no atomic
//! read-modify-write, no lock, no owner to look up, free memory not touched. A call that they fail takes the slow path.
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
//! So empty and full are one test each, on a value that is needed anyway, and the null's entry sets how many blocks a class may
//! hold. A thread without a cache has one that is empty and full ([`EMPTY`]), which needs no test at all.
//!
//! Invariants, whenever the thread is outside this file and its slow paths:
//! - `floor(c) < tops[c] <= end(c)`, the entry at `floor(c)` is null, those from there to the top are free blocks of class c,
//!   each in no other array
//! - a class without room (cap 0) has the top of [`EMPTY`]: it looks empty and full, and its array is not touched. Class 0
//!   always is one, so large blocks and sizes of 0 need no test of their own

use super::reclaim::ClassArray;
use super::tls;
use crate::class::{self, CAP, COUNT};
use crate::lock::Lock;
use crate::steal;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize};

/// Bytes of an array: a power of two, so that its low bits tell the end.
///
/// 128 entries, the lowest is never used.
pub const ARRAY: usize = 1024;
const ENTRIES: usize = ARRAY / size_of::<*mut u8>();
const _: () = assert!(ENTRIES == CAP + 1, "the largest cap leaves one entry for the null");

/// One entry of an array.
pub type Entry = AtomicPtr<u8>;

/// Bytes in front of the arrays: three times an array's.
const HEAD: usize = 3 * ARRAY;

/// What the fast paths use; every kind of cache begins with it.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    /// The entry that the next freed block is written to. Only the owner writes it; other threads read it to count.
    tops: [AtomicPtr<Entry>; COUNT],
    /// The top that the owner's last pop read; null: no pop can be under way (see [`steal`]).
    pub announced: AtomicPtr<Entry>,
    /// [`class::SMALL`], here because a load relative to the cache is one instruction less.
    small: [u8; class::SMALL.len()],
}

/// A cache in memory: the header, and an array for each class but 0.
///
/// 75 KiB, of which a program touches the header and the arrays of its sizes.
#[derive(Debug)]
#[repr(C, align(1024))]
pub struct Cache {
    pub head: Head,
    /// How many blocks each class may hold now; the null stands one entry further below the end.
    pub caps: [AtomicU8; COUNT],
    /// The next of all caches, owned or spare; guarded by the lock of [`thread`](crate::thread).
    pub next: AtomicPtr<Cache>,
    /// The next spare cache.
    pub spare: AtomicPtr<Cache>,
    /// Whether the owner is in a slow path: its signal handlers must then take no lock.
    pub in_slow_path: AtomicBool,
    /// A frame of the outermost signal handler that the thread is in; 0: none, or not known yet.
    pub handler: AtomicUsize,
    /// The alternate stack of this handler: its first address and the one behind its last; both 0: the thread's own stack.
    pub stack: [AtomicUsize; 2],
    /// The thread's guards that are alive (see [`Handler`](crate::Handler)).
    pub guards: AtomicUsize,
    /// Stays in handlers that ended otherwise than by the drop of their last guard.
    pub handler_epoch: AtomicUsize,
    /// Held by the owner in its slow paths, and by a thread that steals.
    pub lock: Lock<()>,
    /// A digest of the tops, as a stealing thread last read them.
    pub last_tops: AtomicUsize,
    /// Contested blocks, by class (see [`steal::restore`]), null: none; and their entries, counted from the end.
    pub contested: [AtomicPtr<u8>; COUNT],
    pub contested_at: [AtomicU8; COUNT],
    /// Whether any block is contested.
    pub has_contested: AtomicBool,
    arrays: Arrays,
}

/// The arrays of classes 1 and up.
#[derive(Debug)]
#[repr(C, align(1024))]
struct Arrays([[Entry; ENTRIES]; COUNT - 1]);

const _: () = assert!(core::mem::offset_of!(Cache, arrays) == HEAD, "the arrays begin where the header ends");

/// The cache of threads that have none: every class is empty and full.
#[derive(Debug)]
#[repr(C, align(1024))]
pub struct Empty {
    head: Head,
    rest: [u8; HEAD - size_of::<Head>()],
    /// What the tops point behind: its last entry is the null that says empty, its end is a multiple of 1024.
    array: [Entry; ENTRIES],
}

impl Empty {
    /// The empty cache at address `own`, where all its tops point.
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

/// The cache of threads that have none.
pub static EMPTY: Empty = Empty::new(&raw const EMPTY);

/// The cache of threads in a signal handler; empty and full as well.
pub static IN_SIGNAL: Empty = Empty::new(&raw const IN_SIGNAL);

/// Whether a thread's word names a cache of its own.
#[inline]
pub fn is_own(cache: *mut Cache) -> bool {
    !core::ptr::addr_eq(cache, &raw const EMPTY) && !core::ptr::addr_eq(cache, &raw const IN_SIGNAL)
}

const _: () = assert!(size_of::<Empty>() == HEAD + ARRAY && core::mem::offset_of!(Empty, array) == HEAD);

/// The head of the running thread's cache.
#[inline(always)]
fn head<'a>() -> &'a Head {
    // SAFETY: the word is the thread's own cache or one of the empty ones; all begin with a head and live as long as the
    // process.
    unsafe { &*tls::get().cast::<Head>() }
}

/// The top of a class, which must be below `COUNT`.
#[inline(always)]
pub fn top(head: &Head, class: usize) -> &AtomicPtr<Entry> {
    debug_assert!(class < COUNT);
    // SAFETY: classes come from `class::of` and from the table of classes, which hold none above the last.
    unsafe { head.tops.get_unchecked(class) }
}

/// Pops the block freed last; `None` when the cache has none, as always of class 0.
#[inline(always)]
pub fn pop(class: usize) -> Option<*mut u8> {
    steal::pop(&ClassArray { head: head(), class })
}

/// The class of a request of at most 1 KiB, from the table in the cache.
#[inline(always)]
pub fn small_class(bytes: usize) -> usize {
    debug_assert!(bytes <= class::TABLED);
    // SAFETY: the caller's bound.
    usize::from(unsafe { *head().small.get_unchecked(bytes) })
}

/// Pushes a freed block of a class. `false`: the cache has no room; of class 0 it never has.
#[inline(always)]
pub fn push(block: *mut u8, class: usize) -> bool {
    let top = top(head(), class);
    let at = top.load(Relaxed);
    if at.addr() & (ARRAY - 1) == 0 {
        return false;
    }
    // Release: a thread that steals the block sees what its user did.
    // SAFETY: below the end of the array.
    unsafe { (*at).store(block, Release) };
    top.store(top.load(Relaxed).wrapping_add(1), Relaxed);
    true
}

impl Cache {
    /// Makes zeroed memory an empty cache without an owner.
    pub fn start(&mut self) {
        self.head.small = class::SMALL;
        self.reset();
    }

    /// Empties every class and gives it no room, so that no array is touched before it is needed.
    ///
    /// Class 0 stays so.
    pub fn reset(&self) {
        let nothing = EMPTY.head.tops[0].load(Relaxed);
        self.head.tops.iter().for_each(|top| top.store(nothing, Relaxed));
        self.caps.iter().for_each(|cap| cap.store(0, Relaxed));
    }

    /// Ends the stay in signal handlers, and the slow path that it interrupted.
    ///
    /// Guards of it that are dropped later do nothing.
    pub fn end_handlers(&self) {
        self.handler_epoch.fetch_add(1, Relaxed);
        self.guards.store(0, Relaxed);
        self.handler.store(0, Relaxed);
        self.in_slow_path.store(false, Relaxed);
    }

    /// The arrays behind the first page, and their bytes: what a spare cache can do without.
    pub fn arrays(&self) -> (*const u8, usize) {
        let page = crate::process::page_bytes().max(ARRAY);
        ((&raw const *self).cast::<u8>().wrapping_add(page), (size_of::<Self>() / page).saturating_sub(1) * page)
    }

    /// Whether any class ever had room since the last reset.
    pub fn is_touched(&self) -> bool {
        self.caps.iter().any(|cap| cap.load(Relaxed) != 0)
    }

    /// The end of a class's array.
    pub fn end(&self, class: usize) -> *const Entry {
        (&raw const *self).cast::<Entry>().wrapping_add(HEAD / size_of::<Entry>() + class * ENTRIES)
    }

    /// Blocks of a class; approximate for another thread's cache.
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

    /// How many blocks of a class the cache may hold.
    pub fn cap(&self, class: usize) -> usize {
        usize::from(self.caps[class].load(Relaxed))
    }

    /// The entry of a class's array `below` entries under its end.
    pub fn entry(&self, class: usize, below: usize) -> &Entry {
        &self.arrays.0[(class + COUNT - 2) % (COUNT - 1)][(ENTRIES - below) % ENTRIES]
    }

    /// Sets how many blocks an empty class may hold.
    pub fn set_cap(&self, class: usize, cap: usize) {
        self.entry(class, cap + 1).store(core::ptr::null_mut(), Relaxed);
        self.caps[class].store(cap as u8, Relaxed);
        self.head.tops[class].store(self.end(class).cast_mut().wrapping_sub(cap), Relaxed);
    }

    /// Raises the cap of a class, which keeps its blocks.
    pub fn raise_cap(&self, class: usize, cap: usize) {
        let (count, before) = (self.count(class), self.cap(class));
        for at in 0..count {
            let block = self.entry(class, before - at).load(Relaxed);
            self.entry(class, cap - at).store(block, Relaxed);
        }
        self.set_cap(class, cap);
        self.set_count(class, count);
    }

    /// Sets how many blocks a class has: those from the floor up.
    fn set_count(&self, class: usize, count: usize) {
        let free = self.cap(class) - count;
        self.head.tops[class].store(self.end(class).cast_mut().wrapping_sub(free), Relaxed);
    }

    /// Pushes blocks, the last one uppermost. There must be room for them.
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

    /// Takes up to `out.len()` blocks from the bottom, which were freed the longest ago; how many.
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

/// Blocks a class may hold at its first miss: it doubles with each miss, up to the class's cap.
pub const START: usize = 8;
const _: () = assert!(class::CAP >= START);
