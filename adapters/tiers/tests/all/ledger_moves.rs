//! One test for each rule about moves, in the same world as the random runs.

use crate::ledgers;

use ledgers::settings;
use ledgers::steps::{ask, finish_all, take, three, valid, waiting_request, why};
use ledgers::world::World;
use terrace_core::pressure::Level;
use terrace_tiers::ledger::{
    Action, BufferId, CopyOutcome, LedgerEvent, PlacementHint, RefusalReason, Rejected, TenantQuota,
};
use terrace_tiers::policy::PolicyKind;

#[test]
fn the_least_used_goes_down_and_lower_tiers_make_way_first() {
    let mut world = three();
    let first = take(&mut world, 0, 100);
    let others: Vec<BufferId> = (1..3)
        .map(|ticket| {
            waiting_request(&mut world, ticket, 100);
            finish_all(&mut world);
            world.granted[&ticket]
        })
        .collect();
    assert_eq!((valid(&world, first), valid(&world, others[0]), valid(&world, others[1])), (vec![1], vec![1], vec![0]));
    // Both memory tiers are full: the second goes down only after the first has.
    let actions = waiting_request(&mut world, 3, 100);
    assert_eq!(actions, [Action::Copy { id: first, from: 1, to: 2 }]);
    finish_all(&mut world);
    assert_eq!((valid(&world, first), valid(&world, others[1])), (vec![2], vec![1]));
    assert!(world.granted.contains_key(&3));
}

#[test]
fn buffers_that_wait_for_room_below_leave_in_the_same_order() {
    let mut settings = settings(2, &[100, 100, 1000]);
    settings.policy = PolicyKind::Lru;
    let mut world = World::new(settings);
    let [first, second] = [0, 1].map(|ticket| take(&mut world, ticket, 50));
    ask(&mut world, 2, 100, 0, false, PlacementHint { tier: Some(1), keep: false });
    let below = world.granted[&2];
    waiting_request(&mut world, 3, 100);
    // The queue is served once more, and finds that all moves have begun.
    world.tell(LedgerEvent::Touch { id: below }).expect("live");
    finish_all(&mut world);
    let copied: Vec<BufferId> = world.actions.iter().filter_map(copied).collect();
    assert_eq!(copied, [below, first, second]);
}

fn copied(action: &Action) -> Option<BufferId> {
    if let Action::Copy { id, .. } = action { Some(*id) } else { None }
}

#[test]
fn room_that_another_buffer_took_meanwhile_is_not_given_twice() {
    let mut settings = settings(1, &[100, 40, 100, 1000]);
    settings.policy = PolicyKind::Lru;
    let mut world = World::new(settings);
    let [large, small] = [(0, 60), (1, 40)].map(|(ticket, bytes)| take(&mut world, ticket, bytes));
    for (ticket, tier) in [(2, 1), (3, 2)] {
        ask(&mut world, ticket, 40, 0, false, PlacementHint { tier: Some(tier), keep: false });
    }
    // The large one fits into tier 2 unless a buffer comes there from tier 1, which the small one needs empty.
    waiting_request(&mut world, 4, 100);
    finish_all(&mut world);
    assert_eq!(
        (valid(&world, large), valid(&world, small), valid(&world, world.granted[&4])),
        (vec![2], vec![1], vec![0])
    );
}

#[test]
fn a_clean_copy_below_makes_demotion_a_drop() {
    let mut world = three();
    let first = take(&mut world, 0, 80);
    world.tell(LedgerEvent::Replicate { id: first, to: 2 }).expect("a tier");
    finish_all(&mut world);
    assert_eq!((valid(&world, first), world.finished.pop()), (vec![0, 2], Some((first, 2, true))));
    assert_eq!(waiting_request(&mut world, 1, 80), [Action::Drop { id: first, tier: 0 }]);
    finish_all(&mut world);
    assert_eq!((valid(&world, first), valid(&world, world.granted[&1])), (vec![2], vec![0]));
    // Promoted again it keeps the lower copy; after a write that copy is stale, and it is copied down again.
    world.tell(LedgerEvent::Free { id: world.granted[&1] }).expect("live");
    world.tell(LedgerEvent::Promote { id: first, to: 0 }).expect("a tier");
    finish_all(&mut world);
    assert_eq!(valid(&world, first), [0, 2]);
    world.buffers.get_mut(&first).expect("live").newest = 1;
    world.copies.insert((first, 0), Some(1));
    world.tell(LedgerEvent::Wrote { id: first, tier: 0 }).expect("valid there");
    assert!(waiting_request(&mut world, 2, 80).contains(&Action::Copy { id: first, from: 0, to: 1 }));
}

