//! Memory objects within what the device permits: how many, how large, how much of each heap.
//!
//! Promises upward: the sum of objects stays within counts, heaps and budgets; a refused object counts nowhere.
//! Asks from below: [`MemoryDriver`].

use crate::driver::{MemoryDriver, MemoryObject, ObjectRequest, Resource};
use crate::table::MemoryTable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use terrace_core::{Region, Source, SourceError, SourceUsage};
use terrace_device::{Fault, FaultReason};

/// What a fault names where no more objects may exist.
pub(crate) const OBJECT_LIMIT: &str = "maxMemoryAllocationCount";

/// A device's memory objects.
pub(crate) struct Objects {
    pub table: MemoryTable,
    pub driver: Box<dyn MemoryDriver>,
    count: AtomicU32,
    /// Bytes of objects, by heap.
    used: Box<[AtomicU64]>,
    /// Calls that allocated or freed one.
    calls: AtomicU64,
}

impl Objects {
    pub fn new(table: MemoryTable, driver: Box<dyn MemoryDriver>) -> Self {
        let used = table.heaps.iter().map(|_| AtomicU64::new(0)).collect();
        Self { table, driver, count: AtomicU32::new(0), used, calls: AtomicU64::new(0) }
    }

    /// Allocates an object.
    pub fn take(&self, type_index: u32, bytes: u64, dedicated: Option<Resource>) -> Result<MemoryObject, Fault> {
        let full = |limit| Fault::of(limit, FaultReason::OutOfMemory);
        if bytes > self.table.max_object_bytes {
            return Err(full("maxMemoryAllocationSize"));
        }
        let heap = self.table.types[type_index as usize].heap;
        if self.driver.budget(heap).is_some_and(|heap| heap.used.saturating_add(bytes) > heap.budget) {
            return Err(full("VK_EXT_memory_budget"));
        }
        self.count_one()?;
        let size = self.table.heaps[heap as usize].bytes;
        let fits = |used: u64| used.checked_add(bytes).filter(|&used| used <= size);
        let used = &self.used[heap as usize];
        let taken = used.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| full("VkMemoryHeap::size"));
        let taken = taken.inspect_err(|_| self.uncount_one());
        taken?;
        let map = self.table.is_host_visible(type_index);
        let object = self.driver.allocate(&ObjectRequest { type_index, bytes, dedicated, map });
        self.calls.fetch_add(1, Ordering::Relaxed);
        object.inspect_err(|_| self.forget(type_index, bytes))
    }

    /// Frees an object.
    ///
    /// # Safety
    /// The object must be live, and used by no work and no resource any more.
    pub unsafe fn give_back(&self, object: &MemoryObject) {
        // SAFETY: the caller's promise.
        unsafe { self.driver.free(object) };
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.forget(object.type_index, object.bytes);
    }

    /// Counts an object among those that may exist; by itself for one whose memory is of no heap.
    pub fn count_one(&self) -> Result<(), Fault> {
        let one_more = |count: u32| (count < self.table.max_objects).then(|| count + 1);
        let counted = self.count.try_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.map(drop).map_err(|_| Fault::of(OBJECT_LIMIT, FaultReason::OutOfMemory))
    }

    /// Takes back [`count_one`](Self::count_one).
    pub fn uncount_one(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    fn forget(&self, type_index: u32, bytes: u64) {
        self.uncount_one();
        self.used[self.table.types[type_index as usize].heap as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Objects that exist.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of objects in a heap.
    pub fn used(&self, heap: u32) -> u64 {
        self.used[heap as usize].load(Ordering::Relaxed)
    }

    /// Calls that allocated or freed an object.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Memory objects of one type as segments of an arena. A region begins at address 0, so that an address is an offset in its object.
pub(crate) struct TypeSource {
    objects: Arc<Objects>,
    type_index: u32,
    /// By region id.
    out: Vec<Option<MemoryObject>>,
    usage: SourceUsage,
    /// The last refusal.
    pub fault: Option<Fault>,
}

impl TypeSource {
    pub fn new(objects: Arc<Objects>, type_index: u32) -> Self {
        let heap = objects.table.types[type_index as usize].heap;
        let usage = SourceUsage { capacity: objects.table.heaps[heap as usize].bytes, ..SourceUsage::default() };
        Self { objects, type_index, out: Vec::new(), usage, fault: None }
    }

    /// The object of a region.
    #[inline]
    pub fn object(&self, region: u32) -> Option<&MemoryObject> {
        self.out.get(region as usize)?.as_ref()
    }
}

impl Source for TypeSource {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let object = self.objects.take(self.type_index, bytes, None).map_err(|fault| {
            self.fault = Some(fault);
            SourceError::from(fault)
        })?;
        let at = self.out.iter().position(Option::is_none).unwrap_or(self.out.len());
        self.out.resize(self.out.len().max(at + 1), None);
        self.out[at] = Some(object);
        self.usage.reserved += bytes;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        (self.usage.calls, self.usage.handles) = (self.usage.calls + 1, self.usage.handles + 1);
        Ok(Region { id: at as u64, base: 0, bytes })
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        let object = usize::try_from(region.id).ok().and_then(|at| self.out.get_mut(at)?.take());
        let object = object.ok_or(SourceError::Misuse("a region is given back once"))?;
        // SAFETY: the object was live in `out`; the arena gives back what has no live block, and a block is live until its
        // `VulkanAllocation` is dropped, which the user promises to do after the last use.
        unsafe { self.objects.give_back(&object) };
        self.usage.reserved -= region.bytes;
        self.usage.calls += 1;
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}

impl Drop for TypeSource {
    fn drop(&mut self) {
        for object in self.out.iter().flatten() {
            // SAFETY: live in `out`, and the allocator goes after its last allocation.
            unsafe { self.objects.give_back(object) };
        }
    }
}
