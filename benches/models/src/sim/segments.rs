//! A fixed source: whole device allocations, as `cuMemAlloc` gives them.
//!
//! Promises upward: regions at addresses never used twice, aligned to 2 MiB, never adjacent; exactly the bytes
//! asked for; one call and one handle a take, one call a give-back; a refused call changes nothing.
//! Asks from below: nothing; there is no memory.

use super::{Addresses, Faults};
use std::collections::HashMap;
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// Simulated device allocations.
///
/// ```
/// use terrace_core::Source;
/// use terrace_models::Segments;
///
/// let mut device = Segments::new(64 << 20);
/// let region = device.take(20 << 20)?;
/// assert_eq!((device.usage().reserved, device.usage().calls), (20 << 20, 1));
/// device.give_back(region)?;
/// assert!(device.give_back(region).is_err(), "a second time is refused");
/// # Ok::<(), terrace_core::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Segments {
    /// `reserved` is the sum of `out`'s bytes and at most `capacity` when that is not 0.
    usage: SourceUsage,
    addresses: Addresses,
    faults: Faults,
    /// Regions given and not returned, by id.
    out: HashMap<u64, Region>,
    /// Name of the next region; names are never used twice.
    next_id: u64,
}

impl Segments {
    /// A device with `capacity` bytes, 0 for no limit.
    pub fn new(capacity: u64) -> Self {
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        Self { usage, addresses: Addresses::new(), faults: Faults::default(), out: HashMap::new(), next_id: 1 }
    }

    /// Failures to inject.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Lets the `n`-th call from now fail with [`SourceError::Failed`] (1 is the next).
    pub fn fail_call(&mut self, n: u64) {
        self.faults.fail_call(n);
    }

    /// Regions given and not returned, by address: what a caller leaks when it is done.
    pub fn outstanding(&self) -> Vec<Region> {
        let mut regions: Vec<Region> = self.out.values().copied().collect();
        regions.sort_by_key(|region| region.base);
        regions
    }
}

/// Bytes a source with this usage could still give.
pub(super) fn available(usage: &SourceUsage) -> u64 {
    match usage.capacity {
        0 => super::LARGEST_REGION,
        capacity => capacity - usage.reserved,
    }
}

/// Counts `bytes` more as given.
pub(super) fn grow(usage: &mut SourceUsage, bytes: u64) {
    usage.reserved += bytes;
    usage.peak_reserved = usage.peak_reserved.max(usage.reserved);
}

impl Source for Segments {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        if bytes == 0 {
            return Err(SourceError::Misuse("a region has at least one byte"));
        }
        let available = available(&self.usage);
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        let (base, addresses) = self.addresses.plan(bytes).ok_or(SourceError::OutOfMemory { available })?;
        self.faults.call()?;
        let region = Region { id: self.next_id, base, bytes };
        self.addresses = addresses;
        self.next_id += 1;
        self.out.insert(region.id, region);
        self.usage.calls += 1;
        self.usage.handles += 1;
        grow(&mut self.usage, bytes);
        Ok(region)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        if self.out.get(&region.id) != Some(&region) {
            return Err(SourceError::Misuse("only a region that is out can be given back, and once"));
        }
        self.faults.call()?;
        self.out.remove(&region.id);
        self.usage.calls += 1;
        self.usage.reserved -= region.bytes;
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}
