//! How a device's memory is kept.

use crate::store::{ArenaCapacity, HeapStore, heap_parts};
use terrace_core::arena::{ArenaParts, ArenaSettings};
use terrace_core::{AnyFit, Branch, Fit};

/// Where memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolOrigin {
    /// Pages where the device can map them, else segments.
    #[default]
    Auto,
    /// Pages: opening the device fails where it cannot map them.
    Pages,
    /// Segments, each one allocation of the driver.
    Segments,
    /// Segments out of the driver's own pool.
    DriverPool,
    /// Segments of managed memory: one address for host and device.
    Managed,
}

/// Options of a device. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Where memory comes from.
    pub origin: PoolOrigin,
    /// The most to take for the pool; 0: `device_fraction` of what the device has. Pinned and managed memory and graphs' pools are
    /// beside it.
    pub capacity: u64,
    /// Share of the device's memory to take at most, where `capacity` is 0; above 0, at most 1.
    pub device_fraction: f64,
    /// Left to others, at most an eighth of the device's memory: where `capacity` is 0, it is that much less than the device
    /// has at most; on devices that share the host's memory, so much stays available in any case.
    pub min_free: u64,
    /// Smallest step of size and least alignment, a power of two. 256: what a driver's own allocation is aligned to.
    pub granule: u64,
    /// Sizes up to this one go through their stream's cache.
    pub small_threshold: u64,
    /// Most bytes a stream keeps in its cache.
    pub cached: u64,
    /// Most blocks of one size a stream keeps in its cache.
    pub pooled_per_bucket: u32,
    /// Bytes of the least segment taken, as far as that stays within a fifth beyond the peak in use. Pages come one by one.
    pub segment: u64,
    /// Which free block a request gets.
    pub strategy: Fit,
    /// Shares of the capacity at which pressure becomes moderate, high and critical, in steps of a permille.
    pub pressure: [f64; 3],
    /// Whether memory that comes fresh from the driver is filled with zeros. What is used again is not.
    pub zero_fresh: bool,
    /// Whether pinned host memory is given when the device has none left. Counted; off by default: kernels get slow.
    pub fallback: bool,
    /// Whether pages are open to every device that can reach this one, from the first on: for runtimes that let devices reach
    /// each other without saying so. Otherwise to those that [`Device::reach`](crate::Device::reach) names; the driver opens
    /// whole segments itself.
    pub peers: bool,
    /// The most blocks in each of the two areas, small and large.
    pub blocks: usize,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        let arena = ArenaSettings::growing();
        Self {
            origin: PoolOrigin::Auto,
            capacity: 0,
            device_fraction: 0.9,
            min_free: 512 << 20,
            granule: 256,
            small_threshold: arena.small_threshold,
            // A cached block keeps its page from being moved away: the 32nd part of a page of 2 MiB at most.
            cached: 64 << 10,
            pooled_per_bucket: 64,
            segment: 4 << 20,
            strategy: Fit::Best,
            pressure: [0.6, 0.8, 0.95],
            zero_fresh: false,
            fallback: false,
            peers: false,
            blocks: 1 << 18,
        }
    }
}

impl DeviceOptions {
    /// Refuses what no device can work with.
    ///
    /// # Errors
    /// The rule that is broken.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !self.granule.is_power_of_two() || !(64..=2 << 20).contains(&self.granule) {
            return Err("granule is a power of two from 64 bytes to 2 MiB");
        }
        if !(self.device_fraction > 0.0 && self.device_fraction <= 1.0) {
            return Err("device_fraction is above 0 and at most 1");
        }
        let [moderate, high, critical] = self.pressure;
        if !(0.0 < moderate && moderate < high && high < critical && critical <= 1.0) {
            return Err("pressure is three rising shares above 0 and at most 1");
        }
        if self.segment < self.granule || self.segment > 1 << 48 {
            return Err("segment is at least a granule and at most 2^48 bytes");
        }
        if self.blocks == 0 || self.blocks > 1 << 24 {
            return Err("blocks is from 1 to 2^24");
        }
        if self.small_threshold > self.granule << 16 {
            return Err("small is at most 2^16 granules");
        }
        Ok(())
    }

    /// Storage for an arena.
    pub(crate) fn parts(&self, room: ArenaCapacity) -> ArenaParts<HeapStore<AnyFit<Box<[Branch]>>>> {
        heap_parts(room, |branches| AnyFit::new(self.strategy, branches))
    }

    /// The settings of the arena over pages or segments.
    pub(crate) fn arena(&self, pages: bool) -> ArenaSettings {
        // Caching is the streams' affair: the arena merges at once, as far as fences allow.
        let coalesce = terrace_core::arena::Coalesce::AtOnce;
        // Segments for three of what is asked for, kept up to a fifth beyond the peak: no more calls than PyTorch's allocator
        // makes over trainings and large blocks, and less memory (tests/tests/device_scenarios.rs).
        let segments =
            ArenaSettings { segment_multiple: 3, spare_multiple: 2, slack: 200, ..ArenaSettings::segments() };
        // 2.9 % beyond the peak: pages are used to 97 %.
        let growing = ArenaSettings { max_slack: 29, ..ArenaSettings::growing() };
        let base = if pages { growing } else { segments };
        let (granule, small_threshold, segment) = (self.granule, self.small_threshold, self.segment);
        ArenaSettings { granule, small_threshold, segment, coalesce, zero_fresh: self.zero_fresh, ..base }
    }

    /// The settings of arenas over pinned memory: a region is what is asked for, or a twentieth of the peak when that is more;
    /// what is vacant beyond that twentieth goes back. Pinned memory is lost to all other programs on the machine, so 20.4 GiB
    /// pin 20.4 (tests/tests/device_pinned.rs; three times as much with the device's own settings).
    pub(crate) fn side(&self) -> ArenaSettings {
        // Larger than a twentieth of any peak: the slack decides.
        let segment = 4 << 30;
        let grain = self.granule.max(64 << 10);
        ArenaSettings { segment_multiple: 1, spare_multiple: 0, slack: 50, segment, grain, ..self.arena(false) }
    }
}
