//! Layers: each keeps the contract of the allocator inside, and adds its own function.

use crate::model::{Regions, acts, drive};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_core::layer::{Limit, Locked, PageOwners, TenantShare, Tenants};
use terrace_core::pool::{BlockRecord, BucketArena, SegmentRecord, SizeClasses};
use terrace_core::{AllocError, Allocator, Block, Cause, FreeError, Owner, Request, SourceError};

type Arena = BucketArena<Regions, Vec<BlockRecord>, Vec<SegmentRecord>>;

/// Buckets over `capacity` bytes; blocks of 16 bytes and up, four sizes to the octave.
fn arena(capacity: u64) -> Arena {
    let (blocks, segments) = (vec![BlockRecord::default(); 1000], vec![SegmentRecord::default(); 500]);
    BucketArena::new(Regions::new(capacity, 0), SizeClasses::new(16, 4).expect("valid"), 4096, blocks, segments)
}

fn cause<T>(result: Result<T, AllocError>) -> Option<Cause> {
    result.err().map(|error| error.cause)
}

/// A raw mutex for tests: one bit, spun on.
struct Spin(AtomicBool);

// SAFETY: `lock` returns only after this thread turned false into true, and only `unlock` turns it back, so one holder
// at a time; Acquire and Release order their critical sections.
unsafe impl lock_api::RawMutex for Spin {
    #[allow(clippy::declare_interior_mutable_const, reason = "the initial value, as the trait wants it")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

// Limit.

#[test]
fn a_limit_counts_rounding_and_opens_again_after_a_free() {
    let mut limited = Limit::new(arena(1 << 20), 200);
    let first = limited.allocate(Request::new(100)).expect("112 of 200");
    assert_eq!(first.bytes, 112);
    assert_eq!(cause(limited.allocate(Request::new(89))), Some(Cause::OverLimit), "more than is left");
    assert_eq!(cause(limited.allocate(Request::new(81))), Some(Cause::OverLimit), "81 fits, its block of 96 does not");
    limited.check().expect("what was rounded over went back");
    assert_eq!((limited.stats().failed, limited.stats().capacity, limited.stats().in_use), (2, 200, 112));
    let second = limited.allocate(Request::new(80)).expect("192 of 200");
    limited.free(first, Owner(0)).expect("live");
    limited.free(second, Owner(0)).expect("live");
    let whole = limited.allocate(Request::new(192)).expect("all but 8");
    limited.set_cap(100);
    assert_eq!(cause(limited.allocate(Request::new(1))), Some(Cause::OverLimit), "above a lowered cap");
    limited.free(whole, Owner(0)).expect("live");
    assert!(limited.allocate(Request::new(1)).is_ok());
    assert!(limited.free(whole, Owner(0)).is_err());
    limited.check().expect("a refused free changes nothing");
}

#[test]
fn a_limit_checks_what_is_inside() {
    let mut arena = arena(1 << 20);
    arena.allocate(Request::new(100)).expect("room");
    arena.records_mut().0.fill(BlockRecord::default());
    let inside = arena.check().expect_err("the record of a live block is gone");
    assert_eq!(Limit::new(arena, 200).check(), Err(inside));
}

proptest! {
    #[test]
    fn a_limit_keeps_the_contract_and_its_cap(acts in acts(1000, 150), cap in 0u64..5000) {
        let mut limited = Limit::new(arena(1 << 20), cap);
        drive(&mut limited, &acts);
        // The inner peak may be a rounded block higher: one that was allocated and freed again.
        prop_assert!(limited.inner().stats().peak_in_use <= cap + 1280);
    }
}

// Locked.

#[test]
fn threads_share_a_locked_allocator_and_guards_give_everything_back() {
    let shared: Locked<Spin, Arena> = Locked::new(arena(1 << 20));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let shared = &shared;
            scope.spawn(move || {
                for turn in 1..500 {
                    let request = Request::new(thread * 100 + turn).owner(Owner(thread as u32));
                    let mut guard = shared.guard(request).expect("room");
                    assert!(guard.block().bytes >= request.bytes);
                    guard.resize(1).expect("within the block");
                    let (mut face, block) = (shared, shared.with(|inner| inner.allocate(request)).expect("room"));
                    face.free(block, request.owner).expect("live");
                }
            });
        }
    });
    let stats = shared.stats();
    assert_eq!((stats.live_blocks, stats.in_use, stats.allocations), (0, 0, 4 * 499 * 2));
    shared.check().expect("every invariant holds");
    assert!(shared.into_inner().trim() > 0);
}

#[test]
fn a_guard_whose_block_was_freed_by_hand_drops_quietly() {
    let shared: Locked<Spin, Arena> = Locked::new(arena(1 << 20));
    let guard = shared.guard(Request::new(10)).expect("room");
    (&shared).free(*guard.block(), Owner(0)).expect("by hand");
    drop(guard);
    assert_eq!(shared.stats().frees, 1);
}

