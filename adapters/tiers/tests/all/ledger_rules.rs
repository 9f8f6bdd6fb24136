//! One test for each rule about requests and ticks, in the same world as the random runs.

use crate::ledgers;

use ledgers::settings;
use ledgers::steps::{adopt, ask, finish_all, take, take_in, three, valid, waiting_request, why};
use ledgers::world::{Asked, World};
use terrace_core::pressure::Level;
use terrace_tiers::ledger::{
    Action, BufferId, Ledger, LedgerEvent, PlacementHint, Refusal, RefusalReason, Rejected, SetupError, TenantQuota,
};
use terrace_tiers::policy::PolicyKind;

#[test]
fn a_small_request_never_passes_a_large_one() {
    let mut world = World::new(settings(1, &[100]));
    let (first, second) = (take(&mut world, 0, 60), take(&mut world, 1, 40));
    waiting_request(&mut world, 2, 90);
    waiting_request(&mut world, 3, 10);
    world.tell(LedgerEvent::Free { id: second }).expect("live");
    assert_eq!(world.asked.len(), 2, "10 bytes would fit, 90 came first");
    ask(&mut world, 4, 10, 0, false, PlacementHint::default());
    assert_eq!(why(&world, 4), RefusalReason::NoRoom, "nor does one pass that does not wait");
    world.tell(LedgerEvent::Free { id: first }).expect("live");
    assert!(world.granted.contains_key(&2) && world.granted.contains_key(&3));
}

#[test]
fn only_a_tenant_at_its_cap_is_passed() {
    let mut settings = settings(1, &[100]);
    settings.tenants = vec![TenantQuota { cap: 50, ..TenantQuota::UNLIMITED }, TenantQuota::UNLIMITED];
    let mut world = World::new(settings);
    let first = take(&mut world, 0, 50);
    waiting_request(&mut world, 1, 20);
    waiting_request(&mut world, 2, 10);
    ask(&mut world, 3, 10, 0, false, PlacementHint::default());
    assert_eq!(world.refused[&3], Refusal { reason: RefusalReason::OverCap, requested: 10, largest: 0 });
    ask(&mut world, 4, 30, 1, true, PlacementHint::default());
    assert!(world.granted.contains_key(&4), "another tenant's request");
    assert_eq!(world.asked.len(), 2);
    ask(&mut world, 5, 60, 0, true, PlacementHint::default());
    assert_eq!(why(&world, 5), RefusalReason::OverCap, "more than the cap is refused for ever");
    world.tell(LedgerEvent::Free { id: first }).expect("live");
    assert!(world.granted.contains_key(&1) && world.granted.contains_key(&2));
}

#[test]
fn what_can_never_be_had_is_refused_and_what_is_pinned_is_said() {
    let mut world = three();
    waiting_request(&mut world, 0, 1001);
    assert_eq!(world.refused[&0], Refusal { reason: RefusalReason::TooLarge, requested: 1001, largest: 1000 });
    waiting_request(&mut world, 1, 0);
    assert_eq!(why(&world, 1), RefusalReason::Empty);
    let large = take(&mut world, 2, 900);
    assert_eq!(valid(&world, large), [2], "larger than memory: in a file, by parts");
    waiting_request(&mut world, 3, 500);
    world.tell(LedgerEvent::Resize { tier: 2, capacity: 400 }).expect("a tier");
    assert_eq!(world.refused[&3].largest, 400, "nor does one wait that became hopeless");
    for ticket in 4..6 {
        let id = take(&mut world, ticket, 100);
        world.leased.insert(id);
    }
    let third = take(&mut world, 6, 100);
    world.leased.insert(third);
    ask(&mut world, 7, 100, 0, false, PlacementHint::default());
    assert_eq!(why(&world, 7), RefusalReason::NoRoom, "all of it is leased");
    waiting_request(&mut world, 8, 100);
    assert!(world.pending.is_empty() && world.asked.len() == 1);
    world.leased.remove(&third);
    world.tell(LedgerEvent::Resize { tier: 2, capacity: 1000 }).expect("a tier");
    world.tell(LedgerEvent::Released { id: third }).expect("live");
    finish_all(&mut world);
    assert!(world.granted.contains_key(&8));
}

