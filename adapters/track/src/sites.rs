//! Call stacks, each kept once.
//!
//! Promises upward: a call stack that was seen before costs a hash and a look-up; at most [`MOST_SITES`] are kept.
//! Asks from below: memory from an allocator; without any, blocks have no call stack.

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use spin::mutex::SpinMutex;

/// Most return addresses of a call stack that are kept.
pub const MAX_SITE_DEPTH: usize = 32;

/// Most call stacks of a tracker: 65,536 of 32 addresses are 16 MiB.
pub const MOST_SITES: usize = 1 << 16;

/// The call stacks of a tracker; the number of one is its index and one, since zero stands for none.
pub(crate) struct SiteTable<A: Allocator> {
    state: SpinMutex<SiteState<A>>,
}

struct SiteState<A: Allocator> {
    /// Numbers of stacks, by the hash of their addresses.
    numbers: HashTable<u32, A>,
    /// Where each stack ends in `addresses`; it begins where the one before ends.
    ends: Vec<u32, A>,
    addresses: Vec<u64, A>,
}

fn hash_of(stack: &[u64]) -> u64 {
    FixedState::default().hash_one(stack)
}

impl<A: Allocator> SiteState<A> {
    fn stack(&self, number: u32) -> &[u64] {
        let Some(at) = (number as usize).checked_sub(1) else { return &[] };
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.addresses[begin as usize..self.ends[at] as usize]
    }

    /// Makes room for one more stack.
    fn reserve(&mut self, addresses: usize) -> Result<(), ()> {
        let Self { numbers, ends, addresses: kept, .. } = self;
        let begin = |at: usize| at.checked_sub(1).map_or(0, |before| ends[before] as usize);
        let hash = |number: &u32| hash_of(&kept[begin(*number as usize - 1)..ends[*number as usize - 1] as usize]);
        numbers.try_reserve(1, hash).map_err(|_| ())?;
        ends.try_reserve(1).map_err(|_| ())?;
        kept.try_reserve(addresses).map_err(|_| ())
    }
}

impl<A: Allocator + Clone> SiteTable<A> {
    pub(crate) fn new(memory: &A) -> Self {
        let (ends, addresses) = (Vec::new_in(memory.clone()), Vec::new_in(memory.clone()));
        let state = SiteState { numbers: HashTable::new_in(memory.clone()), ends, addresses };
        Self { state: SpinMutex::new(state) }
    }

    /// The number of a call stack; zero if it is empty, or no more stacks can be kept.
    pub(crate) fn number_of(&self, stack: &[u64]) -> u32 {
        if stack.is_empty() {
            return 0;
        }
        let hash = hash_of(stack);
        let mut state = self.state.lock();
        if let Some(number) = state.numbers.find(hash, |number| state.stack(*number) == stack) {
            return *number;
        }
        if state.ends.len() >= MOST_SITES || state.reserve(stack.len()).is_err() {
            return 0;
        }
        state.addresses.extend_from_slice(stack);
        let end = state.addresses.len() as u32;
        state.ends.push(end);
        let SiteState { numbers, ends, .. } = &mut *state;
        let number = ends.len() as u32;
        // `reserve` made room: nothing is hashed again.
        numbers.insert_unique(hash, number, |_| hash);
        number
    }

    /// The return addresses of a call stack, innermost first.
    pub(crate) fn stack(&self, number: u32) -> alloc::vec::Vec<u64> {
        let mut found = alloc::vec::Vec::with_capacity(MAX_SITE_DEPTH);
        found.extend_from_slice(self.state.lock().stack(number));
        found
    }
}