proptest! {
    #[test]
    fn a_locked_allocator_keeps_the_contract(acts in acts(1000, 100)) {
        let mut locked: Locked<Spin, Arena> = Locked::new(arena(1 << 20));
        drive(&mut locked, &acts);
        drive(&mut &Locked::<Spin, Arena>::new(arena(1 << 20)), &acts);
    }
}

// Tenants.

const A: Owner = Owner(10);
const B: Owner = Owner(20);

fn zero_nothing(_: u64, _: u64) -> Result<(), SourceError> {
    Ok(())
}

#[test]
fn a_tenant_cannot_pass_its_cap_nor_take_what_others_were_promised() {
    let mut shares = [TenantShare::new(A, 800, 0), TenantShare::new(B, 1000, 400)];
    let mut notes = [0; 16];
    let pages = PageOwners::new(1 << 20, 4096, &mut notes);
    let mut tenants = Tenants::new(arena(1 << 20), zero_nothing, 1024, &mut shares, pages).expect("fair");
    let ask = |bytes, owner| Request::new(bytes).owner(owner);
    assert_eq!(cause(tenants.allocate(ask(640, A))), Some(Cause::OverLimit), "1024 - 640 < 400 promised to B");
    let a = tenants.allocate(ask(512, A)).expect("leaves B 512");
    assert_eq!(tenants.allocate(ask(200, A)).expect_err("leaves B 288").largest_free, 112);
    let b = tenants.allocate(ask(512, B)).expect("promised and more");
    assert_eq!(cause(tenants.allocate(ask(16, A))), Some(Cause::OverLimit), "nothing is left");
    assert_eq!(cause(tenants.allocate(ask(16, Owner(99)))), Some(Cause::OverLimit), "no share");
    assert_eq!(tenants.free(a, B), Err(FreeError::Foreign { address: a.address }), "not B's to free");
    tenants.check().expect("refusals change nothing");
    assert_eq!(tenants.shares().iter().map(TenantShare::used).collect::<Vec<_>>(), [512, 512]);
    tenants.free(b, B).expect("B's own");
    assert_eq!(cause(tenants.allocate(ask(200, A))), Some(Cause::OverLimit), "B's promise stands again");
    assert_eq!(cause(tenants.allocate(ask(1000, B))), Some(Cause::OverLimit), "A has 512");
    tenants.free(a, A).expect("A's own");
    assert_eq!(cause(tenants.allocate(ask(801, A))), Some(Cause::OverLimit), "above A's cap");
    assert_eq!(tenants.stats().failed, 7);
    tenants.check().expect("every invariant holds");
}

#[test]
fn shares_that_cannot_be_kept_are_refused() {
    let make = |capacity, mut shares: Vec<TenantShare>| {
        let mut notes = [];
        let pages = PageOwners::new(0, 4096, &mut notes);
        cause(Tenants::new(arena(1 << 20), zero_nothing, capacity, &mut shares, pages))
    };
    assert_eq!(make(100, vec![TenantShare::new(A, 100, 60), TenantShare::new(B, 100, 41)]), Some(Cause::OverLimit));
    assert_eq!(make(100, vec![TenantShare::new(A, 100, 60), TenantShare::new(B, 100, 40)]), None);
    assert_eq!(make(100, vec![TenantShare::new(A, 50, 51)]), Some(Cause::BadRequest));
    assert_eq!(make(100, vec![TenantShare::new(A, 50, 0), TenantShare::new(A, 50, 0)]), Some(Cause::BadRequest));
    assert_eq!(
        make(100, (0..257).map(|owner| TenantShare::new(Owner(owner), 1, 0)).collect()),
        Some(Cause::BadRequest)
    );
    assert_eq!(make(100, (0..256).map(|owner| TenantShare::new(Owner(owner), 1, 0)).collect()), None);
}

#[test]
fn a_block_that_cannot_be_zeroed_is_not_handed_over() {
    let mut shares = [TenantShare::new(A, 4096, 0), TenantShare::new(B, 4096, 0)];
    let mut notes = [0; 16];
    let pages = PageOwners::new(1 << 20, 4096, &mut notes);
    let works = Cell::new(false);
    let zero = |_, _| if works.get() { Ok(()) } else { Err(SourceError::Failed { code: 1 }) };
    let mut tenants = Tenants::new(arena(1 << 20), zero, 8192, &mut shares, pages).expect("fair");
    let block = tenants.allocate(Request::new(100).owner(A)).expect("fresh memory is not zeroed");
    tenants.free(block, A).expect("A's own");
    let again = tenants.allocate(Request::new(100).owner(A)).expect("its own memory is not zeroed");
    tenants.free(again, A).expect("A's own");
    assert_eq!(cause(tenants.allocate(Request::new(100).owner(B))), Some(Cause::SourceFailed));
    assert_eq!((tenants.stats().in_use, tenants.shares()[1].used()), (0, 0));
    tenants.check().expect("it went back");
    works.set(true);
    assert_eq!(tenants.allocate(Request::new(100).owner(B)).expect("zeroed").address, block.address);
}