#[test]
fn a_cancelled_request_leaves_and_a_granted_one_is_given_on() {
    let mut world = World::new(settings(1, &[100]));
    take(&mut world, 0, 100);
    waiting_request(&mut world, 1, 100);
    waiting_request(&mut world, 2, 100);
    world.tell(LedgerEvent::Cancel { ticket: 1 }).expect("it waits");
    assert_eq!(why(&world, 1), RefusalReason::Cancelled);
    let actions = world.tell(LedgerEvent::Cancel { ticket: 0 }).expect("not used yet");
    assert!(
        matches!(actions[..], [Action::Forget { .. }, Action::Grant { ticket: 2, zero: false, .. }]),
        "{actions:?}"
    );
    let used = world.granted[&2];
    world.tell(LedgerEvent::Touch { id: used }).expect("live");
    assert_eq!(world.tell(LedgerEvent::Cancel { ticket: 2 }), Err(Rejected::NoSuchTicket), "it was used");
}

#[test]
fn what_is_there_already_counts_whatever_capacity_and_caps_say() {
    let mut settings = settings(1, &[100, 200]);
    let capped = TenantQuota { cap: 150, ..TenantQuota::UNLIMITED };
    settings.tenants = vec![TenantQuota::UNLIMITED, capped];
    let mut world = World::new(settings);
    [120, 100].into_iter().for_each(|bytes| world.recover(bytes, 1, 1).expect("sound"));
    let counted = |world: &World| {
        let view = world.ledger.tier(1).expect("a tier");
        (view.used, view.level, world.ledger.tenant_bytes(1), world.ledger.dormant_bytes())
    };
    assert_eq!(counted(&world), (220, Level::Critical, Some(220), 220));
    let hint = PlacementHint { tier: Some(1), keep: false };
    ask(&mut world, 2, 10, 1, false, PlacementHint::default());
    assert_eq!(world.refused[&2], Refusal { reason: RefusalReason::OverCap, requested: 10, largest: 0 });
    ask(&mut world, 3, 10, 0, false, hint);
    assert_eq!(valid(&world, world.granted[&3]), [0], "files have more than they may");
    let adopted = |ticket, bytes, tenant, tier| LedgerEvent::Adopt { ticket, bytes, tenant, tier };
    world.asked.push(Asked { ticket: 1, bytes: 100, tenant: 1, wait: false });
    let actions = world.tell(adopted(1, 100, 1, 1)).expect("it is dormant");
    assert_eq!(actions, [Action::Grant { ticket: 1, id: world.granted[&1], tier: 1, zero: false }], "it counts once");
    assert_eq!(counted(&world), (220, Level::Critical, Some(220), 120));
    let view = world.ledger.view(world.granted[&1]).expect("live");
    assert_eq!((view.synced, view.version), (Some((1, 0)), 0), "a restart found it");
    assert_eq!(world.tell(LedgerEvent::Cancel { ticket: 1 }), Err(Rejected::NoSuchTicket), "it was used");
    // Neither more bytes than are dormant, nor elsewhere, nor of another tenant.
    for (bytes, tenant, tier, rejected) in [
        (121, 1, 1, Rejected::Stale),
        (0, 1, 1, Rejected::Stale),
        (120, 0, 1, Rejected::Stale),
        (120, 1, 0, Rejected::Stale),
        (120, 2, 1, Rejected::NoSuchTenant),
        (120, 1, 2, Rejected::NoSuchTier),
    ] {
        assert_eq!(world.tell(adopted(6, bytes, tenant, tier)), Err(rejected));
    }
    world.tell(LedgerEvent::Free { id: world.granted[&1] }).expect("live");
    ask(&mut world, 4, 30, 1, false, hint);
    assert_eq!(valid(&world, world.granted[&4]), [1]);
    let refused = |world: &mut World, bytes| world.recover(bytes, 1, 1).map_err(|refusal| refusal.reason);
    assert_eq!(refused(&mut world, 0), Err(RefusalReason::Empty));
    assert_eq!(refused(&mut world, u64::MAX), Err(RefusalReason::TooLarge), "sums must not overflow");
    adopt(&mut world, 8, 20, 0, 1);
    let actions = world.tell(LedgerEvent::Prefetch { id: world.granted[&8] }).expect("live");
    assert_eq!(actions, [Action::Copy { id: world.granted[&8], from: 1, to: 0 }], "it belongs where others do");
}

