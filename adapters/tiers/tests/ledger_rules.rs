//! Each rule of the ledger, one story each, in the same world as the random runs.

mod ledgers;
mod numbers;

use ledgers::settings;
use ledgers::world::{Asked, World};
use terrace_core::pressure::Level;
use terrace_tiers::ledger::{Action, Event, Hint, Id, Ledger, Outcome, Refusal, Rejected, SetupError, Share, Why};
use terrace_tiers::policy::Kind;

/// Two memory tiers of 100 and 200 bytes over a file tier of 1000, and LRU, whose victims are plain to see.
fn three() -> World {
    let mut settings = settings(2, &[100, 200, 1000]);
    // No maintenance: it would move things by itself at each tick.
    (settings.policy, settings.budget) = (Kind::Lru, 0);
    World::new(settings)
}

fn ask(world: &mut World, ticket: u64, bytes: u64, tenant: u16, wait: bool, hint: Hint) -> Vec<Action> {
    world.asked.push(Asked { ticket, bytes, tenant, wait });
    world.tell(Event::Allocate { ticket, bytes, tenant, wait, hint }).expect("a tenant and a new ticket")
}

/// A buffer that is granted at once.
fn take(world: &mut World, ticket: u64, bytes: u64) -> Id {
    ask(world, ticket, bytes, 0, false, Hint::default());
    world.granted[&ticket]
}

fn patient(world: &mut World, ticket: u64, bytes: u64) -> Vec<Action> {
    ask(world, ticket, bytes, 0, true, Hint::default())
}

fn settle(world: &mut World) -> usize {
    world.settle(|| Outcome::Done)
}

fn valid(world: &World, id: Id) -> Vec<u8> {
    let residence = world.ledger.view(id).expect("live").residence;
    (0..8).filter(|tier| residence.valid(*tier)).collect()
}

fn why(world: &World, ticket: u64) -> Why {
    world.refused[&ticket].why
}

#[test]
fn the_least_used_goes_down_and_lower_tiers_make_way_first() {
    let mut world = three();
    let first = take(&mut world, 0, 100);
    let others: Vec<Id> = (1..3)
        .map(|ticket| {
            patient(&mut world, ticket, 100);
            settle(&mut world);
            world.granted[&ticket]
        })
        .collect();
    assert_eq!((valid(&world, first), valid(&world, others[0]), valid(&world, others[1])), (vec![1], vec![1], vec![0]));
    // Both memory tiers are full: the second goes down only after the first has.
    let actions = patient(&mut world, 3, 100);
    assert_eq!(actions, [Action::Copy { id: first, from: 1, to: 2 }]);
    settle(&mut world);
    assert_eq!((valid(&world, first), valid(&world, others[1])), (vec![2], vec![1]));
    assert!(world.granted.contains_key(&3));
}

#[test]
fn a_clean_copy_below_makes_demotion_a_drop() {
    let mut world = three();
    let first = take(&mut world, 0, 80);
    world.tell(Event::Save { id: first, to: 2 }).expect("a tier");
    settle(&mut world);
    assert_eq!((valid(&world, first), world.settled.pop()), (vec![0, 2], Some((first, 2, true))));
    assert_eq!(patient(&mut world, 1, 80), [Action::Drop { id: first, tier: 0 }]);
    settle(&mut world);
    assert_eq!((valid(&world, first), valid(&world, world.granted[&1])), (vec![2], vec![0]));
    // Promoted again it keeps the copy below; written, the copy below is old, and it is copied down once more.
    world.tell(Event::Free { id: world.granted[&1] }).expect("live");
    world.tell(Event::Promote { id: first, to: 0 }).expect("a tier");
    settle(&mut world);
    assert_eq!(valid(&world, first), [0, 2]);
    world.buffers.get_mut(&first).expect("live").newest = 1;
    world.copies.insert((first, 0), Some(1));
    world.tell(Event::Wrote { id: first, tier: 0 }).expect("valid there");
    assert!(patient(&mut world, 2, 80).contains(&Action::Copy { id: first, from: 0, to: 1 }));
}

#[test]
fn a_small_request_never_passes_a_large_one() {
    let mut world = World::new(settings(1, &[100]));
    let (first, second) = (take(&mut world, 0, 60), take(&mut world, 1, 40));
    patient(&mut world, 2, 90);
    patient(&mut world, 3, 10);
    world.tell(Event::Free { id: second }).expect("live");
    assert_eq!(world.asked.len(), 2, "10 bytes would fit, 90 came first");
    ask(&mut world, 4, 10, 0, false, Hint::default());
    assert_eq!(why(&world, 4), Why::NoRoom, "nor does one pass that does not wait");
    world.tell(Event::Free { id: first }).expect("live");
    assert!(world.granted.contains_key(&2) && world.granted.contains_key(&3));
}

