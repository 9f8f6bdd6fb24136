//! Room that is made at once for all that waits, and ahead of demand.

use crate::ledgers;

use ledgers::settings;
use ledgers::steps::{ask, finish_all, take, three, valid, waiting_request};
use ledgers::world::World;
use terrace_tiers::ledger::{Action, BufferId, LedgerEvent, PlacementHint};
use terrace_tiers::policy::PolicyKind;

fn copied(action: &Action) -> Option<BufferId> {
    if let Action::Copy { id, .. } = action { Some(*id) } else { None }
}

#[test]
fn room_is_made_for_all_requests_that_wait_at_once() {
    let mut world = three();
    let before: Vec<BufferId> = (0..5).map(|ticket| take(&mut world, ticket, 20)).collect();
    let began: Vec<BufferId> =
        (5..9).flat_map(|ticket| waiting_request(&mut world, ticket, 20)).filter_map(|action| copied(&action)).collect();
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
    (0..160).for_each(|ticket| _ = take(&mut world, ticket, 10));
    // A sixteenth of what came since the last tick: ten buffers.
    assert_eq!((world.ledger.tier(0).expect("a tier").leaving, world.granted.len()), (100, 160));
    finish_all(&mut world);
    assert_eq!(world.ledger.tier(0).expect("a tier").used, 1500);
    [250, 500].into_iter().for_each(|now| _ = world.tell(LedgerEvent::Tick { now }));
    (160..170).for_each(|ticket| _ = take(&mut world, ticket, 10));
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
    (4..9).for_each(|ticket| _ = take(&mut world, ticket, 20));
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