#[test]
fn a_failed_copy_loses_nothing_and_is_not_tried_again_before_its_time() {
    let mut settings = settings(1, &[100, 1000]);
    (settings.backoff, settings.maintenance_budget) = (100, 0);
    let mut world = World::new(settings);
    let id = take(&mut world, 0, 100);
    waiting_request(&mut world, 1, 100);
    let copies = |world: &World| world.actions.iter().filter(|action| matches!(action, Action::Copy { .. })).count();
    // The tier is suspended for 100 after the first failure, 200 after the second; only ticks begin copies.
    for (tick, begun) in [(0, 1), (99, 1), (100, 2), (299, 2), (300, 3)] {
        world.tell(LedgerEvent::Tick { now: tick }).expect("time passes");
        assert_eq!(copies(&world), begun, "at {tick}");
        world.finish_all(|| CopyOutcome::Failed);
        assert_eq!(
            (valid(&world, id), world.ledger.tier(1).expect("a tier").suspended_until.is_some()),
            (vec![0], tick < 1000)
        );
    }
    world.tell(LedgerEvent::Tick { now: 700 }).expect("time passes");
    finish_all(&mut world);
    assert_eq!((valid(&world, id), world.granted.contains_key(&1)), (vec![1], true));
    // A success resets the backoff.
    waiting_request(&mut world, 2, 100);
    world.finish_all(|| CopyOutcome::Full);
    world.tell(LedgerEvent::Tick { now: 800 }).expect("time passes");
    assert_eq!(copies(&world), 6);
}

#[test]
fn a_buffer_that_met_a_lease_is_left_alone_until_it_is_given_back() {
    let mut settings = settings(1, &[100, 1000]);
    // The second tenant's buffers cannot leave tier 0.
    let mut above = TenantQuota::UNLIMITED;
    above.tier_caps[1] = 0;
    (settings.tenants, settings.policy) = (vec![TenantQuota::UNLIMITED, above], PolicyKind::Lru);
    let mut world = World::new(settings);
    let [first, second] = [0, 1].map(|ticket| take(&mut world, ticket, 50));
    let copy = |id| Action::Copy { id, from: 0, to: 1 };
    assert_eq!(ask(&mut world, 2, 50, 1, true, PlacementHint::default()), [copy(first)]);
    world.end(0, CopyOutcome::Leased);
    assert_eq!(world.pending.len(), 1, "another goes instead");
    world.end(0, CopyOutcome::Leased);
    assert!(world.pending.is_empty(), "no candidate is left");
    assert_eq!(world.tell(LedgerEvent::Released { id: second }), Ok(vec![copy(second)]));
    world.end(0, CopyOutcome::Done);
    // The drop after the copy meets a lease: both copies stay.
    world.end(0, CopyOutcome::Leased);
    assert_eq!((world.pending.len(), valid(&world, second)), (0, vec![0, 1]));
    let actions = world.tell(LedgerEvent::Tick { now: 1 }).expect("time passes");
    assert_eq!(actions, [copy(first)], "a tick ends deferrals, and it is the least recently used");
    finish_all(&mut world);
    assert!(world.granted.contains_key(&2));
}

#[test]
fn a_promotion_does_not_send_its_own_buffer_down() {
    let mut settings = settings(2, &[50, 50, 1000]);
    (settings.policy, settings.maintenance_budget) = (PolicyKind::Lru, 0);
    let mut world = World::new(settings);
    ask(&mut world, 0, 50, 0, false, PlacementHint { tier: Some(1), keep: false });
    let (low, high) = (world.granted[&0], take(&mut world, 1, 50));
    world.tell(LedgerEvent::Promote { id: low, to: 0 }).expect("a tier");
    finish_all(&mut world);
    assert_eq!((valid(&world, low), valid(&world, high)), (vec![0, 1], vec![2]));
}