#[test]
fn only_a_tenant_at_its_cap_is_passed() {
    let mut settings = settings(1, &[100]);
    settings.tenants = vec![Share { cap: 50, ..Share::UNLIMITED }, Share::UNLIMITED];
    let mut world = World::new(settings);
    let first = take(&mut world, 0, 50);
    patient(&mut world, 1, 20);
    patient(&mut world, 2, 10);
    ask(&mut world, 3, 10, 0, false, Hint::default());
    assert_eq!(world.refused[&3], Refusal { why: Why::OverCap, asked: 10, largest: 0 });
    ask(&mut world, 4, 30, 1, true, Hint::default());
    assert!(world.granted.contains_key(&4), "another tenant's request");
    assert_eq!(world.asked.len(), 2);
    ask(&mut world, 5, 60, 0, true, Hint::default());
    assert_eq!(why(&world, 5), Why::OverCap, "more than the cap is refused for ever");
    world.tell(Event::Free { id: first }).expect("live");
    assert!(world.granted.contains_key(&1) && world.granted.contains_key(&2));
}

#[test]
fn what_can_never_be_had_is_refused_and_what_is_pinned_is_said() {
    let mut world = three();
    patient(&mut world, 0, 1001);
    assert_eq!(world.refused[&0], Refusal { why: Why::TooLarge, asked: 1001, largest: 1000 });
    patient(&mut world, 1, 0);
    assert_eq!(why(&world, 1), Why::Empty);
    let large = take(&mut world, 2, 900);
    assert_eq!(valid(&world, large), [2], "larger than memory: in a file, by parts");
    patient(&mut world, 3, 500);
    world.tell(Event::Resize { tier: 2, capacity: 400 }).expect("a tier");
    assert_eq!(world.refused[&3].largest, 400, "nor does one wait that became hopeless");
    for ticket in 4..6 {
        let id = take(&mut world, ticket, 100);
        world.leased.insert(id);
    }
    let third = take(&mut world, 6, 100);
    world.leased.insert(third);
    ask(&mut world, 7, 100, 0, false, Hint::default());
    assert_eq!(why(&world, 7), Why::NoRoom, "all of it is leased");
    patient(&mut world, 8, 100);
    assert!(world.pending.is_empty() && world.asked.len() == 1);
    world.leased.remove(&third);
    world.tell(Event::Resize { tier: 2, capacity: 1000 }).expect("a tier");
    world.tell(Event::Released { id: third }).expect("live");
    settle(&mut world);
    assert!(world.granted.contains_key(&8));
}

#[test]
fn a_cancelled_request_leaves_and_a_granted_one_is_given_on() {
    let mut world = World::new(settings(1, &[100]));
    take(&mut world, 0, 100);
    patient(&mut world, 1, 100);
    patient(&mut world, 2, 100);
    world.tell(Event::Cancel { ticket: 1 }).expect("it waits");
    assert_eq!(why(&world, 1), Why::Cancelled);
    let actions = world.tell(Event::Cancel { ticket: 0 }).expect("not used yet");
    assert!(
        matches!(actions[..], [Action::Forget { .. }, Action::Grant { ticket: 2, zero: false, .. }]),
        "{actions:?}"
    );
    let used = world.granted[&2];
    world.tell(Event::Touch { id: used }).expect("live");
    assert_eq!(world.tell(Event::Cancel { ticket: 2 }), Err(Rejected::NoSuchTicket), "it was used");
}

#[test]
fn memory_goes_from_tenant_to_tenant_zeroed() {
    let mut settings = settings(1, &[100]);
    settings.tenants = vec![Share::UNLIMITED; 2];
    let mut world = World::new(settings);
    let mut zero = |ticket: u64, tenant: u16| {
        let actions = ask(&mut world, ticket, 10, tenant, false, Hint::default());
        let Action::Grant { id, zero, .. } = actions[0] else { panic!("there is room") };
        world.tell(Event::Free { id }).expect("live");
        zero
    };
    assert_eq!([zero(0, 0), zero(1, 0), zero(2, 1), zero(3, 1), zero(4, 0)], [false, false, true, true, true]);
}

