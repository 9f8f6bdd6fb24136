//! An array of free blocks between its owner and a thread that steals them while the owner sleeps.
//!
//! Promises upward: a block that [`begin_steal`] and [`finish_steal`] take has no other holder, whatever the owner does
//! meanwhile, and wherever it stands; the owner's [`pop`] has no fence and no atomic read-modify-write.
//! Asks from below: [`Array`], so that loom runs this very file (`core/tests/loom_array.rs`); a barrier that every thread takes
//! part in, wherever it is (`membarrier`), between the two steps of the thief; that no two threads steal from an array at once,
//! and none while its owner changes it by anything else than [`pop`] and pushes.
//!
//! ```text
//! entries         | null | b b b b b b b v | ........ |      stolen: the null moves up to v's entry, in one exchange
//!                  floor                   top
//! the owner pops:  announces the top | reads the entry below it | lowers the top
//! the thief:       exchanges the entry below the top for null | barrier | reads what was announced, top and entry
//! ```
//!
//! The barrier cuts the owner's steps in two. A step after it sees the null, and finds the array empty. A pop that it cuts has
//! announced its top before, so that the thief leaves the block contested; one that has ended has lowered the top, and a later
//! push above it has filled the entry again. If the thief sees none of this, no other thread read v, and the owner cannot pop
//! below it. A contested block is settled by the owner, which is in no pop when it calls [`restore`].

/// What the protocol touches: the owner's top, the word it announces tops in, and the entries.
pub trait Array {
    /// The address of an entry, or of the one behind the last.
    type At: Copy + PartialOrd;
    /// A block.
    type Block: Copy;

    /// The entry that the next freed block is written to.
    fn top(&self) -> Self::At;
    /// Lowers the top by one.
    fn lower(&self);
    /// The entry below another.
    fn below(at: Self::At) -> Self::At;
    /// Announces a top, with release ordering.
    fn announce(&self, top: Self::At);
    /// The top announced last, of any array of the owner's, with acquire ordering.
    fn announced(&self) -> Self::At;
    /// Reads an entry.
    fn load(&self, at: Self::At) -> Option<Self::Block>;
    /// Writes a block into an entry.
    fn store(&self, at: Self::At, block: Self::Block);
    /// Exchanges an entry for null: what it held.
    fn take(&self, at: Self::At) -> Option<Self::Block>;
    /// Keeps the owner's steps in the order in which they are written; a barrier may cut them here.
    fn step(&self);
}

/// Pops the block freed last; for the owner.
#[inline(always)]
pub fn pop<A: Array>(array: &A) -> Option<A::Block> {
    let top = array.top();
    #[cfg(not(terrace_seeded_bug = "array_pop_unannounced"))]
    array.announce(top);
    array.step();
    let block = array.load(A::below(top))?;
    array.step();
    array.lower();
    Some(block)
}

/// The uppermost block, which is being stolen, and its entry.
pub struct Stolen<A: Array> {
    pub entry: A::At,
    pub block: A::Block,
}

/// Begins to steal all blocks, the uppermost and those below it; `None` without any.
///
/// The barrier must come next.
pub fn begin_steal<A: Array>(array: &A) -> Option<Stolen<A>> {
    let entry = A::below(array.top());
    array.load(entry)?;
    array.take(entry).map(|block| Stolen { entry, block })
}

/// Finishes after the barrier.
///
/// `true`: the block and all below it are the caller's, and its entry is the new floor. `false`: it is contested, and the
/// owner must settle it.
pub fn finish_steal<A: Array>(array: &A, taken: &Stolen<A>) -> bool {
    // First what was announced: a later announcement than the pop's tells that the pop lowered the top.
    let announced = array.announced();
    let top = array.top();
    A::below(announced) != taken.entry && top > taken.entry && array.load(taken.entry).is_none()
}

/// Restores a contested block, unless it was popped.
///
/// Must be called by the owner, or where there is none.
pub fn restore<A: Array>(array: &A, taken: &Stolen<A>) {
    if array.top() > taken.entry && array.load(taken.entry).is_none() {
        array.store(taken.entry, taken.block);
    }
}
