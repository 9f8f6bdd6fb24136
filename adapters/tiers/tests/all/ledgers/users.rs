//! Random users of a world: requests, frees, writes, leases and move requests, from a seed.

use super::settings;
use super::world::{Asked, World};
use terrace_tests::Random;
use terrace_tiers::ledger::{BufferId, CopyOutcome, LedgerEvent, PlacementHint, Rejected, TenantQuota};
use terrace_tiers::policy::PolicyKind;

/// A random world: two to five tiers, one of them at times absent, and up to three tenants.
pub fn world(numbers: &mut Random) -> World {
    let tiers = 2 + numbers.below(4) as usize;
    let mut capacities: Vec<u64> = (0..tiers).map(|at| 40 + numbers.below(200 << at)).collect();
    if numbers.below(6) == 0 {
        capacities[numbers.below(tiers as u64) as usize] = 0;
    }
    let mut settings = settings(1 + numbers.below(tiers as u64) as usize, &capacities);
    settings.tiers.iter_mut().for_each(|tier| tier.unit = [1, 1, 7, 32][numbers.below(4) as usize]);
    settings.policy = [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::S3Fifo][numbers.below(3) as usize];
    settings.tenants = (0..=numbers.below(3)).map(|_| share(numbers, &capacities)).collect();
    (settings.touch_window, settings.maintenance_budget, settings.backoff) =
        (50, 20 + numbers.below(200), numbers.below(30));
    // Half of the worlds make room ahead of demand.
    settings.ahead_from = [50 + numbers.below(500), u64::MAX][numbers.below(2) as usize];
    World::new(settings)
}

fn share(numbers: &mut Random, capacities: &[u64]) -> TenantQuota {
    let mut share = TenantQuota::UNLIMITED;
    if numbers.below(2) == 0 {
        share.cap = 100 + numbers.below(400);
    }
    for (at, &capacity) in capacities.iter().enumerate() {
        if numbers.below(4) == 0 {
            share.tier_caps[at] = 30 + numbers.below(200);
        }
        if numbers.below(4) == 0 {
            share.guaranteed[at] = numbers.below(capacity / 3 + 1);
        }
    }
    share
}

/// All users of a world.
pub struct Users {
    pub numbers: Random,
    pub world: World,
    next: u64,
    now: u64,
}

impl Users {
    pub fn new(seed: u64) -> Self {
        let mut numbers = Random::new(seed);
        let world = world(&mut numbers);
        Self { numbers, world, next: 0, now: 0 }
    }

    fn some_id(&mut self) -> Option<BufferId> {
        let live: Vec<BufferId> =
            self.world.buffers.iter().filter(|(_, known)| !known.freed).map(|(id, _)| *id).collect();
        (!live.is_empty()).then(|| live[self.numbers.below(live.len() as u64) as usize])
    }

    fn some_tier(&mut self) -> u8 {
        self.numbers.below(self.world.capacities.len() as u64) as u8
    }

    /// Makes one random event. When nothing is pending after a request or a free, nothing more is possible: another
    /// event that serves the queues changes nothing. (Under LRU, where a failed search leaves the order of candidates.)
    pub fn step(&mut self) {
        let due = self.world.policy == PolicyKind::Lru && self.world.used.is_empty() && self.next.is_multiple_of(2);
        let before = self.world.leased.clone();
        if let Some(id) = self.some_id().filter(|_| due) {
            self.world.tell(LedgerEvent::Released { id }).expect("live");
        }
        self.something();
        let one = matches!(
            self.world.last,
            Some(LedgerEvent::Allocate { .. } | LedgerEvent::Free { .. } | LedgerEvent::Cancel { .. })
        );
        let silent = self.world.pending.is_empty() && self.world.leased == before;
        if let Some(id) = self.some_id().filter(|_| due && one && silent) {
            let resting = self.world.ledger.view(id).expect("live").deferred;
            let actions = self.world.tell(LedgerEvent::Released { id }).expect("live");
            assert!(resting || actions.is_empty(), "{actions:?}");
        }
    }

