//! An array of free blocks that its owner pops from, and from which another thread steals while the owner sleeps.
//!
//! Promises upward: a block that [`begin_steal`] and [`finish_steal`] take has no other holder, whatever the owner does
//! meanwhile and wherever it was interrupted; the owner's [`pop`] has no fence and no atomic read-modify-write.
//! Asks from below: [`Array`], so that loom runs this very file (`core/tests/loom_array.rs`); a barrier (`membarrier`)
//! that every thread of the process executes at whatever instruction it is, between the thief's two steps. The caller
//! must see to it that no two threads steal from an array at once, and none while its owner changes it other than by
//! [`pop`] and pushes.
//!
//! ```text
//! entries         | null | b b b b b b b v | ........ |      stolen: one exchange makes v's entry null, the new floor
//!                  floor                   top
//! the owner pops:  announces the top | reads the entry below it | lowers the top
//! the thief:       exchanges the entry below the top for null | barrier | reads what was announced, top and entry
//! ```
//!
//! The barrier falls between two of the owner's steps. A pop that begins after it reads the null and finds the array
//! empty. A pop that the barrier interrupts has announced its top before, so the thief sees the announcement and leaves
//! v contested. A pop that ended before the barrier has lowered the top, which the thief sees; if a later push raised
//! the top again, the thief sees that the entry is not null. If the thief sees none of the three, the owner has not
//! read v and cannot pop below the null. The owner settles a contested block in [`restore`], which it calls while no
//! pop is under way.

use terrace_core::sync::seeded;

/// The state of the protocol: the owner's top, the tops that it announces, and the entries.
pub trait Array {
    /// The address of an entry, or the address just behind the last entry.
    type At: Copy + PartialOrd;
    /// A pointer to a free block.
    type Block: Copy;

    /// The entry that the next push writes to.
    fn top(&self) -> Self::At;
    /// Lowers the top by one entry.
    fn lower(&self);
    /// The entry just below `at`.
    fn below(at: Self::At) -> Self::At;
    /// Announces the top that a pop has read. A release store.
    fn announce(&self, top: Self::At);
    /// The top that the owner announced last, in any of its arrays. An acquire load.
    fn announced(&self) -> Self::At;
    /// Reads an entry; `None`: it is null.
    fn load(&self, at: Self::At) -> Option<Self::Block>;
    /// Writes a block into an entry.
    fn store(&self, at: Self::At, block: Self::Block);
    /// Exchanges an entry's block for null; returns the block.
    fn take(&self, at: Self::At) -> Option<Self::Block>;
    /// Keeps the compiler from reordering the owner's steps; the thief's barrier may fall here.
    fn step(&self);
}

/// Pops the block freed last. Only the owner may call this.
#[inline(always)]
pub fn pop<A: Array>(array: &A) -> Option<A::Block> {
    let top = array.top();
    if !seeded("array_pop_unannounced") {
        array.announce(top);
    }
    array.step();
    let block = array.load(A::below(top))?;
    array.step();
    array.lower();
    Some(block)
}

/// The uppermost block of an array, which is being stolen, and the entry that held it.
pub struct Stolen<A: Array> {
    pub entry: A::At,
    pub block: A::Block,
}

/// Begins to steal all blocks: exchanges the uppermost for null. `None` for an empty array.
///
/// The caller must execute the barrier next.
pub fn begin_steal<A: Array>(array: &A) -> Option<Stolen<A>> {
    let entry = A::below(array.top());
    array.load(entry)?;
    array.take(entry).map(|block| Stolen { entry, block })
}

/// Finishes a theft after the barrier.
///
/// `true`: the caller owns the block and all below it, and its entry is the new floor. `false`: the block is contested,
/// since the owner may have popped it, and the owner must settle it.
pub fn finish_steal<A: Array>(array: &A, taken: &Stolen<A>) -> bool {
    // Reads the announcement before the top: if the owner has announced a newer pop, the pop that read this block has
    // ended, so the top read next is the one that it lowered.
    let announced = array.announced();
    let top = array.top();
    A::below(announced) != taken.entry && top > taken.entry && array.load(taken.entry).is_none()
}

/// Puts a contested block back into its entry, unless the owner popped it.
///
/// Only the owner may call this, or any thread if the array has no owner.
pub fn restore<A: Array>(array: &A, taken: &Stolen<A>) {
    if array.top() > taken.entry && array.load(taken.entry).is_none() {
        array.store(taken.entry, taken.block);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Entry 0 holds the null at the floor; blocks are numbers, 0 is null.
    struct Numbers {
        entries: [Cell<u32>; 4],
        top: Cell<usize>,
        announced: Cell<usize>,
    }

    impl Numbers {
        /// Three blocks. The owner last announced a top that names no entry.
        fn full() -> Self {
            Self { entries: [0, 1, 2, 3].map(Cell::new), top: Cell::new(4), announced: Cell::new(100) }
        }
    }

    impl Array for Numbers {
        type At = usize;
        type Block = u32;

        fn top(&self) -> usize {
            self.top.get()
        }

        fn lower(&self) {
            self.top.set(self.top.get() - 1);
        }

        fn below(at: usize) -> usize {
            at.wrapping_sub(1)
        }

        fn announce(&self, top: usize) {
            self.announced.set(top);
        }

        fn announced(&self) -> usize {
            self.announced.get()
        }

        fn load(&self, at: usize) -> Option<u32> {
            Some(self.entries[at].get()).filter(|&block| block != 0)
        }

        fn store(&self, at: usize, block: u32) {
            self.entries[at].set(block);
        }

        fn take(&self, at: usize) -> Option<u32> {
            Some(self.entries[at].replace(0)).filter(|&block| block != 0)
        }

        fn step(&self) {}
    }

    /// Whether a thief owns the uppermost block if the owner takes these steps between the thief's two.
    fn is_stolen(owner: impl FnOnce(&Numbers)) -> bool {
        let array = Numbers::full();
        let taken = begin_steal(&array).expect("three blocks");
        assert_eq!((taken.entry, taken.block), (3, 3));
        owner(&array);
        finish_steal(&array, &taken)
    }

    #[test]
    fn a_block_is_stolen_only_if_its_owner_cannot_have_popped_it() {
        assert!(is_stolen(|_| {}), "the owner sleeps");
        assert!(!is_stolen(|array| assert_eq!(pop(array), None)), "a pop that found the null announced its top");
        assert!(!is_stolen(|array| array.announce(4)), "a pop of the block is under way");
        assert!(!is_stolen(Array::lower), "the block is popped");
        assert!(!is_stolen(|array| array.store(3, 7)), "and another pushed in its place");
    }
}
