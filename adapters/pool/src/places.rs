//! Which slots of a pool hold an idle object, which are vacant, and which are out: numbers without the objects.
//!
//! ```text
//!                     get                                    return
//!   a thread's front  ──► pop ────────────────┐   ┌───────── push ◄── if it has room
//!   idle (a bitmap)   ──► acquire ────────────┼─► out ────── release ◄── otherwise
//!   vacant (a bitmap) ──► acquire, make ──────┤
//!   other fronts      ──► steal ──────────────┘
//! ```
//!
//! Promises upward: a slot has one holder: a front, one of the two bitmaps, or the caller that took it; its next holder sees
//! what the last one did; no call waits for another thread.
//! Asks from below: [`Pool`] for bitmaps, [`Front`] for what a thread keeps to itself.
//!
//! Invariants:
//! - a slot is vacant iff its bit in `vacant` is clear, and idle beyond all fronts iff its bit in `idle` is clear
//! - a slot in a front has both bits set, and so has one that is out

use crate::barrier;
use crate::front::{ClosedFront, DEPTH, Front};
use crate::thread_number;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_core::AllocError;
use terrace_core::pool::Pool;
use terrace_core::sync::AtomicUsize;

/// Fronts that a pool is made with.
const FIRST_CHUNK: u32 = 8;
/// Chunks of further fronts, each twice as large as the one before: threads above 8 * (2^12 - 1) that run at once have none.
const CHUNKS: usize = 11;

/// How idle slots are ordered: the larger stamp was returned later.
pub type ReturnStamp = u64;

/// Where a slot was before it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOrigin {
    /// Idle, beyond all fronts.
    Shared,
    /// Idle, in a front.
    Front,
    /// Without an object.
    Vacant,
}

/// The slots of one pool.
#[derive(Debug)]
pub struct Places {
    most: u32,
    /// Most slots that each front holds; at most [`DEPTH`].
    front: u32,
    idle: Box<[AtomicUsize]>,
    vacant: Box<[AtomicUsize]>,
    /// When each slot was returned, if it is idle beyond the fronts.
    stamps: Box<[AtomicU64]>,
    /// Fronts of the first threads.
    first: [Front; FIRST_CHUNK as usize],
    /// Fronts of further threads: chunk `i` has `FIRST_CHUNK << (i + 1)`, made when a thread first needs one.
    more: [OnceLock<Box<[Front]>>; CHUNKS],
    /// No stamp given before the last call of [`tick`](Self::tick) is above this.
    clock: AtomicU64,
    /// Set once, when the pool is closed.
    closed: AtomicBool,
}

impl Places {
    /// Slots that are all vacant.
    ///
    /// # Errors
    /// [`BadRequest`](terrace_core::Cause::BadRequest) for no slots.
    pub fn new(most: u32, front: u32) -> Result<Self, AllocError> {
        barrier::prepare();
        let words = || (0..Pool::words(most)).map(|_| AtomicUsize::new(0)).collect::<Box<[_]>>();
        let stamps = (0..most).map(|_| AtomicU64::new(0)).collect();
        let (idle, vacant) = (words(), words());
        let none_idle = Pool::new(&idle, most)?;
        while none_idle.acquire().is_some() {}
        let (first, more) = (std::array::from_fn(|_| Front::new()), [const { OnceLock::new() }; CHUNKS]);
        let front = front.min(DEPTH as u32);
        Ok(Self {
            most,
            front,
            idle,
            vacant,
            stamps,
            first,
            more,
            clock: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        })
    }

