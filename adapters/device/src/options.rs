//! How a device's memory is kept.

use crate::store::{ArenaCapacity, HeapStore, heap_parts};
use terrace_core::arena::{ArenaParts, ArenaSettings};
use terrace_core::pressure::Level;
use terrace_core::settings::{self, BadSetting, DebugSwitches, Profile, Spec, Surface, Value};
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

impl PoolOrigin {
    /// All, in the order of the words of [`ORIGIN`](settings::ORIGIN).
    pub const ALL: [Self; 5] = [Self::Auto, Self::Pages, Self::Segments, Self::DriverPool, Self::Managed];
}

/// Options of a device. All sizes in bytes.
///
/// [`terrace_core::settings`] has their defaults, and what each may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Where memory comes from.
    pub origin: PoolOrigin,
    /// The most to take for the pool; 0: `device_fraction` of what the device has. Pinned and managed memory and graphs' pools are
    /// beside it.
    pub capacity: u64,
    /// Share of the device's memory to take at most, where `capacity` is 0.
    pub device_fraction: f64,
    /// Left to others, at most an eighth of the device's memory: where `capacity` is 0, it is that much less than the device
    /// has at most; on devices that share the host's memory, so much stays available in any case.
    pub min_free: u64,
    /// Smallest step of size and least alignment, a power of two. The default is what a driver's own allocation is aligned to; a
    /// device whose driver asks for more has more.
    pub granule: u64,
    /// Sizes up to this one go through their stream's cache.
    pub small_threshold: u64,
    /// Most bytes a stream keeps in its cache.
    pub stream_cache: u64,
    /// Most bytes that the caches of all streams hold together. Beyond it they are emptied into the pool, where free memory merges;
    /// looked at by calls that reach the pool. 0: freed blocks merge at once, nothing is cached; `u64::MAX`: when memory is short.
    pub coalesce: u64,
    /// Whether the streams' caches keep less while pressure is high, and as much as `stream_cache` when it is not any more: looked at by
    /// calls that reach the pool, never by hits.
    pub adapt: bool,
    /// Bytes that the pool keeps taken from the driver: [`Device::trim`](crate::Device::trim) and
    /// [`Device::maintain`](crate::Device::maintain) give back what is unused beyond them.
    pub keep: u64,
    /// Milliseconds after which [`Device::maintain`](crate::Device::maintain) gives back what the pool did not need at any time of
    /// them, which takes one to two of these; 0: never.
    pub idle: u32,
    /// Most blocks of one size a stream keeps in its cache.
    pub pooled_per_bucket: u32,
    /// Bytes of the least segment taken, as far as that stays within a fifth beyond the peak in use.
    pub segment: u64,
    /// Most bytes of one of the driver's handles of memory that is mapped as pages. Handles become smaller, down to a page, as the
    /// pool nears its capacity: a handle moves and goes back only as a whole.
    pub largest_handle: u64,
    /// Share of the capacity up to which pages are mapped and none are moved, which takes driver calls and waits for streams; in
    /// steps of a permille. 1: they move when there is no more memory.
    pub move_above: f64,
    /// Which free block a request gets.
    pub strategy: Fit,
    /// Shares of the capacity at which pressure becomes moderate, high and critical, in steps of a permille.
    pub pressure: [f64; 3],
    /// Whether memory that comes fresh from the driver is filled with zeros. What is used again is not.
    pub zero_fresh: bool,
    /// Whether pinned host memory is given when the device has none left. Counted; off by default: kernels get slow.
    pub fallback: bool,
    /// Whether pages are open to every device that can reach this one, from the first on: for runtimes that let devices reach
    /// each other without saying so. Where one of the others cannot reach it, [`PoolOrigin::Auto`] then takes segments, which a
    /// driver copies to any device. Otherwise to those that [`Device::reach`](crate::Device::reach) names; the driver opens
    /// whole segments itself.
    pub peer_access: bool,
    /// The most blocks in each of the two areas, small and large.
    pub blocks: usize,
    /// What is listed of live blocks at the end, by `leaks` and `sites`, with the feature `track`; other words act on managers.
    pub debug: DebugSwitches,
}