    fn something(&mut self) {
        match self.numbers.below(100) {
            0..20 => self.ask(),
            20..24 => self.cancel(),
            24..50 if !self.world.pending.is_empty() => self.end(),
            50..53 => self.resize(),
            53..58 => self.tick(),
            58..60 => self.all(),
            _ => self.about_one(),
        }
    }

    fn ask(&mut self) {
        match self.numbers.below(20) {
            0 => return self.recover(),
            1 => return self.adopt(),
            _ => {}
        }
        let numbers = &mut self.numbers;
        let (ticket, tenant) = (self.next, numbers.below(3) as u16);
        let (bytes, wait) = (numbers.below(130), numbers.below(2) == 0);
        let tier = (numbers.below(3) == 0).then(|| numbers.below(6) as u8);
        let hint = PlacementHint { tier, keep: numbers.below(8) == 0 };
        self.next += 1;
        let event = LedgerEvent::Allocate { ticket, bytes, tenant, wait, hint };
        if self.world.ledger.tenant_bytes(tenant).is_none() {
            return assert_eq!(self.world.tell(event), Err(Rejected::NoSuchTenant));
        }
        self.world.asked.push(Asked { ticket, bytes, tenant, wait });
        self.world.tell(event).expect("a tenant and a new ticket");
    }

    fn recover(&mut self) {
        let (bytes, tier) = (self.numbers.below(130), self.some_tier());
        let tenant = self.numbers.below(self.world.tenants()) as u16;
        assert_eq!(self.world.recover(bytes, tenant, tier).is_err(), bytes == 0);
    }

    /// Opens a dormant buffer.
    fn adopt(&mut self) {
        let (ticket, dormant) = (self.next, self.world.dormant.len() as u64);
        self.next += 1;
        if dormant == 0 {
            let adopted = LedgerEvent::Adopt { ticket, bytes: 1, tenant: 0, tier: 0 };
            return assert_eq!(self.world.tell(adopted), Err(Rejected::Stale));
        }
        let (tier, tenant, bytes) = self.world.dormant[self.numbers.below(dormant) as usize];
        self.world.asked.push(Asked { ticket, bytes, tenant, wait: false });
        self.world.tell(LedgerEvent::Adopt { ticket, bytes, tenant, tier }).expect("it is dormant");
    }

    fn cancel(&mut self) {
        let ticket = self.numbers.below(self.next + 1);
        let waits = self.world.asked.iter().any(|asked| asked.ticket == ticket);
        // A granted buffer is freed if it was not used yet.
        let unused = self.world.granted.get(&ticket).filter(|id| self.world.unused.contains(id));
        let held = |id: &BufferId| self.world.leased.contains(id) && !self.world.ledger.view(*id).expect("live").moving;
        let may = waits || unused.is_some_and(|id| !held(id));
        assert_eq!(self.world.tell(LedgerEvent::Cancel { ticket }).is_ok(), may, "{ticket}");
    }

    fn end(&mut self) {
        let at = self.numbers.below(self.world.pending.len() as u64) as usize;
        let outcome =
            [CopyOutcome::Leased, CopyOutcome::Full, CopyOutcome::Failed].get(self.numbers.below(12) as usize).copied();
        self.world.end(at, outcome.unwrap_or(CopyOutcome::Done));
    }

    fn resize(&mut self) {
        let tier = self.some_tier();
        if self.numbers.below(3) == 0 {
            let bytes = if self.numbers.below(3) == 0 { u64::MAX } else { self.numbers.below(200 << tier) };
            self.world.tell(LedgerEvent::Budget { tier, bytes }).expect("a tier");
            return;
        }
        let capacity = if self.numbers.below(10) == 0 { 0 } else { self.numbers.below(200 << tier) };
        self.world.tell(LedgerEvent::Resize { tier, capacity }).expect("a tier");
    }

    pub fn tick(&mut self) {
        self.now += self.numbers.below(40);
        self.world.tell(LedgerEvent::Tick { now: self.now }).expect("time passes");
    }

    /// Ends all copies and drops: all well, or none.
    fn all(&mut self) {
        let well = self.numbers.below(2) == 0;
        let numbers = &mut self.numbers;
        let bad = [CopyOutcome::Leased, CopyOutcome::Full, CopyOutcome::Failed];
        self.world.finish_all(|| if well { CopyOutcome::Done } else { bad[numbers.below(3) as usize] });
    }