    /// Whether the pool was closed.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes the pool for ever.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    fn bitmap<'a>(&self, words: &'a [AtomicUsize]) -> Pool<'a> {
        Pool::new(words, self.most).unwrap_or_else(|_| unreachable!("`new` made a pool of these words"))
    }

    /// Idle slots beyond all fronts.
    fn idle(&self) -> Pool<'_> {
        self.bitmap(&self.idle)
    }

    fn vacant(&self) -> Pool<'_> {
        self.bitmap(&self.vacant)
    }

    /// The front of the calling thread; `None` for a thread that ends, and in a pool without fronts.
    #[inline]
    pub fn own_front(&self) -> Option<&Front> {
        if self.front == 0 {
            return None;
        }
        let number = thread_number::current()?;
        match self.first.get(number as usize) {
            Some(front) => Some(front),
            None => self.later_front(number),
        }
    }

    #[inline(never)]
    fn later_front(&self, number: u32) -> Option<&Front> {
        let chunk = (number / FIRST_CHUNK + 1).ilog2();
        let fronts = self.more.get(chunk as usize - 1)?;
        let fronts = fronts.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| Front::new()).collect());
        fronts.get((number - FIRST_CHUNK * ((1 << chunk) - 1)) as usize)
    }

    /// All fronts that any thread has had.
    pub fn fronts(&self) -> impl Iterator<Item = &Front> {
        self.first.iter().chain(self.more.iter().filter_map(|chunk| chunk.get()).flatten())
    }

    /// Takes a slot: an idle one from beyond the fronts, else a vacant one, else an idle one from a front.
    pub fn take(&self) -> Option<(u32, SlotOrigin)> {
        let from = |origin| move |slot| (slot, origin);
        let shared = self.idle().acquire().map(from(SlotOrigin::Shared));
        let vacant = || self.take_vacant().map(from(SlotOrigin::Vacant));
        shared.or_else(vacant).or_else(|| self.steal().map(from(SlotOrigin::Front)))
    }

    /// Takes an idle slot, from beyond the fronts or from one.
    pub fn take_idle(&self) -> Option<u32> {
        self.idle().acquire().or_else(|| self.steal())
    }

    /// Takes this slot if it is idle beyond the fronts.
    fn take_this(&self, slot: u32) -> bool {
        self.idle().acquire_block(slot)
    }

    /// Takes a vacant slot.
    pub fn take_vacant(&self) -> Option<u32> {
        self.vacant().acquire()
    }

    /// Gives a slot whose object is idle, and was returned at `stamp`, to all threads.
    #[cold]
    fn put_idle(&self, slot: u32, stamp: ReturnStamp) {
        if let Some(word) = self.stamps.get(slot as usize) {
            word.store(stamp, Ordering::Relaxed);
        }
        // Refused only for a slot that is idle already: it had two holders.
        let put = self.idle().release(slot);
        debug_assert!(put.is_ok(), "slot {slot} was idle before it was returned");
    }

    /// Gives a slot without an object back.
    pub fn put_vacant(&self, slot: u32) {
        let put = self.vacant().release(slot);
        debug_assert!(put.is_ok(), "slot {slot} was vacant before it was given back");
    }

    /// Puts a slot whose object is idle into the caller's front, or gives it to all threads.
    ///
    /// The former only if `own` is true and the front has room.
    #[inline(always)]
    pub fn put(&self, slot: u32, own: bool) {
        let past = self.clock.load(Ordering::Relaxed);
        let stamp = match self.own_front() {
            Some(front) => {
                let stamp = front.clock.load(Ordering::Relaxed).max(past) + 1;
                front.clock.store(stamp, Ordering::Relaxed);
                if own && front.push(slot, stamp, self.front) {
                    return;
                }
                stamp
            }
            None => self.clock.fetch_add(1, Ordering::Relaxed) + 1,
        };
        self.put_idle(slot, stamp);
    }

    /// Returns a stamp between those given so far and those given after this call.
    ///
    /// Stamps of threads that return objects during the call may fall on either side.
    pub fn tick(&self) -> ReturnStamp {
        let latest = self.fronts().map(|front| front.clock.load(Ordering::Relaxed)).max().unwrap_or(0);
        self.clock.fetch_max(latest, Ordering::Relaxed).max(latest)
    }

    /// Idle slots and their stamps, beyond the fronts and in them. O(most).
    pub fn idle_slots(&self) -> Vec<(ReturnStamp, u32)> {
        let shared = (0..self.most).zip(&self.stamps).filter(|&(slot, _)| !self.idle().is_out(slot));
        let mut slots: Vec<_> = shared.map(|(slot, stamp)| (stamp.load(Ordering::Relaxed), slot)).collect();
        self.visit_fronts(|stamp, slot| {
            slots.push((stamp, slot));
            false
        });
        slots
    }

    /// Takes the slots in fronts for which `take` returns true, given their stamps; those of each front the oldest first.
    ///
    /// Passes over fronts whose owners are inside. Costs one heavy barrier.
    fn visit_fronts(&self, mut take: impl FnMut(ReturnStamp, u32) -> bool) {
        let held = self.fronts().filter(|front| front.len() != 0);
        let closed: Vec<ClosedFront<'_>> = held.filter_map(Front::close).collect();
        if closed.is_empty() || !barrier::heavy() {
            return;
        }
        for front in closed {
            front.take(&mut take);
        }
    }

    /// Takes a slot from another thread's front, or from the caller's own.
    fn steal(&self) -> Option<u32> {
        let mut stolen = None;
        self.visit_fronts(|_, slot| {
            let first = stolen.is_none();
            stolen = stolen.or(Some(slot));
            first
        });
        stolen
    }

    /// Takes those of these slots that are still idle.
    ///
    /// A slot that was taken and returned since [`idle_slots`](Self::idle_slots) listed it stays where it is.
    pub fn take_these(&self, slots: &[(ReturnStamp, u32)]) -> Vec<u32> {
        let (mut taken, elsewhere): (Vec<_>, Vec<_>) = slots.iter().partition(|(_, slot)| self.take_this(*slot));
        taken.retain(|&(stamp, slot)| {
            let now = self.stamps[slot as usize].load(Ordering::Relaxed);
            if now != stamp {
                self.put_idle(slot, now);
            }
            now == stamp
        });
        if !elsewhere.is_empty() {
            self.visit_fronts(|stamp, slot| {
                let meant = elsewhere.contains(&(stamp, slot));
                if meant {
                    taken.push((stamp, slot));
                }
                meant
            });
        }
        taken.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Number of slots that are not vacant. O(most / 64).
    pub fn existing(&self) -> u32 {
        self.vacant().in_use()
    }

    /// Number of idle slots, in fronts or beyond. O(most / 64 + fronts); exact while no call is under way.
    pub fn idle_count(&self) -> u32 {
        self.most - self.idle().in_use() + self.fronts().map(Front::len).sum::<u32>()
    }
}
