//! A table that grows while threads read it, and never moves an element.
//!
//! Promises upward: an index costs a look at the segment that has it, and the first [`FIRST`] cost the least; a segment is
//! made by the first caller that needs it, and stays until the table is dropped.
//! Asks from below: memory from an allocator; where that has none, the table stays as it is.
//!
//! Invariant: segment 0 has the indices below [`FIRST`]; segment `k` from 1 on has as many elements as all before it
//! together, those from `FIRST << (k - 1)` on.

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use spin::once::Once;

/// Elements of the first segment, a power of two: the threads and the tags of most programs.
const FIRST: usize = 16;

/// Number of segments.
const SEGMENTS: usize = 9;

/// Most elements of a table: 4096, more than a program has threads or tags that a person reads.
pub(crate) const MOST: usize = FIRST << (SEGMENTS - 1);

/// Elements by index, made when they are first needed.
pub(crate) struct GrowingTable<T, A: Allocator> {
    segments: [Once<Box<[T], A>>; SEGMENTS],
}

/// The segment of an index from [`FIRST`] on, and the number of elements before that segment.
fn segment_of(index: usize) -> (usize, usize) {
    let power = index.ilog2();
    (1 + (power - FIRST.ilog2()) as usize, 1 << power)
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
        self.get_first(index).or_else(|| self.get_later(index))
    }

    /// The element at an index below [`FIRST`], if it is made.
    #[inline(always)]
    pub(crate) fn get_first(&self, index: usize) -> Option<&T> {
        self.segments[0].get()?.get(index)
    }

    /// As [`get`](Self::get), from [`FIRST`] on.
    fn get_later(&self, index: usize) -> Option<&T> {
        if index < FIRST {
            return None;
        }
        let (segment, before) = segment_of(index);
        self.segments.get(segment)?.get()?.get(index - before)
    }

    /// The element at an index; makes its segment. `None` from [`MOST`] on, and where there is no memory.
    #[inline]
    pub(crate) fn get_or_make(&self, index: usize, memory: &A) -> Option<&T> {
        self.get(index).or_else(|| self.make(index, memory))
    }

    #[cold]
    fn make(&self, index: usize, memory: &A) -> Option<&T> {
        let (segment, length) = if index < FIRST { (0, FIRST) } else { segment_of(index) };
        self.make_segment(segment, length, memory)?;
        self.get(index)
    }

    fn make_segment(&self, segment: usize, length: usize, memory: &A) -> Option<()> {
        let made = self.segments.get(segment)?.try_call_once(|| {
            let mut elements = Vec::new_in(memory.clone());
            elements.try_reserve_exact(length).map_err(|_| ())?;
            elements.resize_with(length, T::default);
            Ok::<_, ()>(elements.into_boxed_slice())
        });
        made.ok().map(drop)
    }

    /// All elements that are made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().filter_map(Once::get).flat_map(|elements| elements.iter())
    }

    /// One more than the highest index that is made.
    pub(crate) fn end(&self) -> usize {
        let made = self.segments.iter().rposition(Once::is_completed);
        made.map_or(0, |segment| FIRST << segment)
    }
}