#[test]
fn what_survives_a_power_cut_leaves_no_tier_whatever_needs_its_room() {
    for dormant in [true, false] {
        let mut settings = settings(1, &[100, 200, 1000]);
        settings.policy = PolicyKind::Lru;
        let mut world = World::new(settings);
        match dormant {
            true => world.recover(150, 0, 1).expect("sound"),
            false => drop(adopt(&mut world, 0, 150, 0, 1)),
        }
        let hint = PlacementHint { tier: Some(1), keep: false };
        ask(&mut world, 1, 100, 0, true, hint);
        assert_eq!(valid(&world, world.granted[&1]), [0], "files have 50 bytes left, and can make no room");
        for now in [1, 2] {
            world.tell(LedgerEvent::Tick { now }).expect("time passes");
            world.tell(LedgerEvent::Resize { tier: 1, capacity: 10 }).expect("a tier");
            world.tell(LedgerEvent::Budget { tier: 1, bytes: 5 }).expect("a tier");
            world.tell(LedgerEvent::TierRefused { tier: 1 }).expect("a tier");
        }
        let moved = |action: &Action| matches!(action, Action::Copy { from: 1, .. } | Action::Drop { tier: 1, .. });
        assert!(!world.actions.iter().any(moved), "{:?}", world.actions);
        assert_eq!(world.ledger.tier(1).expect("a tier").used, 150);
    }
}

#[test]
fn memory_goes_from_tenant_to_tenant_zeroed() {
    let mut settings = settings(1, &[100]);
    settings.tenants = vec![TenantQuota::UNLIMITED; 2];
    let mut world = World::new(settings);
    let mut zero = |ticket: u64, tenant: u16| {
        let actions = ask(&mut world, ticket, 10, tenant, false, PlacementHint::default());
        let Action::Grant { id, zero, .. } = actions[0] else { panic!("there is room") };
        world.tell(LedgerEvent::Free { id }).expect("live");
        zero
    };
    assert_eq!([zero(0, 0), zero(1, 0), zero(2, 1), zero(3, 1), zero(4, 0)], [false, false, true, true, true]);
}

#[test]
fn no_tenant_evicts_another_below_its_guaranteed_bytes() {
    let mut settings = settings(1, &[100, 1000]);
    let mut promised = TenantQuota::UNLIMITED;
    promised.guaranteed[0] = 50;
    settings.tenants = vec![promised, TenantQuota::UNLIMITED];
    settings.policy = PolicyKind::Lru;
    let mut world = World::new(settings);
    let own: Vec<BufferId> = (0..4).map(|ticket| take(&mut world, ticket, 25)).collect();
    ask(&mut world, 4, 75, 1, true, PlacementHint::default());
    finish_all(&mut world);
    assert_eq!(valid(&world, world.granted[&4]), [1], "75 bytes would leave the other 25 of 50");
    ask(&mut world, 5, 50, 1, true, PlacementHint::default());
    finish_all(&mut world);
    let there: Vec<bool> = own.iter().map(|id| valid(&world, *id) == [0]).collect();
    assert_eq!((valid(&world, world.granted[&5]), there), (vec![0], vec![false, false, true, true]));
    // Its own requests do evict it.
    world.leased.insert(world.granted[&5]);
    ask(&mut world, 6, 50, 0, true, PlacementHint { tier: Some(0), keep: false });
    finish_all(&mut world);
    assert_eq!(valid(&world, world.granted[&6]), [0]);
    let setup = Ledger::new({
        let mut settings = ledgers::settings(1, &[40]);
        settings.tenants = vec![promised];
        settings
    });
    assert_eq!(setup.err(), Some(SetupError::Guaranteed { tier: 0, guaranteed: 50, capacity: 40 }));
}

#[test]
fn what_is_about_to_leave_is_no_part_of_a_promised_share() {
    let mut settings = settings(1, &[100, 1000]);
    settings.tenants[0].guaranteed[0] = 60;
    settings.maintenance_budget = 25;
    let mut world = World::new(settings);
    (0..4).for_each(|ticket| assert_eq!(take(&mut world, ticket, 25).index() as u64, ticket));
    let begun = [1, 2].map(|now| world.tell(LedgerEvent::Tick { now }).expect("time passes").len());
    assert_eq!(begun, [1, 0], "the next copy would leave 50 of 60");
}

