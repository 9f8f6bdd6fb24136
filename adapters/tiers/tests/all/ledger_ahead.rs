//! Room that is made at once for all that waits, and ahead of demand.

use crate::ledgers;

use ledgers::settings;
use ledgers::steps::{ask, finish_all, take, three, valid, waiting_request};
use ledgers::world::World;
use terrace_tiers::ledger::{Action, BufferId, LedgerEvent, PlacementHint, PrefetchStats};
use terrace_tiers::policy::PolicyKind;

/// Allocates a buffer, which is granted at once, and writes it: what was not used yet is spared.
fn written(world: &mut World, ticket: u64, bytes: u64) -> BufferId {
    let id = take(world, ticket, bytes);
    world.write(id, 0);
    id
}

fn copied(action: &Action) -> Option<BufferId> {
    if let Action::Copy { id, .. } = action { Some(*id) } else { None }
}

#[test]
fn room_is_made_for_all_requests_that_wait_at_once() {
    let mut world = three();
    let before: Vec<BufferId> = (0..5).map(|ticket| written(&mut world, ticket, 20)).collect();
    let began: Vec<BufferId> = (5..9)
        .flat_map(|ticket| waiting_request(&mut world, ticket, 20))
        .filter_map(|action| copied(&action))
        .collect();
    // At most half of the tier, and one buffer, leaves at a time: each as soon as a request waits for its room.
    assert_eq!(began, before[..3]);
    finish_all(&mut world);
    assert_eq!(world.granted.len(), 9, "all are served");
    assert_eq!((0..9).map(|ticket| world.granted[&ticket]).filter(|id| valid(&world, *id) == [0]).count(), 5);
}

#[test]
fn room_is_made_ahead_of_demand_and_no_longer_when_that_ends() {
    let mut settings = settings(1, &[1600, 10_000]);
    (settings.policy, settings.maintenance_budget, settings.ahead_from) = (PolicyKind::Lru, 0, 1600);
    let mut world = World::new(settings);
    (0..160).for_each(|ticket| _ = written(&mut world, ticket, 10));
    // A sixteenth of what came since the last tick: ten buffers.
    assert_eq!((world.ledger.tier(0).expect("a tier").leaving, world.granted.len()), (100, 160));
    finish_all(&mut world);
    assert_eq!(world.ledger.tier(0).expect("a tier").used, 1500);
    [250, 500].into_iter().for_each(|now| _ = world.tell(LedgerEvent::Tick { now }));
    (160..170).for_each(|ticket| _ = written(&mut world, ticket, 10));
    finish_all(&mut world);
    assert_eq!(world.ledger.tier(0).expect("a tier").used, 1600, "nothing came in the last ticks");
}

#[test]
fn room_is_made_for_all_promotions_that_wait_at_once() {
    let mut settings = settings(1, &[100, 1000]);
    (settings.policy, settings.maintenance_budget) = (PolicyKind::Lru, 0);
    let mut world = World::new(settings);
    let hint = PlacementHint { tier: Some(1), keep: false };
    (0..4).for_each(|ticket| _ = ask(&mut world, ticket, 20, 0, false, hint));
    (4..9).for_each(|ticket| _ = written(&mut world, ticket, 20));
    let left: Vec<usize> = (0..4)
        .map(|ticket| {
            let id = world.granted[&ticket];
            world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier").iter().filter_map(copied).count()
        })
        .collect();
    assert_eq!(left, [1, 1, 1, 0]);
    finish_all(&mut world);
    assert_eq!((0..4).filter(|ticket| valid(&world, world.granted[ticket]).contains(&0)).count(), 4);
}

#[test]
fn a_buffer_that_was_granted_and_not_used_yet_does_not_leave_for_requests_behind() {
    let mut world = three();
    (0..5).for_each(|ticket| _ = take(&mut world, ticket, 20));
    let began = (5..9).flat_map(|ticket| waiting_request(&mut world, ticket, 20));
    assert_eq!(began.filter_map(|action| copied(&action)).count(), 1, "for the first one only");
    finish_all(&mut world);
    assert_eq!(world.granted.len(), 9, "each takes its turn");
}

#[test]
fn a_file_tier_keeps_its_clean_copies() {
    let mut settings = settings(1, &[1600, 320]);
    (settings.policy, settings.maintenance_budget, settings.ahead_from) = (PolicyKind::Lru, 0, 320);
    let mut world = World::new(settings);
    let all: Vec<BufferId> = (0..32).map(|ticket| take(&mut world, ticket, 10)).collect();
    all.iter().for_each(|&id| _ = world.tell(LedgerEvent::Replicate { id, to: 1 }).expect("a tier"));
    finish_all(&mut world);
    assert_eq!(world.ledger.tier(1).expect("a tier").used, 320);
    assert!(all.iter().all(|id| valid(&world, *id) == [0, 1]), "each demotion is a drop");
}

/// Memory for five buffers of 20 bytes, which has as many, and four in files.
fn five_and_four() -> (World, Vec<BufferId>, Vec<BufferId>) {
    let mut settings = settings(1, &[100, 1000]);
    (settings.policy, settings.maintenance_budget) = (PolicyKind::Lru, 0);
    let mut world = World::new(settings);
    for ticket in 0..4 {
        let id = take(&mut world, ticket, 20);
        world.tell(LedgerEvent::Demote { id, to: 1 }).expect("a tier");
        finish_all(&mut world);
    }
    world.finished.clear();
    (4..9).for_each(|ticket| _ = take(&mut world, ticket, 20));
    let [below, above] = [0..4, 4..9].map(|tickets| tickets.map(|ticket| world.granted[&ticket]).collect());
    (world, above, below)
}

