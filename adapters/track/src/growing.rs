//! A table that grows while threads read it, and never moves an element.
//!
//! Promises upward: an index costs a look at the segment that has it; a segment is made by the first caller that needs
//! it, and stays until the table is dropped.
//! Asks from below: memory from an allocator; where that has none, the table stays as it is.
//!
//! Invariant: segment `k` has 2^k elements, those with the indices 2^k - 1 to 2^(k+1) - 2.

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use spin::once::Once;

/// Number of segments: 2^12 - 1 = 4095 elements, more than a program has threads or tags that a person reads.
const SEGMENTS: usize = 12;

/// Most elements of a table.
pub(crate) const MOST: usize = (1 << SEGMENTS) - 1;

/// Elements by index, made when they are first needed.
pub(crate) struct GrowingTable<T, A: Allocator> {
    segments: [Once<Box<[T], A>>; SEGMENTS],
}

impl<T, A: Allocator> Default for GrowingTable<T, A> {
    fn default() -> Self {
        Self { segments: [const { Once::new() }; SEGMENTS] }
    }
}

impl<T: Default, A: Allocator + Clone> GrowingTable<T, A> {
    /// The element at an index, if its segment is made.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let segment = (index + 1).ilog2() as usize;
        self.segments.get(segment)?.get()?.get(index + 1 - (1 << segment))
    }

    /// The element at an index; makes its segment. `None` beyond [`MOST`], and where there is no memory.
    #[inline]
    pub(crate) fn get_or_make(&self, index: usize, memory: &A) -> Option<&T> {
        self.get(index).or_else(|| self.make(index, memory))
    }

    #[cold]
    fn make(&self, index: usize, memory: &A) -> Option<&T> {
        let segment = (index + 1).ilog2() as usize;
        let made = self.segments.get(segment)?.try_call_once(|| {
            let mut elements = Vec::new_in(memory.clone());
            elements.try_reserve_exact(1 << segment).map_err(|_| ())?;
            elements.resize_with(1 << segment, T::default);
            Ok::<_, ()>(elements.into_boxed_slice())
        });
        made.ok()?.get(index + 1 - (1 << segment))
    }

    /// All elements that are made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().filter_map(Once::get).flat_map(|elements| elements.iter())
    }

    /// One more than the highest index that is made.
    pub(crate) fn end(&self) -> usize {
        let made = self.segments.iter().rposition(Once::is_completed);
        made.map_or(0, |segment| (2 << segment) - 1)
    }
}
