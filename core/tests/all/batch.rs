//! Batches: all or nothing, sizes grouped.

use terrace_core::{Allocator, Cause, GoodFit, Owner, Range, Request, Slot};

fn range(bytes: u64) -> Range<Vec<Slot>> {
    let mut range = Range::new(vec![Slot::EMPTY; 64], 64, GoodFit::new()).unwrap();
    range.add_region(0, bytes).unwrap();
    range
}

#[test]
fn a_batch_gives_every_request_its_block() {
    let mut range = range(1 << 16);
    let requests = [64, 1024, 64, 4096, 1024].map(Request::new);
    let mut blocks = [None; 5];
    range.allocate_batch(&requests, &mut blocks).unwrap();
    let sizes = blocks.map(|block| block.unwrap().bytes);
    assert_eq!(sizes, [64, 1024, 64, 4096, 1024]);
    range.check().unwrap();
    range.free_batch(&blocks.map(Option::unwrap), Owner(0)).unwrap();
    assert_eq!(range.stats().in_use, 0);
}

#[test]
fn sizes_of_a_batch_lie_side_by_side() {
    let mut range = range(1 << 16);
    let requests = [64, 1024, 64, 1024].map(Request::new);
    let mut blocks = [None; 4];
    range.allocate_batch(&requests, &mut blocks).unwrap();
    let [a, b, c, d] = blocks.map(|block| block.unwrap().address);
    assert_eq!((a.abs_diff(c), b.abs_diff(d)), (64, 1024));
}

#[test]
fn a_batch_that_fails_leaves_nothing_behind() {
    let mut range = range(8192);
    let before = range.stats();
    let requests = [4096, 64, 4096, 64].map(Request::new);
    let mut blocks = [None; 4];
    let error = range.allocate_batch(&requests, &mut blocks).unwrap_err();
    assert_eq!((error.cause, error.asked), (Cause::OutOfMemory, 64));
    assert_eq!(blocks, [None; 4]);
    assert_eq!((range.stats().in_use, range.stats().live_blocks), (before.in_use, 0));
    range.check().unwrap();
    let short = range.allocate_batch(&requests, &mut [None; 3]).unwrap_err();
    assert_eq!(short.cause, Cause::BadRequest);
}

#[test]
fn a_batch_of_frees_stops_at_the_first_that_is_refused() {
    let mut range = range(8192);
    let block = range.allocate(Request::new(64)).unwrap();
    let other = range.allocate(Request::new(64)).unwrap();
    let (at, _) = range.free_batch(&[block, block, other], Owner(0)).unwrap_err();
    assert_eq!((at, range.stats().live_blocks), (1, 1));
}
