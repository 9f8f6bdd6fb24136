//! Accounts for bytes: of each tier, and of each tenant.
//!
//! Promises upward: sums never overflow: capacities are at most 2^60 each, so that eight of them stay below 2^64. Only
//! the calls here, grants, and ends of buffers change them.
//! Asks from below: nothing.

use super::error::SetupError;
use super::table::BufferRecord;
use super::types::{Medium, TenantQuota, TierSpec};
use super::{Ledger, Tier};
use terrace_core::pressure::{Level, Pressure};
use terrace_core::residence::TIERS;

/// Largest capacity of a tier: 1 EiB. A larger one counts as this.
pub(super) const MAX_CAPACITY: u64 = 1 << 60;

/// Whose bytes a tier's free memory may still contain: no tenant's, one tenant's, or several tenants'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreedBy {
    None,
    One(u16),
    Many,
}

/// The state of one tier.
#[derive(Debug)]
pub(super) struct TierState {
    pub medium: Medium,
    /// What the tier may hold now: `limit` or `budget`, whichever is less.
    pub capacity: u64,
    /// The configured capacity: a request that fits it is not too large.
    pub limit: u64,
    /// Bytes that other programs leave to the tier for now.
    pub budget: u64,
    /// The footprint of each copy (the bytes it takes in this tier) is a multiple of this.
    pub unit: u64,
    /// Footprints of the copies present and of the copies in progress that reserved room here. At most `capacity`,
    /// unless `over_limit`.
    pub used: u64,
    /// The part of `used` that migrations in progress will free.
    pub leaving: u64,
    /// Number of copies in progress to this tier.
    pub incoming: usize,
    /// Whether `used` exceeds `capacity`: the tier was resized to less than it holds, or more was recovered than fits.
    pub over_limit: bool,
    pub pressure: Pressure,
    /// The level that was reported last.
    pub reported: Level,
    /// Number of failed copies into the tier since the last successful one.
    pub failures: u32,
    /// When the tier's suspension ends, if it is suspended.
    pub suspended_until: Option<u64>,
    /// The last failed search for room: the tenant that needed it (`None`: maintenance) and the bytes needed. Reset by
    /// events that may change its result.
    pub failed_search: Option<(Option<u16>, u64)>,
    /// Whether the last search for room ahead of need found too little. Reset with `failed_search`.
    pub failed_ahead: bool,
    /// Bytes that were granted in the tier since the last tick, and between the two last ticks. Promotions do not count:
    /// room that is made ahead of them is made of what was promoted before, and must come back.
    pub demand: [u64; 2],
    /// Whether the tier was filled to 80 % and has not been emptied to 60 % since.
    pub draining: bool,
    pub freed_by: FreedBy,
}

impl TierState {
    pub(super) fn new(spec: &TierSpec) -> Self {
        let capacity = spec.capacity.min(MAX_CAPACITY);
        Self {
            medium: spec.medium,
            capacity,
            limit: capacity,
            budget: MAX_CAPACITY,
            unit: spec.unit.max(1),
            used: 0,
            leaving: 0,
            incoming: 0,
            over_limit: false,
            pressure: Pressure::new(capacity),
            reported: Level::Normal,
            failures: 0,
            suspended_until: None,
            failed_search: None,
            failed_ahead: false,
            demand: [0; 2],
            draining: false,
            freed_by: FreedBy::None,
        }
    }

    /// Bytes that a copy of a buffer of `bytes` bytes takes in this tier.
    pub(super) fn footprint(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.unit).saturating_mul(self.unit)
    }

    /// Size of the largest buffer whose copy takes at most `room` bytes in this tier.
    pub(super) fn largest_copy(&self, room: u64) -> u64 {
        room - room % self.unit
    }

    /// Sets the limit and the budget.
    pub(super) fn resize(&mut self, limit: u64, budget: u64) {
        (self.limit, self.budget) = (limit.min(MAX_CAPACITY), budget.min(MAX_CAPACITY));
        self.capacity = self.limit.min(self.budget);
        self.over_limit = self.used > self.capacity;
        self.pressure = Pressure::new(self.capacity);
    }

    /// Forgets that searches for room failed: the next ones may succeed.
    pub(super) fn reset_searches(&mut self) {
        (self.failed_search, self.failed_ahead) = (None, false);
    }

    /// Free bytes of the tier.
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Bytes that must leave this tier, beyond those already leaving, before `held` more bytes fit.
    pub(super) fn shortfall(&self, held: u64) -> u64 {
        (self.used - self.leaving).saturating_add(held).saturating_sub(self.capacity)
    }
}

/// The state of one tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub quota: TenantQuota,
    /// Bytes of the tenant's buffers, each buffer counted once. At most `quota.cap`, unless `over_limit`.
    pub bytes: u64,
    /// Whether the tenant exceeds one of its caps, because more was recovered than they allow.
    pub over_limit: bool,
    /// Footprints of the tenant's copies in each tier, including copies in progress to it. At most `quota.tier_caps`,
    /// unless `over_limit`.
    pub held: [u64; TIERS as usize],
    /// The part of `held` that migrations in progress will free, for each tier.
    pub leaving: [u64; TIERS as usize],
    /// The parts of `bytes` and of `held` that are of dormant buffers, which have no record and
    /// never leave their tier: `dormant` says why.
    pub dormant: u64,
    pub dormant_held: [u64; TIERS as usize],
}

