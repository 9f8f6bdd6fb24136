//! Slots of a range: exhaustion, lending more, and stale handles.

use terrace_core::{
    Allocator, BestFit, Block, Branch, Cause, FirstFit, Fit, FreeError, GoodFit, LendError, LentSlots, Owner, Range,
    Request, Slot, Stats, WorstFit,
};

/// A range of one region with `count` slots.
fn range(count: usize) -> Range<Vec<Slot>> {
    let mut range = Range::new(vec![Slot::EMPTY; count], 64, GoodFit::new()).expect("valid");
    range.add_region(0, 1 << 20).expect("room");
    range
}

fn fill(range: &mut impl Allocator) -> Vec<Block> {
    std::iter::from_fn(|| range.allocate(Request::new(64)).ok()).collect()
}

#[test]
fn running_out_of_slots_changes_nothing_and_a_free_brings_one_back() {
    let mut range = range(8);
    let mut blocks = fill(&mut range);
    assert_eq!(blocks.len(), 7, "one slot is the region's");
    let before = range.stats();
    let error = range.allocate(Request::new(64)).expect_err("no slot");
    assert_eq!((error.cause, error.asked), (Cause::OutOfSlots, 64));
    assert_eq!(range.stats(), Stats { failed: before.failed + 1, ..before });
    let whole = range.find_free(64).expect("most is free");
    assert_eq!(range.claim(&whole, whole.start, 64).expect_err("no slot").cause, Cause::OutOfSlots);
    assert_eq!(range.add_region(1 << 20, 64).expect_err("no slot").cause, Cause::OutOfSlots);
    range.check().expect("nothing changed");
    // Freeing and resizing need none, in any order.
    for at in [3, 0, 2, 1, 0, 0, 0] {
        let last = blocks.len() - 1;
        blocks[last] = range.resize(blocks[last], 64).expect("the same size");
        range.free(blocks.remove(at % (last + 1)), Owner(0)).expect("live");
        range.check().expect("every invariant holds");
    }
    assert_eq!(range.slots_left(), 7);
    assert_eq!(fill(&mut range).len(), 7);
}

#[test]
fn a_range_without_slots_refuses_its_first_region() {
    let mut none = Range::new([Slot::EMPTY; 0].to_vec(), 64, GoodFit::new()).expect("valid");
    assert_eq!(none.add_region(0, 64).expect_err("no slot").cause, Cause::OutOfSlots);
    assert_eq!(none.allocate(Request::new(1)).expect_err("nothing").cause, Cause::OutOfMemory);
    let mut one = Range::new([Slot::EMPTY; 1].to_vec(), 64, GoodFit::new()).expect("valid");
    assert_eq!(one.add_space(0, 64).expect_err("a space needs two").cause, Cause::OutOfSlots);
    one.add_region(0, 64).expect("one slot");
    assert_eq!(one.allocate(Request::new(1)).expect_err("no slot left").cause, Cause::OutOfSlots);
}

#[test]
fn trees_need_a_branch_for_each_slot() {
    let branches = |count| vec![Branch::EMPTY; count];
    let slots = || vec![Slot::EMPTY; 8];
    let cause = |result: Result<(), terrace_core::AllocError>| result.map_err(|error| error.cause);
    assert_eq!(cause(Range::new(slots(), 64, BestFit::new(branches(7))).map(|_| ())), Err(Cause::OutOfSlots));
    assert_eq!(cause(Range::new(slots(), 64, WorstFit::new(branches(7))).map(|_| ())), Err(Cause::OutOfSlots));
    assert_eq!(cause(Range::new(slots(), 64, FirstFit::new(branches(7))).map(|_| ())), Err(Cause::OutOfSlots));
    assert_eq!(cause(Range::new(slots(), 64, BestFit::new(branches(8))).map(|_| ())), Ok(()));
    assert_eq!(cause(Range::new(slots(), 48, GoodFit::new()).map(|_| ())), Err(Cause::BadRequest), "48 bytes");
    assert_eq!(cause(Range::new(slots(), 0, GoodFit::new()).map(|_| ())), Err(Cause::BadRequest), "no granule");
}

