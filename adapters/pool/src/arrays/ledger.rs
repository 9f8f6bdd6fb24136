//! The arrays that are out in no slot of a pool, by address: as a `Vec`, as a pointer, or beyond the cap.
//!
//! Promises upward: an address is taken back once for each time it left; a second return is told from one of a foreign array, for
//! the last [`REMEMBERED`] returns.

use super::error::ReturnRefusal;
use std::collections::{HashMap, VecDeque};
use std::panic::Location;

/// Addresses of returned arrays that are remembered: 8 KiB.
const REMEMBERED: usize = 1024;

/// An array that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
    /// Elements that the array has room for.
    pub capacity: usize,
    /// The call that rented it.
    pub rented_at: &'static Location<'static>,
    /// Whether it left as a `Vec` or a pointer.
    pub detached: bool,
}

/// In which form an array is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayForm {
    /// As a guard with a box of its own: one more than its size keeps.
    Guard,
    /// As a `Vec`, which owns its memory.
    Vec,
    /// As a pointer, whose memory is the pool's.
    Raw,
}

/// An array that is out in no slot of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub capacity: usize,
    pub rented_at: &'static Location<'static>,
    pub form: ArrayForm,
    /// The array itself, where it left as a pointer: what comes back is only compared with it.
    pub start: Leaked,
}

/// A pointer to an array that the pool owns, or a null pointer.
#[derive(Clone, Copy, Debug)]
pub struct Leaked(pub *mut ());

// SAFETY: elements of arrays are `Send`, and the array that this points to is reached through the ledger only.
unsafe impl Send for Leaked {}

/// Arrays that are out in no slot of the pool.
#[derive(Debug, Default)]
pub struct ArrayLedger {
    out: HashMap<usize, Entry>,
    returned: VecDeque<usize>,
}

impl ArrayLedger {
    /// Notes that an array left.
    pub fn note(&mut self, address: usize, entry: Entry) {
        // An address that is out already belonged to a `Vec` that its holder dropped, as memory has one owner.
        self.out.insert(address, entry);
        self.returned.retain(|returned| *returned != address);
    }

    /// Forgets an array that ended; returns where it was rented.
    pub fn forget(&mut self, address: usize) -> Option<&'static Location<'static>> {
        self.out.remove(&address).map(|entry| entry.rented_at)
    }

    /// Takes an array back: a `Vec` of this capacity, or a pointer (`None`).
    pub fn settle(&mut self, address: usize, capacity: Option<usize>) -> Result<Entry, ReturnRefusal> {
        let form = if capacity.is_some() { ArrayForm::Vec } else { ArrayForm::Raw };
        let Some(entry) = self.out.get(&address).copied().filter(|entry| entry.form == form) else {
            let before = self.returned.contains(&address);
            return Err(if before { ReturnRefusal::AlreadyReturned } else { ReturnRefusal::NotOurs });
        };
        self.out.remove(&address);
        if let Some(is) = capacity.filter(|&is| is != entry.capacity) {
            return Err(ReturnRefusal::Resized { was: entry.capacity, is });
        }
        if self.returned.len() == REMEMBERED {
            self.returned.pop_front();
        }
        self.returned.push_back(address);
        Ok(entry)
    }

    /// Number of arrays that are out in a form.
    pub fn count(&self, form: impl Fn(ArrayForm) -> bool) -> usize {
        self.out.values().filter(|entry| form(entry.form)).count()
    }

    /// The arrays that are out.
    pub fn outstanding(&self) -> impl Iterator<Item = Outstanding> + '_ {
        let told = |entry: &Entry| Outstanding {
            capacity: entry.capacity,
            rented_at: entry.rented_at,
            detached: entry.form != ArrayForm::Guard,
        };
        self.out.values().map(told)
    }
}

/// The array of an entry that left as a pointer.
///
/// # Safety
/// [`ArrayLedger::settle`] of a ledger of arrays of `T` must have returned the entry, for a pointer, and this is called once for it.
pub unsafe fn adopt<T>(entry: Entry) -> Box<[T]> {
    let slice = std::ptr::slice_from_raw_parts_mut(entry.start.0.cast::<T>(), entry.capacity);
    // SAFETY: `into_raw` got `start` from a box of this many elements and noted it; the caller ensures that this is its only return.
    unsafe { Box::from_raw(slice) }
}
