//! Bytes: how many each tier holds, and each tenant of them.
//!
//! Promises upward: sums are kept by the calls here, and by grants and ends of buffers, and never overflow: capacities
//! are at most 2^60 each, so that eight of them stay below 2^64.
//! Asks from below: nothing.

use super::error::SetupError;
use super::table::Buffer;
use super::words::{Share, TierKind, TierSpec};
use super::{Ledger, Tier};
use terrace_core::pressure::{Level, Pressure};
use terrace_core::residence::TIERS;

/// A tier counts for no more than that: 1 EiB.
pub(super) const MOST: u64 = 1 << 60;

/// Whose bytes may lie in a tier's free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nobody,
    One(u16),
    Many,
}

/// One tier.
#[derive(Debug)]
pub(super) struct TierState {
    pub kind: TierKind,
    pub capacity: u64,
    /// A copy counts in multiples of it.
    pub unit: u64,
    /// Bytes of copies present, and of motions for which room was taken. At most `capacity`, unless `over`.
    pub used: u64,
    /// Bytes of motions that will free them here. At most `used`.
    pub leaving: u64,
    /// Copies under way to here.
    pub coming: usize,
    /// It was resized to less than it holds, or adopted more, and holds that still.
    pub over: bool,
    pub pressure: Pressure,
    /// The level that was told last.
    pub told: Level,
    /// Copies into it that failed since one was done.
    pub failures: u32,
    /// When it takes copies again.
    pub rests_until: Option<u64>,
    /// For whom so many bytes could not be made free, since the last event that may change this.
    pub dry: Option<(Option<u16>, u64)>,
    /// It was filled to 80 % and not emptied to 60 % since.
    pub draining: bool,
    pub left: Left,
}

impl TierState {
    pub(super) fn new(spec: &TierSpec) -> Self {
        let capacity = spec.capacity.min(MOST);
        Self {
            kind: spec.kind,
            capacity,
            unit: spec.unit.max(1),
            used: 0,
            leaving: 0,
            coming: 0,
            over: false,
            pressure: Pressure::new(capacity),
            told: Level::Normal,
            failures: 0,
            rests_until: None,
            dry: None,
            draining: false,
            left: Left::Nobody,
        }
    }

    /// Bytes that a copy of so many takes here.
    pub(super) fn held(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.unit).saturating_mul(self.unit)
    }

    /// The most bytes of a copy that takes no more than so many here.
    pub(super) fn largest(&self, room: u64) -> u64 {
        room - room % self.unit
    }

    /// Bytes that can be taken now.
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Bytes that must leave, beyond those that are about to, before so many more can be taken.
    pub(super) fn lacks(&self, held: u64) -> u64 {
        (self.used - self.leaving).saturating_add(held).saturating_sub(self.capacity)
    }
}

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub share: Share,
    /// Bytes of its buffers. At most `share.cap`, unless `over`.
    pub bytes: u64,
    /// It adopted more than it may have, here or in all, and has that still.
    pub over: bool,
    /// Bytes of its copies in each tier, with those under way to it. At most `share.caps`, unless `over`.
    pub held: [u64; TIERS as usize],
    /// Bytes of those that are about to leave.
    pub leaving: [u64; TIERS as usize],
}

impl Tenant {
    pub(super) fn new(share: Share) -> Self {
        Self { share, bytes: 0, over: false, held: [0; TIERS as usize], leaving: [0; TIERS as usize] }
    }

    /// Whether it has more than it may.
    pub(super) fn is_above(&self) -> bool {
        self.bytes > self.share.cap || self.held.iter().zip(&self.share.caps).any(|(held, cap)| held > cap)
    }
}

/// Whether a ledger can be made of this.
pub(super) fn examine(tiers: &[TierState], shares: &[Share]) -> Result<(), SetupError> {
    if tiers.len() > usize::from(TIERS) {
        return Err(SetupError::TooManyTiers);
    }
    if tiers.iter().all(|tier| tier.capacity == 0) {
        return Err(SetupError::NoTiers);
    }
    if shares.is_empty() || shares.len() > usize::from(u16::MAX) {
        return Err(SetupError::Tenants);
    }
    for (at, tier) in tiers.iter().enumerate() {
        let promised = shares.iter().fold(0u64, |sum, share| sum.saturating_add(share.promised[at]));
        if promised > tier.capacity {
            return Err(SetupError::Promised { tier: at as u8, promised, capacity: tier.capacity });
        }
    }
    Ok(())
}

impl Ledger {
    /// Bytes that a copy of so many takes in a tier.
    pub(super) fn held(&self, tier: Tier, bytes: u64) -> u64 {
        self.tiers[usize::from(tier)].held(bytes)
    }

    /// Takes room for a copy in a tier.
    pub(super) fn reserve(&mut self, tier: Tier, tenant: u16, bytes: u64) {
        let held = self.held(tier, bytes);
        self.tiers[usize::from(tier)].used += held;
        self.tenants[usize::from(tenant)].held[usize::from(tier)] += held;
    }

    /// Gives the room of a copy back, which may still hold its bytes.
    pub(super) fn release(&mut self, tier: Tier, tenant: u16, bytes: u64) {
        let held = self.held(tier, bytes);
        let whose = &mut self.tenants[usize::from(tenant)];
        whose.held[usize::from(tier)] -= held;
        whose.over &= whose.is_above();
        // Copies above have somewhere to go.
        self.tiers[..usize::from(tier)].iter_mut().for_each(|above| above.dry = None);
        let state = &mut self.tiers[usize::from(tier)];
        state.used -= held;
        state.over &= state.used > state.capacity;
        state.left = match state.left {
            Left::Nobody => Left::One(tenant),
            Left::One(other) if other == tenant => Left::One(tenant),
            _ => Left::Many,
        };
    }

    /// A copy is about to leave a tier, or is not any more.
    pub(super) fn leave(&mut self, tier: Tier, tenant: u16, bytes: u64, leaves: bool) {
        let held = self.held(tier, bytes);
        let whole = &mut self.tiers[usize::from(tier)].leaving;
        let part = &mut self.tenants[usize::from(tenant)].leaving[usize::from(tier)];
        for sum in [whole, part] {
            *sum = if leaves { *sum + held } else { *sum - held };
        }
    }

    /// Bytes a tenant's copies may still take in a tier, by its cap there.
    pub(super) fn cap_room(&self, tier: Tier, tenant: u16) -> u64 {
        let tenant = &self.tenants[usize::from(tenant)];
        tenant.share.caps[usize::from(tier)].saturating_sub(tenant.held[usize::from(tier)])
    }

    /// Whether a copy of a buffer could come into a tier if there were room: it does not rest, and is large enough and
    /// the tenant's cap allows it, or there is an old copy already.
    pub(super) fn is_open(&self, tier: Tier, buffer: &Buffer) -> bool {
        let state = &self.tiers[usize::from(tier)];
        let may = state.capacity.min(self.cap_room(tier, buffer.tenant)) >= state.held(buffer.bytes);
        state.rests_until.is_none() && (may || buffer.residence.present(tier))
    }

    /// Whether a copy of a buffer fits into a tier now, beside `others` bytes that will be taken in it.
    pub(super) fn fits(&self, buffer: &Buffer, tier: Tier, others: u64) -> bool {
        let room = self.tiers[usize::from(tier)].room().min(self.cap_room(tier, buffer.tenant));
        buffer.residence.present(tier) || room >= self.held(tier, buffer.bytes).saturating_add(others)
    }
}
