//! Buckets, with and without spill, and buckets that grow from a source, beside a list of what is live.
//!
//! The model of buckets is exact: it knows how many blocks each has, so it says of each request whether it must be
//! served and from which block size.
// sanitizer: none
// seeded-env: pool_loses_record
// seeded-env: pool_stray_write
// seeded-env: pool_source_overlaps
#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use terrace_core::pool::{BlockRecord, BucketArena, Buckets, SegmentRecord, SizeClasses};
use terrace_core::sync::{AtomicUsize, Ordering};
use terrace_core::{Allocator, Cause, FreeError, Owner, Request};
use terrace_fuzz::{FaultySource, Forgetful, bug};
use terrace_tests::{self as tests, Forgery, Model};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Bytes, log2 of the alignment.
    Allocate(u16, u8),
    Free(u8),
    FreeDead(u8),
    FreeForged(u8, u8),
    Resize(u8, u16),
    Trim,
}

/// Blocks of 16, 20, 24, 28, 32, .. bytes (four steps to the octave), in this many each.
const COUNTS: [u32; 12] = [3, 1, 2, 1, 4, 1, 70, 1, 2, 2, 1, 1];

/// The suite's step. Alignments are below `1 << bits`, requests below `most`.
fn suite(step: &Step, most: u64, bits: u8) -> tests::Step {
    match *step {
        Step::Allocate(bytes, log) => {
            let request = Request::new(u64::from(bytes) % most).align(1 << (log % bits));
            if request.bytes == 0 { tests::Step::Bad(request) } else { tests::Step::Allocate(request) }
        }
        Step::Free(at) => tests::Step::Free(at.into(), None),
        Step::FreeDead(at) => tests::Step::FreeDead(at.into()),
        Step::FreeForged(at, how) => {
            let how = [Forgery::Slot, Forgery::Ticket, Forgery::FarSlot][usize::from(how) % 3];
            tests::Step::FreeForged(at.into(), how)
        }
        Step::Resize(at, bytes) => tests::Step::Resize(at.into(), bytes.into()),
        Step::Trim => tests::Step::Trim,
    }
}

/// A step, and what buckets promise beyond the contract.
fn play(model: &mut Model, allocator: &mut dyn Allocator, step: tests::Step) {
    let mut resized = None;
    match step {
        tests::Step::Resize(at, bytes) if !model.live().is_empty() => {
            let (old, _) = model.live()[at as usize % model.live().len()];
            // Within the block's own size, and never to nothing.
            resized = Some((old, (1..=old.bytes).contains(&bytes)));
        }
        tests::Step::FreeDead(at) if !model.dead().is_empty() => {
            let dead = model.dead()[at as usize % model.dead().len()];
            let stale = Err(FreeError::Stale { address: dead.address });
            assert_eq!(allocator.free(dead, Owner(0)), stale, "a double free is refused");
        }
        tests::Step::Bad(request) => {
            let error = allocator.allocate(request).expect_err("nothing was asked");
            assert_eq!(error.cause, Cause::BadRequest);
        }
        _ => {}
    }
    model.step(allocator, &step).expect("the contract");
    if let Some((old, fits)) = resized {
        assert_eq!(model.dead().last() == Some(&old), fits, "{step:?} of {old:?}");
        let new = model.live().last().map(|(block, _)| (block.address, block.bytes));
        assert!(!fits || new == Some((old.address, old.bytes)), "{new:?} of {old:?}");
    }
}

/// Sizes of the buckets, found the slow way.
fn sizes(steps: SizeClasses) -> Vec<u64> {
    (0..COUNTS.len() as u32).filter_map(|class| steps.size(class)).collect()
}

fn buckets(steps: &[Step], spill: bool) {
    let words: Vec<AtomicUsize> = (0..Buckets::words(&COUNTS)).map(|_| AtomicUsize::new(0)).collect();
    let table = SizeClasses::new(16, 4).expect("valid");
    let sizes = sizes(table);
    let buckets = Buckets::new(table, COUNTS, 1 << 20, &words).expect("enough words");
    let mut buckets = if spill { buckets.with_spill() } else { buckets };
    let mut model = Model::new(&buckets);
    for (n, step) in steps.iter().enumerate() {
        let (step, before) = (suite(step, 160, 7), model.live().len());
        let expected = match step {
            tests::Step::Allocate(Request { bytes, align, .. }) => {
                let fits = |size: &&u64| **size >= bytes && **size % align == 0;
                let room = |size: &u64| {
                    let class = sizes.iter().position(|other| other == size).expect("one of them");
                    model.live().iter().filter(|(block, _)| block.bytes == *size).count() < COUNTS[class] as usize
                };
                let mut able = sizes.iter().filter(fits);
                if spill { able.find(|size| room(size)) } else { able.next().filter(|size| room(size)) }
            }
            _ => None,
        };
        play(&mut model, &mut buckets, step);
        if let tests::Step::Allocate(request) = step {
            let served = model.live().get(before).map(|(block, _)| &block.bytes);
            assert_eq!(served, expected, "{request:?}");
        }
        if bug("pool_stray_write") && n == 20 {
            // A bit of the first bucket's map, which the caller lent and must leave alone.
            words[0].fetch_xor(2, Ordering::Relaxed);
            buckets.check().expect("every invariant holds");
        }
    }
    model.finish(&mut buckets, false).expect("the contract");
}

fn growing(steps: &[Step]) {
    let source = FaultySource::new(64 << 10, "pool_source_overlaps");
    let blocks = Forgetful::new(60, "pool_loses_record", BlockRecord::default);
    let segments = Forgetful::new(12, "", SegmentRecord::default);
    let mut arena = BucketArena::new(source, SizeClasses::new(16, 4).expect("valid"), 4096, blocks, segments);
    let mut model = Model::new(&arena);
    steps.iter().for_each(|step| play(&mut model, &mut arena, suite(step, 12_000, 13)));
    model.finish(&mut arena, false).expect("the contract");
    assert_eq!(arena.stats().reserved, 0, "everything went back");
}

fuzz_target!(|input: Input| {
    let steps = &input.steps[..input.steps.len().min(200)];
    match input.kind % 3 {
        0 => buckets(steps, false),
        1 => buckets(steps, true),
        _ => growing(steps),
    }
});