#[test]
fn the_second_touch_within_the_window_promotes() {
    let mut world = three();
    let hint = PlacementHint { tier: Some(1), keep: false };
    let ids = [1, 2].map(|ticket| take(&mut world, ticket, 50));
    for id in ids {
        world.tell(LedgerEvent::Demote { id, to: 2 }).expect("a tier");
        finish_all(&mut world);
    }
    ask(&mut world, 3, 100, 0, false, hint);
    let full = take(&mut world, 4, 100);
    for (now, id) in [(0, ids[0]), (10_000, ids[1]), (10_001, ids[0])] {
        world.tell(LedgerEvent::Tick { now }).expect("time passes");
        assert!(world.tell(LedgerEvent::Touch { id }).expect("live").is_empty(), "the first touch, or too late");
    }
    world.tell(LedgerEvent::Tick { now: 20_000 }).expect("time passes");
    let actions = world.tell(LedgerEvent::Touch { id: ids[1] }).expect("live");
    assert_eq!(actions[0], Action::Copy { id: full, from: 0, to: 1 });
    finish_all(&mut world);
    assert_eq!((valid(&world, ids[1]), valid(&world, ids[0])), (vec![0, 2], vec![2]));
    // It takes two more touches to promote it again.
    world.tell(LedgerEvent::Demote { id: ids[1], to: 2 }).expect("a tier");
    finish_all(&mut world);
    assert!(world.tell(LedgerEvent::Touch { id: ids[1] }).expect("live").is_empty());
    assert!(!world.tell(LedgerEvent::Touch { id: ids[1] }).expect("live").is_empty());
}

#[test]
fn a_touch_never_sends_a_buffer_down() {
    let mut world = three();
    ask(&mut world, 0, 50, 0, false, PlacementHint { tier: Some(1), keep: false });
    let id = world.granted[&0];
    world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier");
    finish_all(&mut world);
    world.buffers.get_mut(&id).expect("live").newest = 1;
    world.copies.insert((id, 0), Some(1));
    world.tell(LedgerEvent::Wrote { id, tier: 0 }).expect("valid there");
    for _ in 0..4 {
        assert!(world.tell(LedgerEvent::Touch { id }).expect("live").is_empty());
    }
}

#[test]
fn maintenance_empties_from_80_to_60_percent_by_its_budget() {
    let mut settings = settings(1, &[100, 1000]);
    (settings.maintenance_budget, settings.policy) = (15, PolicyKind::Lru);
    let mut world = World::new(settings);
    for ticket in 0..79 {
        take(&mut world, ticket, 1);
    }
    assert_eq!(world.tell(LedgerEvent::Tick { now: 1 }), Ok(vec![]), "below 80 %");
    take(&mut world, 100, 1);
    let mut used = Vec::new();
    for now in 2..6 {
        world.tell(LedgerEvent::Tick { now }).expect("time passes");
        finish_all(&mut world);
        used.push(world.ledger.tier(0).expect("a tier").used);
    }
    assert_eq!(used, [65, 60, 60, 60]);
    assert_eq!(valid(&world, world.granted[&0]), [1], "the least used went");
    assert_eq!(valid(&world, world.granted[&100]), [0]);
    // It is done with: what comes now stays up to 80 % again.
    for ticket in 101..112 {
        take(&mut world, ticket, 1);
    }
    assert_eq!(world.tell(LedgerEvent::Tick { now: 6 }), Ok(vec![]), "71 of 100");
}

#[test]
fn a_tier_made_smaller_empties_itself_and_says_so() {
    let mut world = three();
    let ids: Vec<BufferId> = (0..4).map(|ticket| take(&mut world, ticket, 25)).collect();
    world.leased.insert(ids[0]);
    world.used.extend(&ids);
    let actions = world.tell(LedgerEvent::Resize { tier: 0, capacity: 0 }).expect("a tier");
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Copy { to: 1, .. })).count(), 3);
    finish_all(&mut world);
    let tier = world.ledger.tier(0).expect("a tier");
    assert_eq!((tier.used, tier.level), (25, Level::Critical), "a lease holds it");
    world.leased.clear();
    world.tell(LedgerEvent::Released { id: ids[0] }).expect("live");
    finish_all(&mut world);
    assert_eq!((world.ledger.tier(0).expect("a tier").used, world.levels[&0]), (0, Level::Normal));
}

