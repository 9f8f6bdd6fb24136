//! A device's memory kept in shape: caches emptied, pages moved together, what is unused given back.

use crate::device::Device;
use crate::error::DeviceError;
use crate::stats::DeviceMaintenance;
use std::time::Instant;
use terrace_core::arena::Defragmentation;
use terrace_core::pressure::{CachePolicy, Level, level_from};

impl Device {
    /// Memory pressure: how much of the pool's capacity is in use.
    pub fn pressure(&self) -> Level {
        let pool = self.stats().pool;
        level_from(pool.in_use, pool.capacity, self.service.options().pressure_begins())
    }

    /// Empties the streams' caches into the pool, where free memory merges; returns their bytes.
    ///
    /// Nothing goes back to the driver. The pool does so itself when memory is short, and as the option `coalesce` says. O(cached blocks).
    ///
    /// # Example
    /// ```
    /// use terrace_device::Device;
    /// let device = Device::host();
    /// let stream = device.stream()?;
    /// drop(device.allocate(&stream, 4096)?);
    /// assert_eq!((device.stats().pool.pooled, device.coalesce()), (4096, 4096));
    /// assert_eq!(device.stats().pool.pooled, 0);
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn coalesce(&self) -> u64 {
        self.service.coalesce()
    }

    /// As [`Self::coalesce`], under the name that all backends' pools have for it.
    pub fn clear(&self) {
        self.coalesce();
    }

    /// Releases unused memory to the driver; returns its bytes. Waits for work in flight.
    ///
    /// The option `keep` says how many bytes of the device's memory stay reserved.
    pub fn trim(&self) -> u64 {
        self.service.trim()
    }

    /// As [`Self::trim`], if more than `bytes` bytes are reserved from the driver; otherwise returns 0.
    pub fn shrink(&self, bytes: u64) -> u64 {
        if self.stats().pool.reserved > bytes { self.trim() } else { 0 }
    }

    /// Adapts the sizes of the streams' caches to the pressure: smaller above 80 % use, larger below 30 %.
    ///
    /// Each call is one step, by 1.5. With the option `adapt` the pool itself sets smaller sizes when the level of pressure becomes
    /// high or critical, and those of the options when it falls.
    pub fn adapt(&self) {
        let options = self.service.options();
        let (min, max) = (options.stream_cache / 16, options.stream_cache.saturating_mul(16));
        self.service.adapt(&CachePolicy { min, max, ..CachePolicy::default() });
    }

    /// Does what is due, and returns what it did. Call it now and then, from any thread; nothing else does.
    ///
    /// - Adapts the streams' caches, if the level of pressure has changed (option `adapt`).
    /// - Empties them if pressure is high, if they hold more than `coalesce` bytes, or if a period of `idle` is over.
    /// - If such a period is over, gives back to the driver what the pool did not need at any time in it, down to `keep` bytes of the
    ///   device's memory; pinned and managed memory too. That waits for work in flight, as [`Self::trim`]. The first call begins the
    ///   first period.
    ///
    /// O(streams), and O(extents) with a call to the driver for each that goes back.
    ///
    /// # Example
    /// ```
    /// use std::time::{Duration, Instant};
    /// use terrace_device::{Device, DeviceOptions, HostBackend};
    /// let options = DeviceOptions { idle: 10_000, keep: 4 << 20, ..DeviceOptions::default() };
    /// let device = Device::open(HostBackend::new(), options)?;
    /// let stream = device.stream()?;
    /// let start = Instant::now();
    /// device.maintain_at(start); // as `maintain`, with a clock of our own
    /// drop([device.allocate(&stream, 4 << 20)?, device.allocate(&stream, 60 << 20)?]);
    /// let returned = [10, 20].map(|seconds| device.maintain_at(start + Duration::from_secs(seconds)).returned);
    /// assert_eq!(returned, [0, 60 << 20], "in the first ten seconds it was needed");
    /// assert!(device.stats().pool.reserved >= 4 << 20);
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn maintain(&self) -> DeviceMaintenance {
        self.maintain_at(Instant::now())
    }

    /// As [`Self::maintain`], at a moment of the caller's clock, which must not go backwards.
    pub fn maintain_at(&self, now: Instant) -> DeviceMaintenance {
        self.service.maintain(now)
    }

    /// Moves at most `most` bytes of free pages together, so that the largest free extent grows.
    ///
    /// Blocks keep their addresses. Whole handles of the driver's memory move (the option `largest_handle`), out of gaps between
    /// blocks to the end of another gap; not those with no block between them and that end. Nothing moves if the largest extent is not expected to grow by it (with
    /// handles of several sizes it may move less than expected), and nothing ever does where memory comes in segments: [`can_move`](Defragmentation::can_move) tells. Waits for the streams' work, as moves under pressure do. O(holes *
    /// gaps), and three calls to the driver for each gap whose pages move.
    ///
    /// # Errors
    /// [`DeviceError::Lost`]. Where the driver refuses a move, the result has what moved before.
    ///
    /// # Example
    /// ```
    /// use terrace_device::Device;
    /// let device = Device::host(); // its memory comes in segments
    /// let done = device.defragment(1 << 30)?;
    /// assert_eq!((done.can_move, done.moved, done.largest_before), (false, 0, done.largest_after));
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn defragment(&self, most: u64) -> Result<Defragmentation, DeviceError> {
        self.service.defragment(most)
    }
}