/// What the core's table of settings says of devices.
impl Default for DeviceOptions {
    fn default() -> Self {
        let usual = |spec: Spec| spec.of(Profile::Device).default;
        Self {
            origin: PoolOrigin::ALL[usual(settings::ORIGIN).word()],
            capacity: usual(settings::CAPACITY).number(),
            device_fraction: usual(settings::DEVICE_FRACTION).share(),
            min_free: usual(settings::MIN_FREE).number(),
            granule: usual(settings::GRANULE).number(),
            small_threshold: usual(settings::SMALL_THRESHOLD).number(),
            stream_cache: usual(settings::STREAM_CACHE).number(),
            coalesce: usual(settings::COALESCE).number(),
            adapt: usual(settings::ADAPT).is_on(),
            keep: usual(settings::KEEP).number(),
            idle: usual(settings::IDLE).number() as u32,
            pooled_per_bucket: usual(settings::POOLED_PER_BUCKET).number() as u32,
            segment: usual(settings::SEGMENT).number(),
            largest_handle: usual(settings::LARGEST_HANDLE).number(),
            move_above: usual(settings::MOVE_ABOVE).share(),
            strategy: Fit::ALL[usual(settings::STRATEGY).word()],
            pressure: usual(settings::PRESSURE).shares(),
            zero_fresh: usual(settings::ZERO_FRESH).is_on(),
            fallback: usual(settings::FALLBACK).is_on(),
            peer_access: usual(settings::PEER_ACCESS).is_on(),
            blocks: usual(settings::BLOCKS).number() as usize,
            debug: usual(settings::DEBUG).switches(),
        }
    }
}

impl DeviceOptions {
    /// Refuses what no device can work with.
    ///
    /// # Errors
    /// The first option that is out of bounds.
    pub(crate) fn check(&self) -> Result<(), BadSetting> {
        settings::check(Surface::Device, |name| {
            Some(match name {
                "granule" => Value::Number(self.granule),
                "small_threshold" => Value::Number(self.small_threshold),
                "segment" => Value::Number(self.segment),
                "device_fraction" => Value::Share(self.device_fraction),
                "largest_handle" => Value::Number(self.largest_handle),
                "move_above" => Value::Share(self.move_above),
                "pressure" => Value::Shares(self.pressure),
                "blocks" => Value::Number(self.blocks as u64),
                // Any value of their types will do.
                _ => return None,
            })
        })
    }

    /// Most bytes of a stream's cache at a level of pressure: a step down, by 1.5, at high and at critical pressure.
    pub(crate) fn cached_at(&self, level: Level) -> u64 {
        let most = self.stream_cache.min(self.coalesce);
        match level {
            Level::Normal | Level::Elevated => most,
            Level::High => most / 3 * 2,
            Level::Critical => most / 9 * 4,
        }
    }

    /// Most blocks of one size in a stream's cache: none where freed blocks merge at once.
    pub(crate) fn blocks_of_a_size(&self) -> u32 {
        if self.coalesce == 0 { 0 } else { self.pooled_per_bucket }
    }

    /// Permille of the capacity at which elevated, high and critical pressure begin.
    pub(crate) fn pressure_begins(&self) -> [u64; 3] {
        self.pressure.map(|share| (share * 1000.0).round() as u64)
    }

    /// Storage for an arena.
    pub(crate) fn parts(&self, room: ArenaCapacity) -> ArenaParts<HeapStore<AnyFit<Box<[Branch]>>>> {
        heap_parts(room, |branches| AnyFit::new(self.strategy, branches))
    }

    /// The settings of the arena over pages or segments.
    pub(crate) fn arena(&self, pages: bool) -> ArenaSettings {
        let move_above = (self.move_above * 1000.0) as u32;
        let pages_base = ArenaSettings { move_above, ..ArenaSettings::device_pages() };
        let base = if pages { pages_base } else { ArenaSettings::device_segments() };
        let (granule, small_threshold, segment) = (self.granule, self.small_threshold, self.segment);
        ArenaSettings { granule, small_threshold, segment, zero_fresh: self.zero_fresh, ..base }
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

#[cfg(test)]
mod tests {
    use super::DeviceOptions;

    #[test]
    fn options_out_of_bounds_are_named() {
        type Change = fn(&mut DeviceOptions);
        let cases: [(&str, Change); 10] = [
            ("granule takes a power of two from 64 to 2MiB", |options| options.granule = 32),
            ("segment takes whole bytes", |options| options.segment = options.granule - 1),
            ("segment takes whole bytes", |options| options.segment = (1 << 48) + 1),
            ("small_threshold takes whole bytes", |options| options.small_threshold = (options.granule << 16) + 1),
            ("device_fraction takes a number above 0", |options| options.device_fraction = f64::NAN),
            ("largest_handle takes whole bytes", |options| options.largest_handle = 0),
            ("move_above takes a number above 0", |options| options.move_above = 1.5),
            ("pressure takes three rising shares", |options| options.pressure = [0.6, 0.6, 0.9]),
            ("blocks takes a whole number from 1 to 16777216", |options| options.blocks = 0),
            ("blocks takes a whole number", |options| options.blocks = (1 << 24) + 1),
        ];
        for (said, change) in cases {
            let mut options = DeviceOptions::default();
            assert_eq!(options.check(), Ok(()));
            change(&mut options);
            assert!(options.check().is_err_and(|bad| bad.to_string().starts_with(said)), "{said}");
        }
    }
}
