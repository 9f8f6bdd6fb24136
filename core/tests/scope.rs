//! Scopes: arenas inside one block of a parent, destroyed whole.
#![cfg(not(loom))]

use terrace_core::{Allocator, BestFit, Branch, Cause, FreeError, GoodFit, Owner, Range, Request, Scope, Slot, Stats};

fn parent(bytes: u64) -> Range<Vec<Slot>> {
    let mut range = Range::new(vec![Slot::EMPTY; 16], 64, GoodFit::new()).expect("valid");
    range.add_region(1 << 20, bytes).expect("room");
    range
}

fn slots(count: usize) -> Vec<Slot> {
    vec![Slot::EMPTY; count]
}

#[test]
fn closing_a_scope_gives_all_of_it_back_with_one_free() {
    let mut parent = parent(1 << 16);
    let mut scope = Scope::open(&mut parent, Request::new(8192), slots(64), 16, GoodFit::new()).expect("room");
    let whole = scope.whole();
    let blocks: Vec<_> = (0..50).map(|n| scope.allocate(Request::new(1 + n)).expect("room")).collect();
    for block in &blocks {
        assert!(block.address >= whole.address && block.address + block.bytes <= whole.address + whole.bytes);
    }
    assert_eq!((parent.stats().live_blocks, scope.stats().live_blocks), (1, 50));
    let back = scope.close(&mut parent, Owner(0)).expect("this is its parent");
    assert_eq!((back.len(), parent.stats().frees, parent.stats().in_use), (64, 1, 0));
    parent.check().expect("every invariant holds");
}

#[test]
fn a_scope_is_full_when_its_block_is_though_the_parent_is_not() {
    let mut parent = parent(1 << 16);
    let mut scope = Scope::open(&mut parent, Request::new(1024), slots(64), 64, GoodFit::new()).expect("room");
    let count = std::iter::from_fn(|| scope.allocate(Request::new(64)).ok()).count();
    assert_eq!(count, 1024 / 64);
    assert_eq!(scope.allocate(Request::new(1)).expect_err("full").cause, Cause::OutOfMemory);
    assert!(parent.allocate(Request::new(1 << 14)).is_ok());
}

#[test]
fn scopes_nest_and_an_inner_one_goes_with_the_outer() {
    let mut parent = parent(1 << 16);
    let mut outer = Scope::open(&mut parent, Request::new(1 << 14), slots(8), 64, GoodFit::new()).expect("room");
    let index = BestFit::new(vec![Branch::EMPTY; 8]);
    let mut inner = Scope::open(&mut outer, Request::new(1 << 12), slots(8), 16, index).expect("room");
    let block = inner.allocate(Request::new(100)).expect("room");
    assert!(block.address >= outer.whole().address);
    outer.close(&mut parent, Owner(0)).expect("its parent");
    assert_eq!(parent.stats().in_use, 0, "the inner scope lay in the outer one");
}

#[test]
fn a_scope_that_cannot_open_leaves_its_parent_as_it_was() {
    let mut parent = parent(4096);
    let before = parent.stats();
    let cause = |result: Result<Scope<Vec<Slot>>, terrace_core::AllocError>| result.expect_err("refused").cause;
    let open = |parent: &mut _, bytes, count, granule| {
        Scope::open(parent, Request::new(bytes), slots(count), granule, GoodFit::new())
    };
    assert_eq!(cause(open(&mut parent, 8192, 8, 64)), Cause::OutOfMemory, "larger than the parent");
    assert_eq!(cause(open(&mut parent, 1024, 0, 64)), Cause::OutOfSlots, "no slot for its region");
    assert_eq!(cause(open(&mut parent, 1024, 8, 48)), Cause::BadRequest, "48 is no power of two");
    assert_eq!(cause(open(&mut parent, 64, 8, 128)), Cause::BadRequest, "not one granule fits");
    let after = parent.stats();
    // What was handed out for a moment went back.
    assert_eq!(after.allocations - before.allocations, after.frees - before.frees);
    let same = Stats { in_use: before.in_use, live_blocks: before.live_blocks, ..after };
    assert_eq!(after, same);
    parent.check().expect("every invariant holds");
}

#[test]
fn a_scope_closed_with_the_wrong_parent_survives() {
    let (mut right, mut wrong) = (parent(4096), parent(4096));
    let mut scope = Scope::open(&mut right, Request::new(1024), slots(8), 64, GoodFit::new()).expect("room");
    let block = scope.allocate(Request::new(64)).expect("room");
    let (mut scope, error) = scope.close(&mut wrong, Owner(0)).expect_err("not its parent");
    assert!(matches!(error, FreeError::Foreign { .. }));
    scope.free(block, Owner(0)).expect("still live");
    scope.close(&mut right, Owner(0)).expect("its parent");
    assert_eq!(right.stats().in_use, 0);
}
