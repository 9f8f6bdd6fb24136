//! A lock-free array of places through which threads pass batches of words; a place holds one batch or none.
//!
//! Promises upward: exactly one thread takes a batch, and sees what the thread that gave it did before. No call waits for
//! another: a thread skips a place that another thread is filling or emptying. A call costs at most one compare-and-swap
//! for each place and one copy of the batch.
//! Asks from below: `sync`; the caller lends one `u32` for each place and `batch` words for its items.
//!
//! ```text
//!            places   [ 0 ]  [ 64 ]  [BUSY]  [ 0 ]  ...          0: empty; n: holds n items; BUSY: a thread copies
//! items of place 1           a b c d ...
//! ```
//!
//! Why there is no ABA problem: a thread owns a place from the compare-and-swap that made it BUSY until its own store.
//! It copies what the previous owner wrote; which batch that is does not matter.
//!
//! Invariants:
//! - the word of a place is 0, BUSY, CLOSED, or a number of items, at most `batch`
//! - only the thread that made a place BUSY reads or writes the items of that place

use crate::error::{Violation, ensure};
use crate::sync::{AtomicU32, AtomicUsize, Ordering, seeded, spin_hint};

/// The word of a place while a thread is copying items into the place or out of it.
const BUSY: u32 = u32::MAX;
/// The word of a place that is out of use, because a fork is under way.
const CLOSED: u32 = u32::MAX - 1;

/// Acquire: the thread that takes a batch sees what the giving thread did before it gave the batch.
#[inline(always)]
fn take_order() -> Ordering {
    if seeded("exchange_take_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Release: publishes the items, and all earlier writes, to the thread that takes them.
#[inline(always)]
fn give_order() -> Ordering {
    if seeded("exchange_give_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// Places for batches: a `Copy` view over lent words. All views over the same words are one exchange.
///
/// # Example
/// ```
/// use terrace_core::Exchange;
/// use terrace_core::sync::{AtomicU32, AtomicUsize};
/// static PLACES: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
/// static ITEMS: [AtomicUsize; 2 * 4] = [const { AtomicUsize::new(0) }; 2 * 4];
/// let exchange = Exchange::new(&PLACES, &ITEMS);
/// assert!(exchange.give(&[10, 20, 30]));
/// let mut batch = [0; 4];
/// let count = std::thread::spawn(move || exchange.take(&mut batch).map(|count| (count, batch[2]))).join();
/// assert_eq!(count.expect("no panic"), Some((3, 30)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    places: &'a [AtomicU32],
    /// The words for items: `batch` for each place, in the order of the places.
    items: &'a [AtomicUsize],
}

impl<'a> Exchange<'a> {
    /// An exchange over zeroed words, or words of another exchange of the same shape.
    ///
    /// A batch has at most `items.len() / places.len()` items.
    pub const fn new(places: &'a [AtomicU32], items: &'a [AtomicUsize]) -> Self {
        Self { places, items }
    }

    /// Maximum number of items in a batch; 0 without places.
    pub const fn batch(&self) -> usize {
        if self.places.is_empty() { 0 } else { self.items.len() / self.places.len() }
    }

    /// Puts a batch into an empty place.
    ///
    /// Returns false, without effect, when no place is empty, or the batch is empty or too long.
    pub fn give(&self, batch: &[usize]) -> bool {
        if batch.is_empty() || batch.len() > self.batch() {
            return false;
        }
        for (at, place) in self.places.iter().enumerate() {
            if place.load(Ordering::Relaxed) != 0 || self.claim(place, 0).is_err() {
                continue;
            }
            for (item, &value) in self.items[at * self.batch()..].iter().zip(batch) {
                item.store(value, Ordering::Relaxed);
            }
            place.store(batch.len() as u32, give_order());
            return true;
        }
        false
    }

    /// Moves the items of a batch to `out`; returns how many.
    ///
    /// `None` when every place is empty or BUSY. Items for which `out` has no room stay in the place.
    pub fn take(&self, out: &mut [usize]) -> Option<usize> {
        (0..self.places.len()).find_map(|at| self.take_at(at, out))
    }

    fn take_at(&self, at: usize, out: &mut [usize]) -> Option<usize> {
        let place = self.places.get(at)?;
        let held = place.load(Ordering::Relaxed);
        if held == 0 || held >= CLOSED || out.is_empty() || self.claim(place, held).is_err() {
            return None;
        }
        // Copies the last items of the place, so that those that stay start at its first word.
        let kept = (held as usize).saturating_sub(out.len());
        let from = at * self.batch();
        for (value, item) in out.iter_mut().zip(&self.items[from + kept..from + held as usize]) {
            *value = item.load(Ordering::Relaxed);
        }
        place.store(kept as u32, give_order());
        Some(held as usize - kept)
    }

    /// Makes a place that holds `held` items BUSY, for this thread.
    fn claim(&self, place: &AtomicU32, held: u32) -> Result<u32, u32> {
        place.compare_exchange(held, BUSY, take_order(), Ordering::Relaxed)
    }

    /// Closes every place and passes all items to `to`.
    ///
    /// Later calls of `give` and `take` find no place. Waits for threads that are copying. For use before a fork: in
    /// the child only one thread exists, so that a place which another thread had made BUSY would stay BUSY for ever.
    pub fn close(&self, mut to: impl FnMut(usize)) {
        for (at, place) in self.places.iter().enumerate() {
            let held = loop {
                match place.load(Ordering::Relaxed) {
                    BUSY => spin_hint(),
                    CLOSED => break 0,
                    held if self.claim(place, held).is_ok() => break held as usize,
                    _ => {}
                }
            };
            let from = at * self.batch();
            self.items[from..from + held].iter().for_each(|item| to(item.load(Ordering::Relaxed)));
            place.store(CLOSED, give_order());
        }
    }

    /// Opens the places again, in the process that closed them or in its child.
    pub fn open(&self) {
        for place in self.places {
            // No other thread changes a CLOSED place; a place that is not CLOSED is open already.
            let _ = place.compare_exchange(CLOSED, 0, take_order(), Ordering::Relaxed);
        }
    }

    /// Number of items in all places. O(places); exact while no call is under way.
    pub fn held(&self) -> usize {
        let count = |place: &AtomicU32| Some(place.load(Ordering::Relaxed)).filter(|&held| held < CLOSED);
        self.places.iter().filter_map(count).map(|held| held as usize).sum()
    }

    /// Checks the first invariant. O(places).
    ///
    /// # Errors
    /// The first place that claims more items than a batch has.
    pub fn check(&self) -> Result<(), Violation> {
        for (at, place) in self.places.iter().enumerate() {
            let held = place.load(Ordering::Relaxed);
            let sound = held >= CLOSED || held as usize <= self.batch();
            ensure(sound, "exchange: a place is empty, busy, closed, or holds at most a batch", at)?;
        }
        Ok(())
    }
}
