//! What a device's tracker learns of each block; nothing without the feature `track`.
//!
//! Promises upward: while no tracker of the process is on, an allocation costs a load, a branch, and a stamp of zero in
//! the block; a free costs a comparison of that stamp and a branch. Without the feature both cost nothing.
//! Asks from below: the pool's tracker (`Service::tracker`).

use crate::stream::{BlockOrigin, StreamCore};
use terrace_core::Block;
use terrace_core::settings::DebugSwitches;
#[cfg(feature = "track")]
use terrace_track::{Stamp, TrackMode, Tracker};

/// What the tracker's free of a block needs.
pub(crate) struct BlockStamp {
    #[cfg(feature = "track")]
    stamp: Stamp,
}

#[cfg(feature = "track")]
impl BlockStamp {
    /// Tells the tracker of an allocation.
    #[inline(always)]
    pub(crate) fn allocated(block: &Block, origin: BlockOrigin, home: &StreamCore) -> Self {
        Self { stamp: if terrace_track::any() { stamp(block, origin, home) } else { Stamp::NONE } }
    }

    /// Tells the tracker of a free. Caller must call it before other code can get the memory.
    #[inline(always)]
    pub(crate) fn freed(&self, block: &Block, home: &StreamCore) {
        if !self.stamp.is_none() {
            free(self.stamp, block, home);
        }
    }
}

#[cfg(not(feature = "track"))]
impl BlockStamp {
    #[inline(always)]
    pub(crate) fn allocated(_: &Block, _: BlockOrigin, _: &StreamCore) -> Self {
        Self {}
    }

    #[inline(always)]
    pub(crate) fn freed(&self, _: &Block, _: &StreamCore) {}
}

#[cfg(feature = "track")]
#[cold]
fn stamp(block: &Block, origin: BlockOrigin, home: &StreamCore) -> Stamp {
    let tracker = home.service.tracker();
    place_of(origin).map_or(Stamp::NONE, |place| tracker.allocated(block.address, block.bytes, place))
}

#[cfg(feature = "track")]
#[cold]
fn free(stamp: Stamp, block: &Block, home: &StreamCore) {
    home.service.tracker().freed(stamp, block.address, block.bytes);
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
