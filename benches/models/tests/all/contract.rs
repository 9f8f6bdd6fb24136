//! Every model under random operations: the allocator contract, the counters, and names that are no longer valid.

use crate::common;

use common::{MIB, Shadow, on_every_model};
use proptest::prelude::*;
use terrace_core::{Allocator, Block, Cause, FreeError, Owner, Request};

/// One random step.
#[derive(Clone, Debug)]
enum Step {
    Allocate(Request),
    Free { pick: usize, owner: Option<u32> },
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    let request = (0..26u32, 0.0..1.0f64, 0..14u32, 0..3u32).prop_map(|(magnitude, fraction, align, owner)| {
        let bytes = ((1u64 << magnitude) as f64 * (1.0 + fraction)) as u64;
        // Most requests ask for no more than a device gives anyway.
        let align = if align < 9 { 1 << align } else { 1 << (2 * align - 9) };
        Step::Allocate(Request::new(bytes).align(align).owner(Owner(owner)))
    });
    let free =
        (any::<usize>(), prop::option::weighted(0.2, 0..3u32)).prop_map(|(pick, owner)| Step::Free { pick, owner });
    prop_oneof![6 => request, 5 => free, 1 => Just(Step::Trim)]
}

/// Plays the steps, comparing after each; frees what is left at the end.
fn play(name: &str, allocator: &mut dyn Allocator, steps: &[Step]) {
    let mut shadow = Shadow::default();
    let mut dead: Vec<Block> = Vec::new();
    for step in steps {
        match *step {
            Step::Allocate(request) => match allocator.allocate(request) {
                Ok(block) => shadow.add(block, request),
                Err(error) => assert_eq!(error.asked, request.bytes),
            },
            Step::Free { pick, owner } => {
                let Some((block, request)) = shadow.take(pick) else { continue };
                allocator.free(block, owner.map_or(request.owner, Owner)).unwrap();
                dead.push(block);
            }
            Step::Trim => {
                let before = allocator.stats().reserved;
                assert_eq!(allocator.trim(), before - allocator.stats().reserved);
            }
        }
        shadow.compare(allocator);
        for &block in &dead {
            assert_eq!(allocator.free(block, Owner(0)), Err(FreeError::Stale { address: block.address }), "{name}");
        }
    }
    while let Some((block, request)) = shadow.take(0) {
        allocator.free(block, request.owner).unwrap();
    }
    allocator.trim();
    shadow.compare(allocator);
    let stats = allocator.stats();
    assert_eq!((stats.in_use, stats.reserved, stats.largest_free), (0, 0, 0), "{name} keeps memory");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_model_keeps_the_contract(steps in prop::collection::vec(step(), 1..80)) {
        on_every_model(96 * MIB, &mut |name, allocator| play(name, allocator, &steps));
    }
}

#[test]
fn bad_requests_are_refused_and_counted() {
    on_every_model(64 * MIB, &mut |name, allocator| {
        let cause = |request: Request, allocator: &mut dyn Allocator| allocator.allocate(request).unwrap_err().cause;
        assert_eq!(cause(Request::new(0), allocator), Cause::BadRequest, "{name}");
        assert_eq!(cause(Request::new(8).align(3), allocator), Cause::BadRequest, "{name}");
        assert_eq!(cause(Request::new(8).align(0), allocator), Cause::BadRequest, "{name}");
        assert_eq!(cause(Request::new(u64::MAX), allocator), Cause::TooLarge, "{name}");
        assert_eq!(cause(Request::new(2).align(1 << 63), allocator), Cause::TooLarge, "{name}");
        assert_eq!(cause(Request::new(65 * MIB), allocator), Cause::TooLarge, "{name}");
        let stats = allocator.stats();
        assert_eq!((stats.failed, stats.allocations, stats.reserved), (6, 0, 0), "{name}");
    });
}

#[test]
fn foreign_names_are_refused() {
    on_every_model(0, &mut |name, allocator| {
        let block = allocator.allocate(Request::new(1000)).unwrap();
        let address = block.address;
        let foreign = Err(FreeError::Foreign { address });
        for wrong in [
            Block { slot: block.slot + 100, ..block },
            Block { slot: u32::MAX, ..block },
            Block { ticket: 0, ..block },
            Block { ticket: block.ticket + 1, ..block },
            Block { bytes: block.bytes + 1, ..block },
            Block { bytes: u64::MAX, ..block },
        ] {
            assert_eq!(allocator.free(wrong, Owner(0)), foreign, "{name}: {wrong:?}");
        }
        let moved = Block { address: address + (1 << 40), ..block };
        assert_eq!(allocator.free(moved, Owner(0)), Err(FreeError::Foreign { address: moved.address }));
        allocator.check().unwrap();
        assert_eq!((allocator.stats().live_blocks, allocator.stats().frees), (1, 0), "{name}");
        allocator.free(block, Owner(0)).unwrap();
    });
}

#[test]
fn metadata_grows_with_the_records() {
    on_every_model(0, &mut |name, allocator| {
        let small = allocator.stats().metadata;
        for _ in 0..100 {
            allocator.allocate(Request::new(4096)).unwrap();
        }
        let stats = allocator.stats();
        assert!(stats.metadata >= small + 100 * 32, "{name}: {} bytes for 100 blocks", stats.metadata - small);
        assert_eq!((stats.peak_live_blocks, stats.capacity), (100, 0), "{name}");
    });
}
