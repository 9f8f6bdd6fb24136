//! Sources that fail: afterwards every model is consistent, goes on, and leaks nothing.

use crate::common;

use common::{Device, MIB, PythonRandom, Shadow, expandable};
use terrace_core::{Allocator, Cause, Owner, Request};
use terrace_models::{Bfc, Growing, PyTorch, Rmm, Segments};

/// Runs `steps` random operations; failures of the source are the only ones allowed when `unlimited`.
fn work(allocator: &mut impl Allocator, shadow: &mut Shadow, random: &mut PythonRandom, steps: usize) {
    for _ in 0..steps {
        if random.random() < 0.45 {
            if let Some((block, request)) = shadow.take(random.randrange(1 << 20)) {
                allocator.free(block, request.owner).unwrap();
            }
        } else {
            let request = Request::new(random.size(9.0, 25.0)).owner(Owner(random.randrange(2) as u32));
            match allocator.allocate(request) {
                Ok(block) => shadow.add(block, request),
                Err(error) => assert!(matches!(error.cause, Cause::OutOfMemory | Cause::SourceFailed), "{error}"),
            }
        }
        shadow.compare(allocator);
        if random.random() < 0.03 {
            allocator.trim();
            shadow.compare(allocator);
        }
    }
}

/// Frees everything; what the source still holds afterwards is a leak.
fn finish<A: Allocator, D: Device>(mut allocator: A, mut shadow: Shadow, device: fn(&mut A) -> &mut D) {
    device(&mut allocator).faults().stop();
    while let Some((block, request)) = shadow.take(0) {
        allocator.free(block, request.owner).unwrap();
    }
    allocator.trim();
    shadow.compare(&allocator);
    assert_eq!(allocator.stats().reserved, 0);
    assert_eq!(device(&mut allocator).leaks(), 0, "regions leaked");
}

/// Lets each of the first calls fail once, in a run of its own; then many at random.
fn exercise<A: Allocator, D: Device>(make: fn() -> A, device: fn(&mut A) -> &mut D) {
    for n in 1..=40 {
        let (mut allocator, mut shadow, mut random) = (make(), Shadow::default(), PythonRandom::new(n as u32));
        device(&mut allocator).faults().fail_call(n);
        work(&mut allocator, &mut shadow, &mut random, 120);
        finish(allocator, shadow, device);
    }
    let mut struck = 0;
    for seed in 0..20 {
        let (mut allocator, mut shadow, mut random) = (make(), Shadow::default(), PythonRandom::new(seed));
        device(&mut allocator).faults().fail_randomly(u64::from(seed), 0.3);
        work(&mut allocator, &mut shadow, &mut random, 150);
        struck += device(&mut allocator).faults().struck();
        finish(allocator, shadow, device);
    }
    assert!(struck > 30, "only {struck} failures were met");
}

#[test]
fn pytorch_survives() {
    exercise(|| PyTorch::new(Segments::new(256 * MIB)), PyTorch::source_mut);
    exercise(|| PyTorch::new(Growing::new(256 * MIB)), PyTorch::source_mut);
}

#[test]
fn pytorch_expandable_survives() {
    exercise(|| expandable(256 * MIB), PyTorch::source_mut);
}

#[test]
fn rmm_survives() {
    exercise(|| Rmm::new(Segments::new(256 * MIB)), Rmm::source_mut);
    exercise(|| Rmm::new(Growing::new(256 * MIB)), Rmm::source_mut);
}

#[test]
fn bfc_survives() {
    exercise(|| Bfc::new(Segments::new(256 * MIB)), Bfc::source_mut);
    exercise(|| Bfc::new(Growing::new(256 * MIB)), Bfc::source_mut);
}

#[test]
fn pytorch_reports_a_failure_of_the_source_without_releasing() {
    let mut pool = PyTorch::new(Segments::new(0));
    let block = pool.allocate(Request::new(2 * MIB)).unwrap();
    pool.free(block, Owner(0)).unwrap();
    pool.source_mut().fail_call(1);
    let error = pool.allocate(Request::new(30 * MIB)).unwrap_err();
    assert_eq!((error.cause, error.largest_free, pool.retries()), (Cause::SourceFailed, 20 * MIB, 0));
    assert_eq!((pool.stats().reserved, pool.stats().failed), (20 * MIB, 1));
    assert_eq!(pool.allocate(Request::new(30 * MIB)).unwrap().bytes, 30 * MIB);
}

#[test]
fn expandable_keeps_what_was_mapped_before_a_failure() {
    let mut pool = expandable(0);
    let blocks = [0; 9].map(|_| pool.allocate(Request::new(5 * MIB)).unwrap());
    // Live at the end: block 8 at [40, 45). Pages [0, 40) are unmapped, [45, 60) is free.
    for block in &blocks[..8] {
        pool.free(*block, Owner(0)).unwrap();
    }
    assert_eq!(pool.trim(), 40 * MIB);
    pool.free(blocks[8], Owner(0)).unwrap();
    // 65 MiB need the gap and more behind the tail: two maps, of which the second fails.
    pool.source_mut().fail_call(2);
    assert_eq!(pool.allocate(Request::new(65 * MIB)).unwrap_err().cause, Cause::SourceFailed);
    pool.check().unwrap();
    assert_eq!((pool.stats().reserved, pool.stats().largest_free), (60 * MIB, 60 * MIB));
    assert_eq!(pool.allocate(Request::new(65 * MIB)).unwrap().address, blocks[0].address);
    pool.check().unwrap();
}