#[test]
fn what_survives_a_power_cut_and_what_users_keep_stays() {
    let mut world = three();
    let hint = PlacementHint { tier: Some(1), keep: true };
    ask(&mut world, 0, 100, 0, false, hint);
    ask(&mut world, 1, 100, 0, false, PlacementHint { keep: false, ..hint });
    let (kept, other) = (world.granted[&0], world.granted[&1]);
    assert!(ask(&mut world, 2, 100, 0, true, PlacementHint { keep: false, ..hint }).contains(&Action::Copy {
        id: other,
        from: 1,
        to: 2
    }));
    finish_all(&mut world);
    world.tell(LedgerEvent::Synced { id: other, tier: 2 }).expect("valid there");
    world.buffers.get_mut(&other).expect("live").synced = Some(2);
    world.tell(LedgerEvent::Promote { id: other, to: 0 }).expect("a tier");
    finish_all(&mut world);
    assert_eq!(valid(&world, other), [0, 2]);
    // The request needs all of the file tier: its copy of `other` could be dropped if it were not synced.
    ask(&mut world, 3, 950, 0, false, PlacementHint::default());
    assert_eq!((why(&world, 3), valid(&world, other)), (RefusalReason::NoRoom, vec![0, 2]));
    assert_eq!(valid(&world, kept), [1]);
    world.tell(LedgerEvent::Free { id: world.granted[&2] }).expect("live");
    // The kept one is evicted when nothing else is enough.
    ask(&mut world, 4, 200, 0, false, PlacementHint { keep: false, ..hint });
    finish_all(&mut world);
    assert_eq!(valid(&world, kept), [2]);
}

#[test]
fn users_learn_how_their_move_requests_ended() {
    let mut world = three();
    let id = take(&mut world, 0, 80);
    assert_eq!(world.tell(LedgerEvent::Demote { id, to: 5 }), Err(Rejected::NoSuchTier));
    world.tell(LedgerEvent::Demote { id, to: 2 }).expect("a tier");
    finish_all(&mut world);
    assert_eq!((valid(&world, id), world.finished.pop()), (vec![2], Some((id, 2, true))));
    world.leased.insert(id);
    world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier");
    assert!(world.pending.is_empty() && world.finished.is_empty(), "it waits for the lease");
    world.leased.clear();
    world.tell(LedgerEvent::Released { id }).expect("live");
    finish_all(&mut world);
    assert_eq!((valid(&world, id), world.finished.pop()), (vec![0, 2], Some((id, 0, true))));
    let large = take(&mut world, 1, 150);
    world.tell(LedgerEvent::Promote { id: large, to: 0 }).expect("a tier");
    assert_eq!(world.finished.pop(), Some((large, 0, false)), "it will not be");
}

#[test]
fn promotions_wait_while_room_is_made_for_a_request_and_end_with_their_buffers() {
    let mut world = World::new(settings(1, &[100, 200]));
    take(&mut world, 0, 60);
    let hint = PlacementHint { tier: Some(1), keep: false };
    for ticket in [1, 2] {
        ask(&mut world, ticket, 10, 0, false, hint);
    }
    let [freed, promoted] = [1, 2].map(|ticket| world.granted[&ticket]);
    waiting_request(&mut world, 3, 90);
    for id in [freed, promoted] {
        let actions = world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier");
        assert_eq!(actions, [], "there is room for it, but some is being made for another");
    }
    let actions = world.tell(LedgerEvent::Free { id: freed }).expect("live");
    assert_eq!(actions, [Action::MoveFinished { id: freed, to: 0, satisfied: false }, Action::Forget { id: freed }]);
    finish_all(&mut world);
    assert_eq!(valid(&world, world.granted[&3]), [0], "and then it waits no more");
    assert_eq!(valid(&world, promoted), [0, 1]);
}