#[test]
fn a_request_that_cannot_be_granted_evicts_nothing() {
    let mut world = three();
    let ids: Vec<BufferId> = (0..4).map(|ticket| take(&mut world, ticket, 25)).collect();
    world.leased.insert(ids[3]);
    assert_eq!(valid(&world, ids[0]), [0]);
    // 100 bytes cannot be granted in tier 0 while one is leased: the request goes to tier 1, and no buffer moves.
    let actions = waiting_request(&mut world, 9, 100);
    assert!(matches!(actions[..], [Action::Grant { tier: 1, .. }]), "{actions:?}");
}

#[test]
fn no_lower_tier_is_emptied_in_vain_because_another_cannot_be() {
    let mut settings = settings(1, &[166, 67, 305]);
    (settings.policy, settings.maintenance_budget) = (PolicyKind::Lru, 0);
    let mut world = World::new(settings);
    for (ticket, bytes, tier) in [(0, 61, 0), (1, 98, 0), (2, 38, 1), (3, 240, 2)] {
        take_in(&mut world, ticket, bytes, tier);
    }
    // Of tier 0 both would have to leave: one into tier 1, after the buffer there has left; one into the last tier, where
    // there are 65 bytes.
    assert_eq!(waiting_request(&mut world, 9, 103), []);
}

#[test]
fn a_tier_that_shrinks_empties_what_it_can_though_one_buffer_must_stay() {
    let mut settings = settings(2, &[130, 60, 300]);
    (settings.policy, settings.maintenance_budget) = (PolicyKind::Lru, 0);
    let mut world = World::new(settings);
    take_in(&mut world, 0, 40, 2);
    let copied = world.granted[&0];
    world.tell(LedgerEvent::Promote { id: copied, to: 1 }).expect("live");
    finish_all(&mut world);
    assert_eq!(valid(&world, copied), [1, 2]);
    for (ticket, bytes, tier) in [(1, 260, 2), (2, 50, 0), (3, 80, 0)] {
        take_in(&mut world, ticket, bytes, tier);
    }
    // The last tier is full, and the larger buffer can go nowhere else; the smaller one can, once a copy there is dropped.
    let actions = world.tell(LedgerEvent::Resize { tier: 0, capacity: 10 }).expect("a tier");
    assert!(actions.contains(&Action::Drop { id: copied, tier: 1 }), "{actions:?}");
    finish_all(&mut world);
    assert_eq!([2, 3].map(|ticket| valid(&world, world.granted[&ticket])), [[1], [0]]);
}

#[test]
fn every_request_that_comes_first_is_looked_into_anew() {
    let mut world = World::new(settings(1, &[100, 1000]));
    let id = take(&mut world, 0, 60);
    world.leased.insert(id);
    let hint = PlacementHint { tier: Some(0), keep: false };
    ask(&mut world, 1, 50, 0, false, hint);
    assert_eq!(valid(&world, world.granted[&1]), [1], "the lease is in the way");
    // Released without an event.
    world.leased.clear();
    ask(&mut world, 2, 50, 0, false, hint);
    finish_all(&mut world);
    assert_eq!(valid(&world, world.granted[&2]), [0]);
}

#[test]
fn numbers_are_used_again_and_names_are_not() {
    let mut world = three();
    let first = take(&mut world, 0, 10);
    for ticket in 1..100 {
        let id = take(&mut world, ticket, 10);
        assert_eq!(id.index(), 1);
        world.tell(LedgerEvent::Free { id }).expect("live");
        assert_eq!(world.tell(LedgerEvent::Touch { id }), Err(Rejected::Stale));
    }
    assert_eq!(world.ledger.ids().collect::<Vec<_>>(), [first]);
}

