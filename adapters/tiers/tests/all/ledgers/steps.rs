//! Steps that several tests share.

use super::settings;
use super::world::{Asked, World};
use terrace_tiers::ledger::{Action, BufferId, CopyOutcome, LedgerEvent, PlacementHint, RefusalReason};
use terrace_tiers::policy::PolicyKind;

/// Two memory tiers of 100 and 200 bytes over a file tier of 1000, and LRU, whose victims are predictable.
pub fn three() -> World {
    let mut settings = settings(2, &[100, 200, 1000]);
    // No maintenance, which would move buffers at each tick.
    (settings.policy, settings.maintenance_budget) = (PolicyKind::Lru, 0);
    World::new(settings)
}

pub fn ask(world: &mut World, ticket: u64, bytes: u64, tenant: u16, wait: bool, hint: PlacementHint) -> Vec<Action> {
    world.asked.push(Asked { ticket, bytes, tenant, wait });
    world.tell(LedgerEvent::Allocate { ticket, bytes, tenant, wait, hint }).expect("a tenant and a new ticket")
}

/// Recovers a buffer, and adopts it.
pub fn adopt(world: &mut World, ticket: u64, bytes: u64, tenant: u16, tier: u8) -> Vec<Action> {
    world.recover(bytes, tenant, tier).expect("some bytes, and no more than can be counted");
    world.asked.push(Asked { ticket, bytes, tenant, wait: false });
    world.tell(LedgerEvent::Adopt { ticket, bytes, tenant, tier }).expect("it is dormant")
}

/// Allocates a buffer, which is granted at once.
pub fn take(world: &mut World, ticket: u64, bytes: u64) -> BufferId {
    ask(world, ticket, bytes, 0, false, PlacementHint::default());
    world.granted[&ticket]
}

/// Allocates a buffer in a tier.
pub fn take_in(world: &mut World, ticket: u64, bytes: u64, tier: u8) {
    ask(world, ticket, bytes, 0, false, PlacementHint { tier: Some(tier), keep: false });
    assert_eq!(valid(world, world.granted[&ticket]), [tier], "it has room");
}

pub fn waiting_request(world: &mut World, ticket: u64, bytes: u64) -> Vec<Action> {
    ask(world, ticket, bytes, 0, true, PlacementHint::default())
}

pub fn finish_all(world: &mut World) -> usize {
    world.finish_all(|| CopyOutcome::Done)
}

pub fn valid(world: &World, id: BufferId) -> Vec<u8> {
    let residence = world.ledger.view(id).expect("live").residence;
    (0..8).filter(|tier| residence.valid(*tier)).collect()
}

pub fn why(world: &World, ticket: u64) -> RefusalReason {
    world.refused[&ticket].reason
}