#[test]
fn slots_lent_later_are_used_and_none_moves() {
    let (mut first, mut second, mut third) = ([Slot::EMPTY; 4], [Slot::EMPTY; 4], [Slot::EMPTY; 8]);
    let mut wrong = [Slot::EMPTY; 4];
    let mut range = Range::new(LentSlots::new(&mut first).expect("a power of two"), 64, GoodFit::new()).expect("valid");
    range.add_region(0, 1 << 16).expect("room");
    let mut blocks = fill(&mut range);
    assert_eq!(blocks.len(), 3);
    range.slots_mut().lend(&mut second).expect("as many again");
    blocks.extend(fill(&mut range));
    assert_eq!(blocks.len(), 7);
    assert_eq!(range.slots_mut().lend(&mut wrong), Err(LendError { expected: 8 }));
    range.slots_mut().lend(&mut third).expect("as many again");
    blocks.extend(fill(&mut range));
    assert_eq!(blocks.len(), 15);
    range.check().expect("every invariant holds");
    // Names from before the lending still name the same blocks.
    blocks.iter().for_each(|block| assert!(range.is_live(block)));
    blocks.into_iter().for_each(|block| range.free(block, Owner(0)).expect("live"));
    range.check().expect("every invariant holds");
    assert_eq!((range.stats().in_use, range.slots_left()), (0, 15));
}

#[test]
fn lent_slices_have_the_lengths_that_make_them_found() {
    assert_eq!(LentSlots::new(&mut [Slot::EMPTY; 3]).map(|_| ()), Err(LendError { expected: 4 }));
    assert_eq!(LentSlots::new(&mut []).map(|_| ()), Err(LendError { expected: 1 }));
    let error = LendError { expected: 4 }.to_string();
    assert!(error.contains("exactly 4 slots"), "{error}");
}

/// The three ways a name is wrong: never given, given and dead, of a slot that now has another block.
#[test]
fn stale_and_foreign_names_are_told_apart() {
    let mut range = range(8);
    let old = range.allocate(Request::new(100)).expect("room");
    let kept = range.allocate(Request::new(100)).expect("room");
    range.free(old, Owner(0)).expect("live");
    let new = range.allocate(Request::new(100)).expect("room");
    assert_eq!(new.slot, old.slot, "the slot is used again");
    let address = old.address;
    let stale = Err(FreeError::Stale { address });
    let foreign = Err(FreeError::Foreign { address });
    assert_eq!(range.free(old, Owner(0)), stale, "its slot has another block now");
    assert_eq!(range.free(Block { slot: kept.slot, ..old }, Owner(0)), stale, "another block's slot");
    assert_eq!(range.free(Block { slot: 5, ..old }, Owner(0)), foreign, "a slot never used");
    assert_eq!(range.free(Block { slot: u32::MAX, ..old }, Owner(0)), foreign, "a slot that is not there");
    assert_eq!(range.free(Block { ticket: 0, ..old }, Owner(0)), foreign, "no ticket");
    assert_eq!(range.free(Block { ticket: new.ticket + 1, ..old }, Owner(0)), foreign, "a ticket not given yet");
    assert!(range.free(Block { ticket: new.ticket | 1 << 62, ..new }, Owner(0)).is_err(), "no ticket so high");
    assert_eq!(range.free(Block { slot: 0, ..old }, Owner(0)), stale, "the region's slot");
    assert_eq!(range.resize(old, 10).expect_err("dead").cause, Cause::NotLive);
    assert!(range.is_live(&new) && range.is_live(&kept) && !range.is_live(&old));
    range.check().expect("nothing changed");
    assert_eq!((range.stats().live_blocks, range.stats().frees), (2, 1));
}

#[test]
fn what_can_never_fit_is_refused_as_such() {
    let mut range = range(8);
    let cause = |result: Result<Block, terrace_core::AllocError>| result.expect_err("refused").cause;
    assert_eq!(cause(range.allocate(Request::new(0))), Cause::BadRequest);
    assert_eq!(cause(range.allocate(Request::new(1).align(3))), Cause::BadRequest);
    assert_eq!(cause(range.allocate(Request::new(1).align(0))), Cause::BadRequest);
    assert_eq!(cause(range.allocate(Request::new(u64::MAX))), Cause::TooLarge);
    assert_eq!(cause(range.allocate(Request::new(1 << 38))), Cause::TooLarge, "2^32 granules of 64 bytes");
    assert_eq!(cause(range.allocate(Request::new((1 << 20) + 1))), Cause::OutOfMemory);
    let high = range.allocate_exact(Request::new(1).align(1 << 63));
    assert_eq!(high.map(|block| block.address), Ok(0), "0 is a multiple of everything");
    assert_eq!(cause(range.allocate_exact(Request::new(1).align(1 << 63))), Cause::OutOfMemory);
    assert_eq!(range.stats().failed, 7);
    range.check().expect("every invariant holds");
    assert_eq!(Fit::default(), Fit::Good);
}