#[test]
fn users_promotions_pass_a_request_that_waits_for_other_users() {
    let mut world = World::new(settings(1, &[100, 100]));
    let leased = take(&mut world, 0, 60);
    world.leased.insert(leased);
    let hint = PlacementHint { tier: Some(1), keep: false };
    for (ticket, bytes) in [(1, 80), (2, 10), (3, 10)] {
        ask(&mut world, ticket, bytes, 0, false, hint);
    }
    let [promoted, fetched] = [2, 3].map(|ticket| world.granted[&ticket]);
    waiting_request(&mut world, 4, 90);
    let unmet = Action::MoveFinished { id: fetched, to: 0, satisfied: false };
    assert_eq!(world.tell(LedgerEvent::Prefetch { id: fetched }), Ok(vec![unmet]), "a request comes first");
    let actions = world.tell(LedgerEvent::Promote { id: promoted, to: 0 }).expect("a tier");
    assert_eq!(actions, [Action::Copy { id: promoted, from: 1, to: 0 }], "who has the lease may need it to end");
    finish_all(&mut world);
    assert_eq!((valid(&world, promoted), world.asked.len()), (vec![0, 1], 1));
    world.leased.remove(&leased);
    world.tell(LedgerEvent::Free { id: leased }).expect("live");
    finish_all(&mut world);
    assert_eq!((valid(&world, world.granted[&4]), valid(&world, fetched)), (vec![0], vec![1]));
}

#[test]
fn a_copy_counts_as_what_it_takes_in_each_tier() {
    let mut settings = settings(1, &[200, 10_000]);
    (settings.tiers[0].unit, settings.tiers[1].unit) = (64, 4096);
    let mut world = World::new(settings);
    let first = take(&mut world, 0, 100);
    let used = |world: &World| [0, 1].map(|tier| world.ledger.tier(tier).expect("a tier").used);
    assert_eq!(used(&world), [128, 0]);
    // 72 bytes are left, and a unit of them.
    ask(&mut world, 1, 72, 0, false, PlacementHint { keep: true, ..PlacementHint::default() });
    finish_all(&mut world);
    assert_eq!((used(&world), valid(&world, first)), ([128, 4096], vec![1]), "the first made room");
    take(&mut world, 2, 64);
    assert_eq!(used(&world), [192, 4096], "what fits evicts nothing");
    ask(&mut world, 3, 4097, 0, false, PlacementHint::default());
    assert_eq!(world.refused[&3], Refusal { reason: RefusalReason::NoRoom, requested: 4097, largest: 4096 });
    world.tell(LedgerEvent::Resize { tier: 1, capacity: 5000 }).expect("a tier");
    ask(&mut world, 4, 4097, 0, true, PlacementHint::default());
    assert_eq!(world.refused[&4], Refusal { reason: RefusalReason::TooLarge, requested: 4097, largest: 4096 });
}

#[test]
fn a_tick_whose_budget_one_tier_has_used_moves_nothing_of_another() {
    let mut settings = settings(2, &[100, 100, 1000]);
    settings.maintenance_budget = 20;
    let mut world = World::new(settings);
    for ticket in 0..80 {
        take(&mut world, ticket, 1);
        ask(&mut world, 100 + ticket, 1, 0, false, PlacementHint { tier: Some(1), keep: false });
    }
    let used = |world: &World| [0, 1].map(|tier| world.ledger.tier(tier).expect("a tier").used);
    assert_eq!(used(&world), [80, 80]);
    let actions = world.tell(LedgerEvent::Tick { now: 1 }).expect("time passes");
    let copies: Vec<_> = actions.iter().filter(|action| matches!(action, Action::Copy { from: 1, .. })).collect();
    assert!(copies.is_empty(), "{copies:?}");
}

#[test]
fn a_buffer_leaves_for_a_tier_further_down_where_the_next_one_can_make_no_room() {
    let mut world = World::new(settings(1, &[100, 100, 1000]));
    let leaves = take(&mut world, 0, 100);
    ask(&mut world, 1, 100, 0, false, PlacementHint { tier: Some(1), keep: false });
    let stays = world.granted[&1];
    world.leased.insert(stays);
    let actions = waiting_request(&mut world, 2, 100);
    assert_eq!(actions, [Action::Copy { id: leaves, from: 0, to: 2 }]);
    finish_all(&mut world);
    assert_eq!((valid(&world, leaves), valid(&world, world.granted[&2])), (vec![2], vec![0]));
}
