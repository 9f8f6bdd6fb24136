//! An array of free blocks between its thread and one that takes them away from it while it sleeps.
//!
//! Promises upward: a block that [`begin_steal`] and [`finish_steal`] take is nobody else's, whatever the owner does meanwhile, and
//! wherever it stands; the owner's [`pop`] has no fence and no atomic read-modify-write.
//! Asks from below: [`Array`], so that loom runs this very file (`core/tests/loom_array.rs`); a barrier that every thread takes
//! part in, wherever it is (`membarrier`), between [`begin_steal`] and [`finish_steal`]; that no two threads take from an array at once, and
//! none while its owner changes it by anything else than [`pop`] and pushes.
//!
//! ```text
//! places          | null | b b b b b b b v | ........ |      taken: the null moves up to v's place, in one exchange
//!                  floor                   top
//! the owner pops:  announces the top | reads the place below it | lowers the top
//! another takes:   exchanges the place below the top for null | barrier | reads what was announced, top and place
//! ```
//!
//! The barrier cuts the owner's steps in two. What follows it sees the null, and finds the array empty. A pop that it cuts has
//! announced its top before, so that the taker leaves the block in doubt; one that has ended has lowered the top, and a later
//! push above it has filled the place again. If none of this is seen, nobody read v but the taker, and nobody gets below it.
//! Where it is in doubt, the owner knows: it is not in the middle of a pop when it calls [`restore`].

/// What the protocol touches: the owner's top, the word it announces tops in, and the places.
pub trait Array {
    /// The name of a place, or of the one behind the last.
    type At: Copy + PartialOrd;
    /// A block.
    type Block: Copy;

    /// Where the next freed block goes.
    fn top(&self) -> Self::At;
    /// Lowers the top by one.
    fn lower(&self);
    /// The place below another.
    fn below(at: Self::At) -> Self::At;
    /// Announces a top. All that the owner did before comes before it.
    fn announce(&self, top: Self::At);
    /// What was announced last, of any array of the owner's. All that it did before is seen after.
    fn announced(&self) -> Self::At;
    /// What a place holds.
    fn load(&self, at: Self::At) -> Option<Self::Block>;
    /// Makes a place hold a block.
    fn store(&self, at: Self::At, block: Self::Block);
    /// Makes a place hold none: what it held.
    fn take(&self, at: Self::At) -> Option<Self::Block>;
    /// Where a barrier may cut the owner's steps: they are made in the order in which they are written.
    fn step(&self);
}

/// Takes the block freed last, for the owner.
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

/// A block that is about to be taken: its place, and it.
pub struct Stolen<A: Array> {
    pub place: A::At,
    pub block: A::Block,
}

/// Begins to take all blocks: the uppermost, and those below it. `None`: there are none. The barrier comes next.
pub fn begin_steal<A: Array>(array: &A) -> Option<Stolen<A>> {
    let place = A::below(array.top());
    array.load(place)?;
    array.take(place).map(|block| Stolen { place, block })
}

/// After the barrier: `true` when the block, and all below it, are the caller's, and its place is the new floor. `false`: the
/// owner settles it.
pub fn finish_steal<A: Array>(array: &A, taken: &Stolen<A>) -> bool {
    // First what was announced: a later announcement than the pop's tells that the pop lowered the top.
    let announced = array.announced();
    let top = array.top();
    A::below(announced) != taken.place && top > taken.place && array.load(taken.place).is_none()
}

/// Puts a block back that was in doubt, unless it was popped: the owner calls it, or a thread that knows that there is none.
pub fn restore<A: Array>(array: &A, taken: &Stolen<A>) {
    if array.top() > taken.place && array.load(taken.place).is_none() {
        array.store(taken.place, taken.block);
    }
}