    fn about_one(&mut self) {
        let (Some(id), to) = (self.some_id(), self.some_tier()) else { return };
        let absent = self.world.capacities[usize::from(to)] == 0;
        let wish = |world: &mut World, event| match world.tell(event) {
            Ok(_) => assert!(!absent),
            Err(rejected) => assert!(absent && rejected == Rejected::NoSuchTier, "{rejected:?}"),
        };
        match self.numbers.below(18) {
            0..4 => self.free(id),
            4..7 => drop(self.world.tell(LedgerEvent::Touch { id }).expect("live")),
            7..9 => self.write(id, to),
            9 => wish(&mut self.world, LedgerEvent::Promote { id, to }),
            10 => wish(&mut self.world, LedgerEvent::Demote { id, to }),
            11 => wish(&mut self.world, LedgerEvent::Replicate { id, to }),
            12 if self.numbers.below(3) == 0 => {
                self.world.used.remove(&id);
                drop(self.world.tell(LedgerEvent::Used { id }).expect("live"));
            }
            12 => drop(self.world.tell(LedgerEvent::Prefetch { id }).expect("live")),
            13 | 14 => self.lease(id),
            15 => drop(self.world.used.insert(id)),
            _ => self.sync(id, to),
        }
    }

    fn free(&mut self, id: BufferId) {
        let moving = self.world.ledger.view(id).expect("live").moving;
        let leased = self.world.leased.contains(&id) && !moving;
        let known = self.world.buffers[&id];
        let taken = self.world.tell(LedgerEvent::Free { id });
        assert_eq!(taken.is_err(), leased, "{taken:?}");
        if taken.is_ok() {
            assert_eq!(self.world.tell(LedgerEvent::Touch { id }), Err(Rejected::Stale));
        }
        assert!(!known.freed);
    }

    fn write(&mut self, id: BufferId, tier: u8) {
        let view = self.world.ledger.view(id).expect("live");
        let may = !view.moving && view.residence.valid(tier);
        if !may {
            return assert!(self.world.tell(LedgerEvent::Wrote { id, tier }).is_err());
        }
        self.world.write(id, tier);
    }

    fn sync(&mut self, id: BufferId, tier: u8) {
        let view = self.world.ledger.view(id).expect("live");
        if self.world.is_dropping(id, tier) || !view.residence.valid(tier) {
            return assert!(self.world.tell(LedgerEvent::Synced { id, tier }).is_err());
        }
        self.world.buffers.get_mut(&id).expect("live").synced = Some(tier);
        self.world.tell(LedgerEvent::Synced { id, tier }).expect("valid there");
    }

    /// Takes a lease, or releases it.
    fn lease(&mut self, id: BufferId) {
        if self.world.leased.remove(&id) {
            self.world.tell(LedgerEvent::Released { id }).expect("live");
        } else if !self.world.ledger.view(id).expect("live").moving {
            self.world.leased.insert(id);
        }
    }

    /// All users leave: nothing remains.
    pub fn go(&mut self) {
        for id in std::mem::take(&mut self.world.leased) {
            self.world.tell(LedgerEvent::Released { id }).expect("live");
        }
        while let Some(asked) = self.world.asked.first().copied() {
            self.world.tell(LedgerEvent::Cancel { ticket: asked.ticket }).expect("it waits");
        }
        while !self.world.dormant.is_empty() {
            self.adopt();
        }
        while let Some(id) = self.some_id() {
            self.world.tell(LedgerEvent::Free { id }).expect("live, and not leased");
        }
        self.world.finish_all(|| CopyOutcome::Done);
        assert!(self.world.buffers.is_empty() && self.world.copies.is_empty() && self.world.asked.is_empty());
        let answers = self.world.granted.len() + self.world.refused.len();
        assert!(answers as u64 <= self.next, "each request has one answer");
        let both = self.world.granted.keys().any(|ticket| self.world.refused.contains_key(ticket));
        assert!(!both, "each request has one answer");
    }
}
