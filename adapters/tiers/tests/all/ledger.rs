//! The ledger in a simulated world. `TERRACE_LEDGER_SEEDS` is the number of seeds, `TERRACE_LEDGER_FIRST` the first.

use crate::ledgers;

use ledgers::settings;
use ledgers::users::Users;
use ledgers::world::{Asked, World};
use terrace_tests::Random;
use terrace_tiers::ledger::{Action, CopyOutcome, LedgerEvent, PlacementHint};
use terrace_tiers::policy::PolicyKind;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// Reports the seed of a failure.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}: TERRACE_LEDGER_FIRST={} TERRACE_LEDGER_SEEDS=1 runs it alone", self.0, self.0);
        }
    }
}

#[test]
fn random_events_lose_nothing_pass_no_request_and_come_to_rest() {
    let (first, seeds) = (setting("TERRACE_LEDGER_FIRST", 1), setting("TERRACE_LEDGER_SEEDS", 300));
    for seed in first..first + seeds {
        let _named = Named(seed);
        let mut users = Users::new(seed);
        (0..300).for_each(|_| users.step());
        users.go();
    }
}

#[test]
fn where_the_last_tier_is_large_enough_everyone_is_served() {
    let (first, seeds) = (setting("TERRACE_LEDGER_FIRST", 1), setting("TERRACE_LEDGER_SEEDS", 300));
    for seed in first..first + seeds.div_ceil(3) {
        let _named = Named(seed);
        let mut numbers = Random::new(seed);
        let mut settings = settings(2, &[100, 150, 300, 1 << 30]);
        settings.policy = [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::S3Fifo][numbers.below(3) as usize];
        let (mut world, mut below) = (World::new(settings), 0);
        for ticket in 0..60 {
            let (bytes, wait) = (1 + numbers.below(100), numbers.below(2) == 0);
            let hint = PlacementHint {
                tier: (numbers.below(4) == 0).then(|| numbers.below(4) as u8),
                keep: numbers.below(4) == 0,
            };
            if numbers.below(3) == 0 {
                // What was used is not in use.
                world.used.extend(world.buffers.keys());
            }
            below += usize::from(hint.tier.is_some_and(|tier| tier >= 2));
            world.asked.push(Asked { ticket, bytes, tenant: 0, wait });
            world.tell(LedgerEvent::Allocate { ticket, bytes, tenant: 0, wait, hint }).expect("a new ticket");
            if numbers.below(3) > 0 {
                world.finish_all(|| CopyOutcome::Done);
            }
        }
        world.finish_all(|| CopyOutcome::Done);
        assert_eq!((world.granted.len(), world.refused.len()), (60, 0));
        // The requester got its memory: room was made.
        let files = world.actions.iter().filter(|action| matches!(action, Action::Grant { tier: 2.., .. })).count();
        assert_eq!(files, below, "in files are those who asked for that");
    }
}