#[test]
fn a_buffer_granted_a_moment_ago_makes_way_for_the_next() {
    let mut settings = settings(2, &[100, 160]);
    settings.policy = PolicyKind::Lru;
    let mut world = World::new(settings);
    let leased = take(&mut world, 0, 20);
    world.leased.insert(leased);
    ask(&mut world, 1, 160, 0, false, PlacementHint { tier: Some(1), keep: false });
    for (ticket, bytes) in [(2, 90), (3, 60), (4, 80)] {
        assert_eq!(waiting_request(&mut world, ticket, bytes), []);
    }
    // No buffer could leave tier 0 for the first; for the third, the second can.
    let actions = world.tell(LedgerEvent::Free { id: world.granted[&1] }).expect("live");
    assert!(actions.contains(&Action::Copy { id: world.granted[&3], from: 0, to: 1 }), "{actions:?}");
    finish_all(&mut world);
    let [first, second, third] = [2, 3, 4].map(|ticket| valid(&world, world.granted[&ticket]));
    assert_eq!((first, second, third), (vec![1], vec![1], vec![0]));
}

#[test]
fn a_promotion_is_done_when_the_bytes_arrive_even_if_a_request_has_them_dropped_at_once() {
    let mut world = World::new(settings(1, &[100, 100]));
    ask(&mut world, 0, 60, 0, false, PlacementHint { tier: Some(1), keep: false });
    let id = world.granted[&0];
    world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier");
    assert_eq!(waiting_request(&mut world, 1, 50), []);
    world.end(0, CopyOutcome::Done);
    let drop = Action::Drop { id, tier: 0 };
    assert_eq!((&world.finished[..], world.actions.last()), (&[(id, 0, true)][..], Some(&drop)));
    finish_all(&mut world);
    assert_eq!((valid(&world, id), valid(&world, world.granted[&1])), (vec![1], vec![0]));
}

#[test]
fn promotions_to_the_same_room_take_their_turn() {
    let mut world = World::new(settings(1, &[100, 1000]));
    let hint = PlacementHint { tier: Some(1), keep: false };
    let ids = [0, 1, 2].map(|ticket| {
        ask(&mut world, ticket, 100, 0, false, hint);
        world.granted[&ticket]
    });
    for id in ids {
        world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier");
    }
    // The second has no room while the first is on its way; then it takes the first one's place.
    world.end(0, CopyOutcome::Done);
    assert_eq!(world.finished, [(ids[0], 0, true)]);
    world.end(0, CopyOutcome::Done);
    // It is leased on arrival: the third cannot come.
    world.leased.insert(ids[1]);
    world.end(0, CopyOutcome::Done);
    assert_eq!(world.finished[1..], [(ids[1], 0, true), (ids[2], 0, false)]);
}

#[test]
fn promotions_do_not_wait_for_a_tenant_at_its_cap() {
    let mut settings = settings(2, &[100, 100]);
    settings.tenants = vec![TenantQuota::UNLIMITED, TenantQuota { cap: 50, ..TenantQuota::UNLIMITED }];
    let mut world = World::new(settings);
    ask(&mut world, 0, 10, 0, false, PlacementHint { tier: Some(1), keep: false });
    let id = world.granted[&0];
    // Both wait for their own tenant: the second is within its cap, but the first came before it.
    for (ticket, bytes) in [(1, 40), (2, 20), (3, 5)] {
        ask(&mut world, ticket, bytes, 1, ticket > 1, PlacementHint::default());
    }
    assert_eq!(world.granted.len(), 2);
    let actions = world.tell(LedgerEvent::Promote { id, to: 0 }).expect("a tier");
    assert_eq!(actions, [Action::Copy { id, from: 1, to: 0 }]);
}

#[test]
fn one_that_is_enough_goes_where_two_do_not_fit() {
    let mut settings = settings(1, &[100, 70]);
    settings.policy = PolicyKind::Lru;
    let mut world = World::new(settings);
    let [first, large] = [(0, 30), (1, 70)].map(|(ticket, bytes)| take(&mut world, ticket, bytes));
    // The first candidate is too small, and leaves no room below for the other.
    assert_eq!(waiting_request(&mut world, 3, 60)[0], Action::Copy { id: large, from: 0, to: 1 });
    finish_all(&mut world);
    assert_eq!((valid(&world, first), valid(&world, world.granted[&3])), (vec![0], vec![0]));
}