impl Tenant {
    pub(super) fn new(quota: TenantQuota) -> Self {
        let [held, leaving, dormant_held] = [[0; TIERS as usize]; 3];
        Self { quota, bytes: 0, over_limit: false, held, leaving, dormant: 0, dormant_held }
    }

    /// Whether the tenant holds more than at least one of its caps allows.
    pub(super) fn exceeds_caps(&self) -> bool {
        self.bytes > self.quota.cap || self.held.iter().zip(&self.quota.tier_caps).any(|(held, cap)| held > cap)
    }
}

/// Checks the settings of a ledger.
pub(super) fn validate(tiers: &[TierState], quotas: &[TenantQuota]) -> Result<(), SetupError> {
    if tiers.len() > usize::from(TIERS) {
        return Err(SetupError::TooManyTiers);
    }
    if tiers.iter().all(|tier| tier.capacity == 0) {
        return Err(SetupError::NoTiers);
    }
    if quotas.is_empty() || quotas.len() > usize::from(u16::MAX) {
        return Err(SetupError::Tenants);
    }
    for (at, tier) in tiers.iter().enumerate() {
        let guaranteed = quotas.iter().fold(0u64, |sum, quota| sum.saturating_add(quota.guaranteed[at]));
        if guaranteed > tier.capacity {
            return Err(SetupError::Guaranteed { tier: at as u8, guaranteed, capacity: tier.capacity });
        }
    }
    Ok(())
}

impl Ledger {
    /// Bytes that a copy of a buffer of `bytes` bytes takes in a tier.
    pub(super) fn footprint(&self, tier: Tier, bytes: u64) -> u64 {
        self.tiers[usize::from(tier)].footprint(bytes)
    }

    /// Reserves room in a tier for a copy of a tenant's buffer.
    pub(super) fn reserve(&mut self, tier: Tier, tenant: u16, bytes: u64) {
        let held = self.footprint(tier, bytes);
        self.tiers[usize::from(tier)].used += held;
        self.tenants[usize::from(tenant)].held[usize::from(tier)] += held;
    }

    /// Releases the room of a copy in a tier, and records whose bytes the freed memory may still contain.
    pub(super) fn release(&mut self, tier: Tier, tenant: u16, bytes: u64) {
        let held = self.footprint(tier, bytes);
        let whose = &mut self.tenants[usize::from(tenant)];
        whose.held[usize::from(tier)] -= held;
        whose.over_limit &= whose.exceeds_caps();
        // A search for room in a better tier may succeed now: its copies can move into the released room.
        self.tiers[..usize::from(tier)].iter_mut().for_each(TierState::reset_searches);
        let state = &mut self.tiers[usize::from(tier)];
        state.used -= held;
        state.over_limit &= state.used > state.capacity;
        state.freed_by = match state.freed_by {
            FreedBy::None => FreedBy::One(tenant),
            FreedBy::One(other) if other == tenant => FreedBy::One(tenant),
            _ => FreedBy::Many,
        };
    }

    /// Counts a copy as leaving a tier, or stops counting it if `leaves` is false.
    pub(super) fn set_leaving(&mut self, tier: Tier, tenant: u16, bytes: u64, leaves: bool) {
        let held = self.footprint(tier, bytes);
        let whole = &mut self.tiers[usize::from(tier)].leaving;
        let part = &mut self.tenants[usize::from(tenant)].leaving[usize::from(tier)];
        for sum in [whole, part] {
            *sum = if leaves { *sum + held } else { *sum - held };
        }
    }

    /// How many more bytes a tenant's copies may take in a tier before they reach the tenant's cap there.
    pub(super) fn cap_room(&self, tier: Tier, tenant: u16) -> u64 {
        let tenant = &self.tenants[usize::from(tenant)];
        tenant.quota.tier_caps[usize::from(tier)].saturating_sub(tenant.held[usize::from(tier)])
    }

    /// Whether a tier could take a copy of a buffer once it has room: it is not suspended, and its capacity and the
    /// tenant's cap allow the copy. Both always allow it where the buffer has a stale copy, whose room is reused.
    pub(super) fn accepts(&self, tier: Tier, buffer: &BufferRecord) -> bool {
        let state = &self.tiers[usize::from(tier)];
        let may = state.capacity.min(self.cap_room(tier, buffer.tenant)) >= state.footprint(buffer.bytes);
        state.suspended_until.is_none() && (may || buffer.residence.present(tier))
    }

    /// Whether a copy of a buffer fits into a tier now, beside `others` bytes that will be reserved there. It always
    /// fits where the buffer has a copy, even a stale one, as that has its room already.
    pub(super) fn fits(&self, buffer: &BufferRecord, tier: Tier, others: u64) -> bool {
        let room = self.tiers[usize::from(tier)].room().min(self.cap_room(tier, buffer.tenant));
        buffer.residence.present(tier) || room >= self.footprint(tier, buffer.bytes).saturating_add(others)
    }
}