fn prefetch(world: &mut World, id: BufferId) {
    world.tell(LedgerEvent::Prefetch { id }).expect("live");
    finish_all(world);
}

#[test]
fn a_prefetch_evicts_others_but_none_that_was_prefetched_and_not_used() {
    let (mut world, above, below) = five_and_four();
    world.leased.extend(&above[1..]);
    prefetch(&mut world, below[0]);
    assert_eq!((valid(&world, below[0]), valid(&world, above[0])), (vec![0, 1], vec![1]));
    prefetch(&mut world, below[1]);
    assert_eq!(valid(&world, below[1]), [1], "all others are leased");
    assert_eq!(world.finished, [(below[0], 0, true), (below[1], 0, false)]);
    assert_eq!(world.ledger.prefetches(), PrefetchStats { unmet: 1, ..PrefetchStats::default() });
    world.used.insert(below[0]);
    prefetch(&mut world, below[1]);
    assert_eq!(
        (valid(&world, below[1]), valid(&world, below[0])),
        (vec![0, 1], vec![1]),
        "used, it leaves as any other"
    );
    assert_eq!(world.ledger.prefetches(), PrefetchStats { unmet: 1, met: 1, ..PrefetchStats::default() });
    // A request for which nothing else can leave takes the room all the same.
    waiting_request(&mut world, 9, 20);
    finish_all(&mut world);
    assert_eq!((valid(&world, below[1]), valid(&world, world.granted[&9])), (vec![1], vec![0]));
    assert_eq!(world.ledger.prefetches().wasted, 1);
}

#[test]
fn a_promotion_takes_over_the_prefetch_that_is_late() {
    let (mut world, above, below) = five_and_four();
    world.tell(LedgerEvent::Prefetch { id: below[0] }).expect("live");
    world.tell(LedgerEvent::Promote { id: below[0], to: 0 }).expect("a tier");
    assert_eq!(world.finished, [], "one answer for both");
    finish_all(&mut world);
    assert_eq!((world.finished.as_slice(), valid(&world, above[0])), (&[(below[0], 0, true)][..], vec![1]));
    assert_eq!(world.ledger.prefetches(), PrefetchStats { late: 1, ..PrefetchStats::default() });
}

#[test]
fn what_was_used_and_will_not_be_soon_is_the_first_to_leave() {
    let (mut world, above, below) = five_and_four();
    world.tell(LedgerEvent::Used { id: above[3] }).expect("live");
    prefetch(&mut world, below[0]);
    assert_eq!((valid(&world, above[3]), valid(&world, above[0])), (vec![1], vec![0]));
    world.tell(LedgerEvent::Used { id: below[0] }).expect("live");
    prefetch(&mut world, below[1]);
    assert_eq!(
        (valid(&world, below[0]), valid(&world, below[1]), valid(&world, above[0])),
        (vec![1], vec![0, 1], vec![0])
    );
    assert_eq!(world.ledger.prefetches(), PrefetchStats { met: 1, ..PrefetchStats::default() });
}

#[test]
fn a_prefetch_to_a_closed_tier_that_still_has_a_stale_copy_moves_nothing() {
    let mut world = World::new(settings(2, &[100, 100, 1000]));
    let id = take(&mut world, 0, 20);
    world.tell(LedgerEvent::Replicate { id, to: 1 }).expect("a tier");
    finish_all(&mut world);
    world.write(id, 1);
    world.finished.clear();
    // The lease keeps the stale copy where it is.
    world.leased.insert(id);
    world.tell(LedgerEvent::Resize { tier: 0, capacity: 0 }).expect("a tier");
    assert_eq!((valid(&world, id), world.ledger.tier(0).expect("a tier").used), (vec![1], 20));
    prefetch(&mut world, id);
    assert_eq!(world.finished, [(id, 1, true)], "it lies in memory");
}

#[test]
fn what_was_promoted_does_not_leave_ahead_of_demand_before_its_use() {
    let mut settings = settings(1, &[100, 1000]);
    (settings.policy, settings.maintenance_budget, settings.ahead_from) = (PolicyKind::Lru, 0, 100);
    let mut world = World::new(settings);
    let below = written(&mut world, 0, 20);
    world.tell(LedgerEvent::Demote { id: below, to: 1 }).expect("a tier");
    finish_all(&mut world);
    let above: Vec<BufferId> = (1..5).map(|ticket| written(&mut world, ticket, 20)).collect();
    world.leased.extend(&above);
    world.tell(LedgerEvent::Promote { id: below, to: 0 }).expect("a tier");
    finish_all(&mut world);
    assert_eq!(valid(&world, below), [0, 1], "the others are leased, and there shall be room for what comes next");
    world.used.insert(below);
    world.tell(LedgerEvent::Released { id: below }).expect("live");
    finish_all(&mut world);
    assert_eq!(valid(&world, below), [1], "once it was used it makes way");
}
