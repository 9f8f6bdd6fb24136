//! A scoped arena: many blocks inside one block of a parent, destroyed whole.
//!
//! Promises upward: closing a scope gives all of it back with one free, however many blocks live in it.
//! Asks from below: any [`Allocator`] as parent, and slots of its own.

use super::Range;
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, FreeError, Violation};
use crate::index::{GoodFit, Index, Slots};
use crate::stats::Stats;

/// An allocator inside one block of a parent.
///
/// # Example
/// ```
/// use terrace_core::{Allocator, GoodFit, Owner, Range, Request, Scope, Slot};
/// let mut slots = [Slot::EMPTY; 16];
/// let mut parent = Range::new(&mut slots[..], 64, GoodFit::new())?;
/// parent.add_region(0, 1 << 16)?;
/// let mut scope = Scope::open(&mut parent, Request::new(4096), vec![Slot::EMPTY; 16], 64, GoodFit::new())?;
/// let inner = scope.allocate(Request::new(100))?;
/// assert!(inner.address >= scope.whole().address);
/// scope.close(&mut parent, Owner(0)).map_err(|(_, error)| error)?; // 100 bytes still live: gone with the scope
/// assert_eq!(parent.stats().in_use, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scope<S, I = GoodFit> {
    range: Range<S, I>,
    whole: Block,
}

impl<S: Slots, I: Index> Scope<S, I> {
    /// Takes one block from `parent` and makes it a range of its own.
    ///
    /// # Errors
    /// What the parent says, or [`Range::add_region`]: the block is given back then.
    pub fn open<P: Allocator>(
        parent: &mut P,
        request: Request,
        slots: S,
        granule: u64,
        index: I,
    ) -> Result<Self, AllocError> {
        let mut range = Range::new(slots, granule, index)?;
        let whole = parent.allocate(request.align(request.align.max(granule)))?;
        let bytes = whole.bytes & !(granule - 1);
        match range.add_region(whole.address, bytes) {
            Ok(_) => Ok(Self { range, whole }),
            Err(error) => {
                // The parent gave this block a moment ago: it cannot refuse it.
                let _ = parent.free(whole, request.owner);
                Err(error)
            }
        }
    }

    /// Destroys the scope with everything in it: one free in the parent. Returns the slots.
    ///
    /// # Errors
    /// The scope itself, with the parent's [`FreeError`], when this is not the parent.
    #[allow(clippy::result_large_err, reason = "the scope itself comes back, to be closed where it belongs")]
    pub fn close<P: Allocator>(self, parent: &mut P, owner: Owner) -> Result<S, (Self, FreeError)> {
        match parent.free(self.whole, owner) {
            Ok(()) => Ok(self.range.into_slots()),
            Err(error) => Err((self, error)),
        }
    }

    /// The parent's block.
    pub fn whole(&self) -> Block {
        self.whole
    }
}

impl<S: Slots, I: Index> Allocator for Scope<S, I> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.range.allocate(request)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.range.free(block, owner)
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        self.range.resize(block, bytes)
    }

    fn stats(&self) -> Stats {
        self.range.stats()
    }

    fn check(&self) -> Result<(), Violation> {
        self.range.check()
    }
}