#[test]
fn nobody_evicts_another_below_its_promised_share() {
    let mut settings = settings(1, &[100, 1000]);
    let mut promised = Share::UNLIMITED;
    promised.promised[0] = 50;
    settings.tenants = vec![promised, Share::UNLIMITED];
    settings.policy = Kind::Lru;
    let mut world = World::new(settings);
    let own: Vec<Id> = (0..4).map(|ticket| take(&mut world, ticket, 25)).collect();
    ask(&mut world, 4, 75, 1, true, Hint::default());
    settle(&mut world);
    assert_eq!(valid(&world, world.granted[&4]), [1], "75 bytes would leave the other 25 of 50");
    ask(&mut world, 5, 50, 1, true, Hint::default());
    settle(&mut world);
    let there: Vec<bool> = own.iter().map(|id| valid(&world, *id) == [0]).collect();
    assert_eq!((valid(&world, world.granted[&5]), there), (vec![0], vec![false, false, true, true]));
    // By its own requests it is.
    ask(&mut world, 6, 50, 0, true, Hint { tier: Some(0), keep: false });
    settle(&mut world);
    assert_eq!(valid(&world, world.granted[&6]), [0]);
    let setup = Ledger::new({
        let mut settings = ledgers::settings(1, &[40]);
        settings.tenants = vec![promised];
        settings
    });
    assert_eq!(setup.err(), Some(SetupError::Promised { tier: 0, promised: 50, capacity: 40 }));
}

#[test]
fn a_failed_copy_loses_nothing_and_is_not_tried_again_before_its_time() {
    let mut settings = settings(1, &[100, 1000]);
    (settings.rest, settings.budget) = (100, 0);
    let mut world = World::new(settings);
    let id = take(&mut world, 0, 100);
    patient(&mut world, 1, 100);
    let copies = |world: &World| world.actions.iter().filter(|action| matches!(action, Action::Copy { .. })).count();
    // The tier rests 100 after the first failure, 200 after the second: and never is a copy begun but by a tick.
    for (tick, begun) in [(0, 1), (99, 1), (100, 2), (299, 2), (300, 3)] {
        world.tell(Event::Tick { now: tick }).expect("time passes");
        assert_eq!(copies(&world), begun, "at {tick}");
        world.settle(|| Outcome::Failed);
        assert_eq!((valid(&world, id), world.ledger.tier(1).expect("a tier").rests), (vec![0], tick < 1000));
    }
    world.tell(Event::Tick { now: 700 }).expect("time passes");
    settle(&mut world);
    assert_eq!((valid(&world, id), world.granted.contains_key(&1)), (vec![1], true));
}

#[test]
fn the_second_touch_within_the_window_promotes() {
    let mut world = three();
    let hint = Hint { tier: Some(1), keep: false };
    let ids = [1, 2].map(|ticket| take(&mut world, ticket, 50));
    for id in ids {
        world.tell(Event::Demote { id, to: 2 }).expect("a tier");
        settle(&mut world);
    }
    ask(&mut world, 3, 100, 0, false, hint);
    let full = take(&mut world, 4, 100);
    for (now, id) in [(0, ids[0]), (10_000, ids[1]), (10_001, ids[0])] {
        world.tell(Event::Tick { now }).expect("time passes");
        assert!(world.tell(Event::Touch { id }).expect("live").is_empty(), "the first touch, or too late");
    }
    world.tell(Event::Tick { now: 20_000 }).expect("time passes");
    // A prefetch takes only room that is there; a promotion evicts.
    assert!(world.tell(Event::Prefetch { id: ids[1] }).expect("live").is_empty());
    let actions = world.tell(Event::Touch { id: ids[1] }).expect("live");
    assert_eq!(actions[0], Action::Copy { id: full, from: 0, to: 1 });
    settle(&mut world);
    assert_eq!((valid(&world, ids[1]), valid(&world, ids[0])), (vec![0, 2], vec![2]));
}

#[test]
fn maintenance_empties_from_80_to_60_percent_by_its_budget() {
    let mut settings = settings(1, &[100, 1000]);
    (settings.budget, settings.policy) = (15, Kind::Lru);
    let mut world = World::new(settings);
    for ticket in 0..79 {
        take(&mut world, ticket, 1);
    }
    assert_eq!(world.tell(Event::Tick { now: 1 }), Ok(vec![]), "below 80 %");
    take(&mut world, 100, 1);
    let mut used = Vec::new();
    for now in 2..6 {
        world.tell(Event::Tick { now }).expect("time passes");
        settle(&mut world);
        used.push(world.ledger.tier(0).expect("a tier").used);
    }
    assert_eq!(used, [65, 60, 60, 60]);
    assert_eq!(valid(&world, world.granted[&0]), [1], "the least used went");
    assert_eq!(valid(&world, world.granted[&100]), [0]);
}

