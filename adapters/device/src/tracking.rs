//! What a device's tracker learns of each block; nothing without the feature `track`.
//!
//! Promises upward: while no tracker of the process is on, an allocation costs a comparison of one word in memory and a
//! branch, and so does a free. Without the feature both cost nothing.
//! Asks from below: the pool's tracker; tickets of blocks below 2^50, which one device cannot give in seven years.

use crate::stream::{BlockOrigin, StreamCore};
use terrace_core::settings::DebugSwitches;
use terrace_core::{Block, Request};
#[cfg(feature = "track")]
use {
    terrace_core::event::{Event, Kind},
    terrace_track::{Origin, Stamp, TrackMode, Tracker},
};

/// A live block, with what the tracker's free of it needs.
///
/// The stamp lies in the highest bits of the block's ticket, which are zero otherwise: a stamp of zero is no store of its own.
pub(crate) struct StampedBlock {
    block: Block,
}

/// The bit of a ticket at which a stamp begins. The two lowest bits of a stamp are zero.
#[cfg(feature = "track")]
const STAMP: u32 = 48;

impl StampedBlock {
    /// Tells the tracker of an allocation.
    #[inline(always)]
    pub(crate) fn allocated(block: Block, asked: Request, origin: BlockOrigin, home: &StreamCore) -> Self {
        #[cfg(feature = "track")]
        if terrace_track::any() {
            let stamp = ticket_of(&block, asked, place_of(origin), home);
            return Self { block: Block { ticket: block.ticket | stamp, ..block } };
        }
        #[cfg(not(feature = "track"))]
        let _ = (asked, origin, home);
        Self { block }
    }

    /// Whether the tracker was told of the allocation.
    #[inline(always)]
    pub(crate) fn is_tracked(&self) -> bool {
        cfg!(feature = "track") && self.block.ticket.cast_signed() < 0
    }

    /// Tells the tracker of a free, and forgets the stamp. Caller must call it before other code can get the memory.
    #[cold]
    pub(crate) fn tell_freed(&mut self, home: &StreamCore) {
        #[cfg(feature = "track")]
        {
            let Block { address, bytes, ticket, .. } = self.block;
            self.block.ticket = ticket & ((1 << (STAMP + 2)) - 1);
            let freed = || Event { kind: Kind::Free, id: address, owner: home.owner, ..Event::default() };
            // In this order: a recorder that begins between the two knows of neither the block nor its free.
            home.tracker.freed(Stamp::from_bits((ticket >> STAMP) as u16 & !3), address, bytes);
            home.tracker.tell_event(Origin::default(), freed);
        }
        #[cfg(not(feature = "track"))]
        let _ = home;
    }

    /// The block, which must not be tracked any more.
    #[inline(always)]
    pub(crate) fn block(&self) -> Block {
        self.block
    }

    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.block.address
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        self.block.bytes
    }
}

/// Tells the tracker of an allocation; returns the stamp as bits of the block's ticket.
#[cfg(feature = "track")]
#[cold]
fn ticket_of(block: &Block, asked: Request, place: Option<u8>, home: &StreamCore) -> u64 {
    let Some(place) = place else { return 0 };
    let (origin, address) = (home.tracker.origin(), block.address);
    let stamp = home.tracker.allocated_from(origin, address, block.bytes, place);
    if !stamp.is_none() {
        let Request { bytes, align, .. } = asked;
        let place = Event { id: address, address: Some(address), owner: home.owner, ..Event::default() };
        home.tracker.tell_event(origin, || Event { kind: Kind::Allocate, bytes, align, ..place });
    }
    u64::from(stamp.to_bits()) << STAMP
}

/// Makes the tracker of a device, which records from now on if `debug` asks for it. The places are by [`place_of`].
#[cfg(feature = "track")]
pub(crate) fn tracker_of(device: &crate::capability::Description, debug: DebugSwitches) -> std::sync::Arc<Tracker> {
    let own = format!("device {}", device.ordinal);
    let places = ["", " pinned", " managed", " fallback", " graph"].map(|kind| format!("{own}{kind}"));
    let name = format!("{} ({} {})", own, device.backend, device.name);
    let tracker = std::sync::Arc::new(Tracker::new(&name, &places.each_ref().map(|place| &**place)));
    if debug.records() {
        tracker.set_mode(if debug.sites { TrackMode::Sites } else { TrackMode::Records });
        tracker.print_leaks();
    }
    tracker
}

/// Says once in the process that live blocks cannot be listed, if `debug` asks for that.
#[cfg(not(feature = "track"))]
pub(crate) fn tell_absent(debug: DebugSwitches) {
    use std::io::Write;
    static TOLD: std::sync::Once = std::sync::Once::new();
    if debug.records() {
        // A process without that stream cannot be told.
        TOLD.call_once(|| {
            let _ = writeln!(
                std::io::stderr(),
                "terrace: debug={debug:?}: live blocks of devices need the feature `track`"
            );
        });
    }
}

/// The number of a block's place in the tracker; none for memory that the device did not allocate.
#[cfg(feature = "track")]
fn place_of(origin: BlockOrigin) -> Option<u8> {
    use crate::stream::HostMemory;
    Some(match origin {
        BlockOrigin::Pool => 0,
        BlockOrigin::Host(HostMemory::Pinned) => 1,
        BlockOrigin::Host(HostMemory::Managed) => 2,
        BlockOrigin::Host(HostMemory::Fallback) => 3,
        BlockOrigin::Graph(_) => 4,
        BlockOrigin::Foreign => return None,
    })
}
