//! What the manager's tracker learns of each buffer; nothing without the feature `track`.
//!
//! Promises upward: while no tracker of the process is on, an allocation costs a load and a branch for each of two steps,
//! and a free a comparison; a list says in which tier each buffer is when the list is made.
//! Asks from below: callers hold the manager's lock where buffers come and go, so that a buffer's stamp is set before any
//! thread can free it. The tracker's locks are innermost: no other is taken under them.

use super::ManagerShared;
use super::buffer_state::BufferState;
use crate::ledger::BufferId;
use std::sync::Weak;
use terrace_core::residence::Tier;
use terrace_core::settings::DebugSwitches;
#[cfg(feature = "track")]
use {
    super::Manager,
    std::sync::Arc,
    terrace_core::event::{Event, Kind},
    terrace_track::{Origin, Stamp, TrackMode, Tracker},
};

/// For what, and from where, a caller asked for a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferOrigin {
    #[cfg(feature = "track")]
    origin: Origin,
}

/// What the tracker's free of a buffer needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferStamp {
    #[cfg(feature = "track")]
    stamp: Stamp,
}

/// The manager's tracker.
pub(super) struct BufferTracking {
    #[cfg(feature = "track")]
    tracker: Arc<Tracker>,
}

/// The number by which the tracker knows a buffer; no other buffer of the manager ever has it.
#[cfg(feature = "track")]
fn key_of(id: BufferId) -> u64 {
    u64::from(id.generation()) << 32 | id.index() as u64
}

#[cfg(feature = "track")]
impl BufferTracking {
    pub(super) fn new(manager: &Weak<ManagerShared>, debug: DebugSwitches) -> Self {
        let manager = Weak::clone(manager);
        let id_of = |key: u64| BufferId::from_parts(key as u32, (key >> 32) as u32);
        let locate = move |key| manager.upgrade()?.location_of(id_of(key));
        let tracker = Arc::new(Tracker::new("manager", &["manager"]).locate_by(locate));
        if debug.records() {
            tracker.set_mode(if debug.sites { TrackMode::Sites } else { TrackMode::Records });
            tracker.print_leaks();
        }
        Self { tracker }
    }

    /// The origin of a request that the calling thread makes now.
    #[inline(always)]
    pub(super) fn origin(&self) -> BufferOrigin {
        BufferOrigin { origin: if terrace_track::any() { self.tracker.origin() } else { Origin::default() } }
    }

    /// Tells the tracker of a new buffer, which is in a tier.
    #[inline(always)]
    pub(super) fn allocated(&self, asked: BufferOrigin, id: BufferId, bytes: u64, tier: Tier) -> BufferStamp {
        let told = || {
            let stamp = self.tracker.allocated_from(asked.origin, key_of(id), bytes, 0);
            let new = || Event { kind: Kind::Allocate, id: key_of(id), bytes, align: 1, tier, ..Event::default() };
            self.tell(stamp, asked.origin, new);
            stamp
        };
        BufferStamp { stamp: if terrace_track::any() { told() } else { Stamp::NONE } }
    }

    /// Tells the tracker that a buffer's bytes were copied to another tier.
    #[inline(always)]
    pub(super) fn copied(&self, buffer: &BufferState, from_tier: Tier, tier: Tier) {
        let (id, bytes) = (key_of(buffer.id), buffer.bytes);
        let copied = || Event { kind: Kind::Transfer, id, bytes, tier, from_tier, ..Event::default() };
        self.tell(buffer.stamp.stamp, Origin::default(), copied);
    }

    /// Tells the tracker that a buffer is gone.
    #[inline(always)]
    pub(super) fn freed(&self, BufferStamp { stamp }: BufferStamp, id: BufferId, bytes: u64) {
        // In this order: a recorder that begins between the two knows of neither the buffer nor its free.
        self.tracker.freed(stamp, key_of(id), bytes);
        self.tell(stamp, Origin::default(), || Event { kind: Kind::Free, id: key_of(id), ..Event::default() });
    }

    /// Tells a recorder of what happened to a buffer that is tracked.
    #[inline(always)]
    fn tell(&self, stamp: Stamp, origin: Origin, event: impl FnOnce() -> Event) {
        if !stamp.is_none() {
            self.tracker.tell_event(origin, event);
        }
    }
}

#[cfg(not(feature = "track"))]
impl BufferTracking {
    pub(super) fn new(_: &Weak<ManagerShared>, debug: DebugSwitches) -> Self {
        static TOLD: std::sync::Once = std::sync::Once::new();
        if debug.records() {
            let said = format!("debug={debug:?}: live buffers of managers need the feature `track`");
            TOLD.call_once(|| super::debug::tell(&said));
        }
        Self {}
    }

    #[inline(always)]
    pub(super) fn origin(&self) -> BufferOrigin {
        BufferOrigin {}
    }

    #[inline(always)]
    pub(super) fn allocated(&self, _: BufferOrigin, _: BufferId, _: u64, _: Tier) -> BufferStamp {
        BufferStamp {}
    }

    #[inline(always)]
    pub(super) fn copied(&self, _: &BufferState, _: Tier, _: Tier) {}

    #[inline(always)]
    pub(super) fn freed(&self, _: BufferStamp, _: BufferId, _: u64) {}
}

#[cfg(feature = "track")]
impl ManagerShared {
    /// The tier that has a buffer's newest bytes, in words. Takes the manager's lock.
    fn location_of(&self, id: BufferId) -> Option<String> {
        let tier: Tier = self.state().ledger.view(id).ok()?.residence.best();
        Some(format!("tier {tier} ({})", self.tiers.get(usize::from(tier))?.device))
    }
}

#[cfg(feature = "track")]
impl Manager {
    /// The manager's tracker: which buffers are live, since when, in which tier; off until its mode is set.
    ///
    /// A buffer's key is its id. Mapped files are not tracked, and neither are durable buffers that a restart
    /// recovered. A buffer that waited for room counts for the thread that made room, under the tag and with the call
    /// site of the caller.
    ///
    /// # Example
    /// ```
    /// use terrace_tiers::{Manager, manager::track::{TrackMode, tag}};
    /// let manager = Manager::builder().memory(1 << 20).build()?;
    /// manager.tracker().set_mode(TrackMode::Records);
    /// let _tag = tag("kv-cache");
    /// let buffer = manager.allocate(4096)?;
    /// let live = manager.tracker().live();
    /// assert_eq!((&*live.blocks[0].tag, &*live.blocks[0].location), ("kv-cache", "tier 0 (cpu)"));
    /// println!("{live}");
    /// drop(buffer);
    /// assert!(manager.tracker().live().is_empty());
    /// # Ok::<(), terrace_tiers::Error>(())
    /// ```
    pub fn tracker(&self) -> &Arc<Tracker> {
        &self.shared.tracking.tracker
    }
}
