//! What was said about pages of managed memory.
//!
//! Upward: [`Hints`]: advice is set and read page by page, as `cuMemAdvise` and `cuMemRangeGetAttribute` do.
//! From below: nothing. Bytes stay where they are: only what was said is kept.

use super::PAGE;
use crate::abi::attributes::{INVALID_DEVICE, advise};
use crate::abi::c_int;
use std::collections::{BTreeMap, BTreeSet};

/// What was said about a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// It is read mostly.
    pub read_mostly: bool,
    /// Where it should be: a device, the CPU, or nowhere in particular.
    pub preferred: c_int,
    /// Where it was last prefetched to.
    pub prefetched: c_int,
    /// Who uses it.
    pub accessed_by: BTreeSet<c_int>,
}

impl Default for Said {
    fn default() -> Said {
        Said { read_mostly: false, preferred: INVALID_DEVICE, prefetched: INVALID_DEVICE, accessed_by: BTreeSet::new() }
    }
}

/// All pages about which anything was said, by number.
#[derive(Default)]
pub struct Hints(BTreeMap<u64, Said>);

/// Numbers of the pages that a range touches.
fn pages(start: u64, bytes: u64) -> impl Iterator<Item = u64> {
    start / PAGE..(start + bytes).div_ceil(PAGE)
}

impl Hints {
    /// Takes advice about a range.
    pub fn advise(&mut self, start: u64, bytes: u64, advice: c_int, device: c_int) {
        for page in pages(start, bytes) {
            let said = self.0.entry(page).or_default();
            match advice {
                advise::SET_READ_MOSTLY => said.read_mostly = true,
                advise::UNSET_READ_MOSTLY => said.read_mostly = false,
                advise::SET_PREFERRED_LOCATION => said.preferred = device,
                advise::UNSET_PREFERRED_LOCATION => said.preferred = INVALID_DEVICE,
                advise::SET_ACCESSED_BY => drop(said.accessed_by.insert(device)),
                _ => drop(said.accessed_by.remove(&device)),
            }
        }
    }

    /// A range was prefetched.
    pub fn prefetched(&mut self, start: u64, bytes: u64, device: c_int) {
        pages(start, bytes).for_each(|page| self.0.entry(page).or_default().prefetched = device);
    }

    /// What was said about each page of a range.
    pub fn of(&self, start: u64, bytes: u64) -> Vec<Said> {
        pages(start, bytes).map(|page| self.0.get(&page).cloned().unwrap_or_default()).collect()
    }

    /// Forgets it: the memory is gone.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        pages(start, bytes).for_each(|page| drop(self.0.remove(&page)));
    }
}
