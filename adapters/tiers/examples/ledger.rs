//! Measures what a decision of the ledger costs, without copying: nanoseconds, for few buffers and for many.
//!
//! Run: `cargo run --release -p terrace-tiers --example ledger`
//!
//! The best of [`ROUNDS`] rounds. `touch`: records a use. `grant`: a request with room, and its free. `evict`: a
//! request that needs the room of another buffer, which is copied down and dropped. `leased`: the same where nine of
//! ten buffers are leased, so that each search has to skip them.

use std::time::Instant;
use terrace_tiers::ledger::{
    Action, BufferId, CopyOutcome, LeaseStatus, Ledger, LedgerEvent, Medium, PlacementHint, Settings, TierSpec,
};
use terrace_tiers::policy::PolicyKind;

const ROUNDS: usize = 5;
/// Decisions in a round.
const TIMES: u64 = 20_000;

struct Manager {
    ledger: Ledger,
    /// In order of their grants.
    live: Vec<BufferId>,
    /// By number.
    leased: Vec<bool>,
    ticket: u64,
}

impl Manager {
    /// As many buffers of one byte as the best tier holds.
    fn new(kind: PolicyKind, buffers: u64) -> Self {
        let tier = |medium, capacity| TierSpec { medium, capacity, unit: 1 };
        let tiers = vec![tier(Medium::Memory, buffers), tier(Medium::File, buffers + 3 * TIMES)];
        let ledger = Ledger::new(Settings { policy: kind, ..Settings::new(tiers) }).expect("sound settings");
        let mut manager = Self { ledger, live: Vec::new(), leased: Vec::new(), ticket: 0 };
        (0..buffers).for_each(|_| manager.ask());
        manager
    }

    /// Passes an event to the ledger and performs its actions.
    fn tell(&mut self, event: LedgerEvent) {
        let (mut events, mut actions) = (vec![event], Vec::new());
        let leased = &self.leased;
        let mut look =
            |id: BufferId| if leased.get(id.index()) == Some(&true) { LeaseStatus::Leased } else { LeaseStatus::Idle };
        while let Some(event) = events.pop() {
            self.ledger.handle(event, &mut look, &mut actions).expect("it can be");
            for action in actions.drain(..) {
                match action {
                    Action::Grant { id, .. } => self.live.push(id),
                    Action::Copy { id, from, to } => {
                        events.push(LedgerEvent::CopyEnded { id, from, to, outcome: CopyOutcome::Done })
                    }
                    Action::Drop { id, tier } => events.push(LedgerEvent::DropEnded { id, tier, done: true }),
                    _ => {}
                }
            }
        }
    }

    fn ask(&mut self) {
        self.ticket += 1;
        let hint = PlacementHint::default();
        self.tell(LedgerEvent::Allocate { ticket: self.ticket, bytes: 1, tenant: 0, wait: false, hint });
    }

    fn free(&mut self) {
        let id = self.live.pop().expect("granted");
        self.tell(LedgerEvent::Free { id });
    }

    /// Leases nine of ten buffers in the best tier.
    fn lease(&mut self) {
        let above = |id: &&BufferId| self.ledger.view(**id).is_ok_and(|view| view.residence.present(0));
        let ids: Vec<usize> = self.live.iter().filter(above).map(|id| id.index()).collect();
        self.leased = vec![false; self.live.len()];
        ids.iter().enumerate().for_each(|(at, index)| self.leased[*index] = at % 10 != 0);
    }
}

/// Nanoseconds for one of many.
fn time(mut one: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..TIMES).for_each(&mut one);
    start.elapsed().as_secs_f64() * 1e9 / TIMES as f64
}

fn round(kind: PolicyKind, buffers: u64) -> [f64; 4] {
    let mut manager = Manager::new(kind, buffers);
    let touch = time(|at| manager.tell(LedgerEvent::Touch { id: manager.live[(at * 7919 % buffers) as usize] }));
    manager.free();
    let grant = time(|_| {
        manager.ask();
        manager.free();
    });
    manager.ask();
    let evict = time(|_| manager.ask());
    manager.lease();
    let leased = time(|_| manager.ask());
    [touch, grant, evict, leased]
}

fn main() {
    println!("{:10} {:>8} {:>8} {:>8} {:>8} {:>8}", "policy", "buffers", "touch", "grant", "evict", "leased");
    for kind in [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::S3Fifo] {
        for buffers in [1_000, 100_000] {
            let mut best = [f64::INFINITY; 4];
            for _ in 0..ROUNDS {
                best.iter_mut().zip(round(kind, buffers)).for_each(|(best, taken)| *best = best.min(taken));
            }
            let [touch, grant, evict, leased] = best;
            println!("{:10} {buffers:8} {touch:8.0} {grant:8.0} {evict:8.0} {leased:8.0}", format!("{kind:?}"));
        }
    }
}