proptest! {
    /// Each tenant fills its blocks with its own number, and must find only zeroes and that number in new blocks.
    #[test]
    fn no_tenant_ever_reads_what_another_wrote(
        acts in prop::collection::vec((0..3u8, 1..3000u64, any::<usize>()), 1..150),
        page_bits in 4u32..16,
        pages in prop_oneof![Just(0usize), 0usize..200, Just(8192usize)],
    ) {
        const BASE: u64 = 1 << 20;
        let memory = RefCell::new(vec![0u8; 2 << 20]);
        let zeroed = Cell::new(0);
        let place = |address: u64, bytes: u64| (address - BASE) as usize..(address - BASE + bytes) as usize;
        let zero = |address, bytes| {
            zeroed.set(zeroed.get() + bytes);
            memory.borrow_mut()[place(address, bytes)].fill(0);
            Ok(())
        };
        let mut shares = [TenantShare::new(Owner(1), 20_000, 5000), TenantShare::new(Owner(2), 30_000, 0), TenantShare::new(Owner(3), 9000, 9000)];
        let mut notes = vec![7u16; pages];
        let table = PageOwners::new(BASE, 1 << page_bits, &mut notes);
        // A small source that does not reuse addresses after a trim, so that tenants often get each other's memory.
        let mut tenants = Tenants::new(arena(1 << 16), zero, 40_000, &mut shares, table).expect("fair");
        let mut live: Vec<(Block, Owner)> = Vec::new();
        for (who, bytes, at) in acts {
            let owner = Owner(u32::from(who) + 1);
            if at % 2 == 0 && !live.is_empty() {
                let (block, owner) = live.swap_remove(at / 2 % live.len());
                prop_assert!(tenants.free(block, Owner(owner.0 % 3 + 1)).is_err(), "not theirs");
                tenants.free(block, owner).expect("their own");
            } else if let Ok(block) = tenants.allocate(Request::new(bytes).owner(owner)) {
                let mut memory = memory.borrow_mut();
                let seen = &mut memory[place(block.address, block.bytes)];
                prop_assert!(seen.iter().all(|byte| *byte == 0 || u32::from(*byte) == owner.0), "{owner:?} sees another");
                seen.fill(owner.0 as u8);
                live.push((block, owner));
            }
            tenants.check().expect("every invariant holds");
        }
        let mine: u64 = live.iter().map(|(block, _)| block.bytes).sum();
        prop_assert_eq!(tenants.stats().in_use, mine);
    }
}

#[test]
fn one_tenant_alone_with_a_table_is_never_zeroed_and_whole_pages_become_clean_again() {
    let zeroed = Cell::new(0);
    let zero = |_, bytes| {
        zeroed.set(zeroed.get() + bytes);
        Ok(())
    };
    let mut shares = [TenantShare::new(A, 1 << 20, 0), TenantShare::new(B, 1 << 20, 0)];
    let mut notes = [0; 16];
    let pages = PageOwners::new(1 << 20, 1024, &mut notes);
    let mut tenants = Tenants::new(arena(1 << 20), zero, 1 << 20, &mut shares, pages).expect("fair");
    let mut turn = |owner| {
        let block = tenants.allocate(Request::new(4096).owner(owner)).expect("room");
        tenants.free(block, owner).expect("their own");
        zeroed.replace(0)
    };
    assert_eq!([turn(A), turn(A), turn(B), turn(B), turn(A)], [0, 0, 4096, 0, 4096]);
}

#[test]
fn a_tenant_resizes_its_own_block_within_itself_only() {
    let mut shares = [TenantShare::new(A, 4096, 0), TenantShare::new(B, 4096, 0)];
    let mut notes = [0; 16];
    let pages = PageOwners::new(1 << 20, 4096, &mut notes);
    let mut tenants = Tenants::new(arena(1 << 20), zero_nothing, 8192, &mut shares, pages).expect("fair");
    let block = tenants.allocate(Request::new(100).owner(B)).expect("room");
    assert_eq!(cause(tenants.resize(block, block.bytes + 1)), Some(Cause::NoRoom));
    let resized = tenants.resize(block, 50).expect("shorter");
    assert_eq!(cause(tenants.resize(block, 50)), Some(Cause::NotLive));
    let stranger = Block { region: resized.region | 0xFF, ..resized };
    assert_eq!(cause(tenants.resize(stranger, 50)), Some(Cause::NotLive), "no such tenant");
    assert!(tenants.free(stranger, B).is_err());
    tenants.free(resized, B).expect("the new name is B's too");
    tenants.check().expect("every invariant holds");
}