#[test]
fn a_tier_made_smaller_empties_itself_and_says_so() {
    let mut world = three();
    let ids: Vec<Id> = (0..4).map(|ticket| take(&mut world, ticket, 25)).collect();
    world.leased.insert(ids[0]);
    let actions = world.tell(Event::Resize { tier: 0, capacity: 20 }).expect("a tier");
    assert_eq!(actions.iter().filter(|action| matches!(action, Action::Copy { to: 1, .. })).count(), 3);
    settle(&mut world);
    let tier = world.ledger.tier(0).expect("a tier");
    assert_eq!((tier.used, tier.level), (25, Level::Critical), "a lease holds it");
    world.leased.clear();
    world.tell(Event::Released { id: ids[0] }).expect("live");
    settle(&mut world);
    assert_eq!((world.ledger.tier(0).expect("a tier").used, world.levels[&0]), (0, Level::Normal));
}

#[test]
fn what_survives_a_power_cut_and_what_users_keep_stays() {
    let mut world = three();
    let hint = Hint { tier: Some(1), keep: true };
    ask(&mut world, 0, 100, 0, false, hint);
    ask(&mut world, 1, 100, 0, false, Hint { keep: false, ..hint });
    let (kept, other) = (world.granted[&0], world.granted[&1]);
    assert!(ask(&mut world, 2, 100, 0, true, Hint { keep: false, ..hint }).contains(&Action::Copy {
        id: other,
        from: 1,
        to: 2
    }));
    settle(&mut world);
    world.tell(Event::Synced { id: other, tier: 2 }).expect("valid there");
    world.buffers.get_mut(&other).expect("live").synced = Some(2);
    world.tell(Event::Promote { id: other, to: 0 }).expect("a tier");
    settle(&mut world);
    assert_eq!(valid(&world, other), [0, 2]);
    // The file tier is asked for all its room: its copy of `other` would be a mere drop, if it were not synced.
    ask(&mut world, 3, 950, 0, false, Hint::default());
    assert_eq!((why(&world, 3), valid(&world, other)), (Why::NoRoom, vec![0, 2]));
    assert_eq!(valid(&world, kept), [1]);
    world.tell(Event::Free { id: world.granted[&2] }).expect("live");
    // The kept one goes when nothing else would do.
    ask(&mut world, 4, 200, 0, false, Hint { keep: false, ..hint });
    settle(&mut world);
    assert_eq!(valid(&world, kept), [2]);
}

#[test]
fn users_are_told_what_became_of_their_wishes() {
    let mut world = three();
    let id = take(&mut world, 0, 80);
    assert_eq!(world.tell(Event::Demote { id, to: 5 }), Err(Rejected::NoSuchTier));
    world.tell(Event::Demote { id, to: 2 }).expect("a tier");
    settle(&mut world);
    assert_eq!((valid(&world, id), world.settled.pop()), (vec![2], Some((id, 2, true))));
    world.leased.insert(id);
    world.tell(Event::Promote { id, to: 0 }).expect("a tier");
    assert!(world.pending.is_empty() && world.settled.is_empty(), "it waits for the lease");
    world.leased.clear();
    world.tell(Event::Released { id }).expect("live");
    settle(&mut world);
    assert_eq!((valid(&world, id), world.settled.pop()), (vec![0, 2], Some((id, 0, true))));
    let large = take(&mut world, 1, 150);
    world.tell(Event::Promote { id: large, to: 0 }).expect("a tier");
    assert_eq!(world.settled.pop(), Some((large, 0, false)), "it will not be");
}

#[test]
fn a_request_that_cannot_be_met_evicts_nobody() {
    let mut world = three();
    let ids: Vec<Id> = (0..4).map(|ticket| take(&mut world, ticket, 25)).collect();
    world.leased.insert(ids[3]);
    assert_eq!(valid(&world, ids[0]), [0]);
    // 100 bytes cannot be had in tier 0 while one is leased: the request goes to tier 1, and all stay where they are.
    let actions = patient(&mut world, 9, 100);
    assert!(matches!(actions[..], [Action::Grant { tier: 1, .. }]), "{actions:?}");
}
