//! The allocator for programs that have their own Vulkan device.
//!
//! ```text
//! allocate ──► memory types that serve, the best first ──► pool of the type: an arena over memory objects ──► block of an object
//!      │                                                     (one pool for linear resources and one for optimal ones, where
//!      └─ dedicated ─────────► a memory object of its own      bufferImageGranularity is larger than a granule)
//! ```
//!
//! Promises upward: live allocations never overlap, nor do linear and optimal ones share a page of `bufferImageGranularity`; limits on
//! number and size of memory objects, heaps and budgets are kept; a request fails only after free memory of all other pools of the heap
//! (of all pools, where the number of objects is the limit) went back and each memory type that serves was tried.
//! Asks from below: [`Pools`] over memory objects.

#[cfg(test)]
mod tests;

use crate::allocation::{AllocationOrigin, VulkanAllocation};
use crate::driver::{AshDriver, MemoryDriver, Resource, Wish};
use crate::error::AllocationError;
use crate::library;
use crate::pools::{AllocatorOptions, GRAIN, Pools, refusal};
use crate::table::{MemoryTable, MemoryUse};
use ash::vk;
use std::fmt;
use std::sync::Arc;
use terrace_core::{AllocError, Cause, Request, Stats, Violation};
use terrace_device::{Fault, FaultReason};
use terrace_guard::Process;

/// What to allocate.
#[derive(Clone, Copy, Debug)]
pub struct AllocationDesc {
    /// What Vulkan says about the resource.
    pub requirements: vk::MemoryRequirements,
    /// From where it is used.
    pub usage: MemoryUse,
    /// Whether it is a buffer or an image of linear tiling.
    pub linear: bool,
    /// A memory object of its own?
    pub dedicated: Dedicated,
}

/// Whether a resource gets a memory object of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedicated {
    /// It shares one with others, if it is not too large for that.
    #[default]
    No,
    /// This buffer alone.
    Buffer(vk::Buffer),
    /// This image alone.
    Image(vk::Image),
}

/// A heap at this moment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapShare {
    /// Size of the heap.
    pub bytes: u64,
    /// What this process may use: the driver's budget, or the heap's size where it tells none.
    pub budget: u64,
    /// What this process uses, as the driver says, or this allocator alone where it does not.
    pub used: u64,
    /// Bytes of this allocator's memory objects.
    pub reserved: u64,
}

/// An allocator of device memory, over a Vulkan device of the program's.
///
/// Clones are the same allocator; any thread may call it. The crate's page shows it beside `gpu-allocator` and `vk-mem`.
#[derive(Clone)]
pub struct VulkanAllocator {
    pools: Arc<Pools>,
    /// All types for [`MemoryUse::Device`], `Upload` and `Readback`, the best first.
    orders: Arc<[Box<[u32]>; 3]>,
}

impl VulkanAllocator {
    /// An allocator for a device. Allocates no memory yet.
    ///
    /// # Errors
    /// [`AllocationError::BadRequest`] if instance or device are older than Vulkan 1.1.
    ///
    /// # Safety
    /// `physical` and `device` must be of `instance`, and live until the allocator, its clones and all allocations are dropped.
    pub unsafe fn new(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
        options: AllocatorOptions,
    ) -> Result<Self, AllocationError> {
        // SAFETY: the caller's promise.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        if properties.api_version < vk::API_VERSION_1_1 {
            return Err(AllocationError::BadRequest("the device must support Vulkan 1.1"));
        }
        if !library::has_allocators_functions(instance, device.handle()) {
            return Err(AllocationError::BadRequest("the instance must be created for Vulkan 1.1 or newer"));
        }
        // SAFETY: the caller's promise.
        let table = unsafe { MemoryTable::of(instance, physical) };
        let (instance, device, budget) = (instance.clone(), device.clone(), table.budget);
        let (device_address, process) = (options.device_address, Process::current());
        let driver = AshDriver { instance, physical, device, budget, device_address, process };
        Ok(Self::with_driver(table, Box::new(driver), options))
    }

    pub(crate) fn with_driver(table: MemoryTable, driver: Box<dyn MemoryDriver>, options: AllocatorOptions) -> Self {
        let order = |usage| table.candidates(u32::MAX, usage).into();
        let orders = Arc::new([MemoryUse::Device, MemoryUse::Upload, MemoryUse::Readback].map(order));
        Self { pools: Arc::new(Pools::new(table, driver, options)), orders }
    }

    /// Allocates memory for a resource.
    ///
    /// The caller binds it at [`VulkanAllocation::memory`] and [`VulkanAllocation::offset`].
    /// One lock and a search of best fit, O(log of sizes); a call of Vulkan where no free memory fits.
    ///
    /// # Errors
    /// [`AllocationError`]; nothing is allocated then. A description that names a buffer or an image is a
    /// [`BadRequest`](AllocationError::BadRequest): pass it to [`allocate_dedicated`](Self::allocate_dedicated).
    pub fn allocate(&self, desc: &AllocationDesc) -> Result<VulkanAllocation, AllocationError> {
        match desc.dedicated {
            Dedicated::No => self.allocate_as(desc),
            _ => Err(AllocationError::BadRequest(
                "a buffer or an image is named to `allocate_dedicated`, which is unsafe",
            )),
        }
    }

    /// As [`allocate`](Self::allocate), also for a buffer or an image that is named.
    ///
    /// It gets a memory object of its own.
    ///
    /// # Errors
    /// [`AllocationError`]; nothing is allocated then.
    ///
    /// # Safety
    /// The buffer or image must be of this allocator's device, live and unbound, and the requirements its own.
    pub unsafe fn allocate_dedicated(&self, desc: &AllocationDesc) -> Result<VulkanAllocation, AllocationError> {
        self.allocate_as(desc)
    }

    /// A buffer or image that is named must be as [`allocate_dedicated`](Self::allocate_dedicated) asks.
    fn allocate_as(&self, desc: &AllocationDesc) -> Result<VulkanAllocation, AllocationError> {
        if !self.pools.process.is_current() {
            // Before any lock: a thread of the parent may have it.
            return Err(AllocationError::Driver(Fault::of("vkAllocateMemory", FaultReason::Forked)));
        }
        let wanted = desc.requirements;
        if wanted.size == 0 || !wanted.alignment.is_power_of_two() {
            return Err(AllocationError::BadRequest("at least one byte, and an alignment that is a power of two"));
        }
        let dedicated = match desc.dedicated {
            Dedicated::No => None,
            Dedicated::Buffer(buffer) => Some(Resource::Buffer(buffer)),
            Dedicated::Image(image) => Some(Resource::Image(image)),
        };
        let found: Vec<u32>;
        let order: &[u32] = match desc.usage {
            MemoryUse::Device => &self.orders[0],
            MemoryUse::Upload => &self.orders[1],
            MemoryUse::Readback => &self.orders[2],
            MemoryUse::Properties { .. } => {
                found = self.pools.objects.table.candidates(wanted.memory_type_bits, desc.usage);
                &found
            }
        };
        let mut last = None;
        for &at in order.iter().filter(|&&at| wanted.memory_type_bits & (1 << at) != 0) {
            match self.allocate_of(at, desc, dedicated) {
                Err(refused @ AllocationError::OutOfMemory { .. }) => last = Some(refused),
                done => return done,
            }
        }
        let (type_bits, usage) = (wanted.memory_type_bits, desc.usage);
        Err(last.unwrap_or(AllocationError::NoMemoryType { type_bits, usage }))
    }

    /// Allocates memory of one type; if there is none left, once more without what the pools keep of what is used up.
    fn allocate_of(
        &self,
        at: u32,
        desc: &AllocationDesc,
        dedicated: Option<Resource>,
    ) -> Result<VulkanAllocation, AllocationError> {
        let wanted = desc.requirements;
        // The arena aligns up to its grain; Vulkan aligns the object itself for all that it may be bound to.
        let own = dedicated.is_some() || wanted.alignment > GRAIN;
        let attempt = || if own { self.own(at, wanted.size, dedicated) } else { self.part(at, desc) };
        match attempt() {
            Err(AllocationError::OutOfMemory { fault, .. }) if self.pools.trim_for(at, fault) > 0 => attempt(),
            done => done,
        }
    }

    /// A memory object of its own.
    fn own(&self, at: u32, bytes: u64, dedicated: Option<Resource>) -> Result<VulkanAllocation, AllocationError> {
        let refused = |fault| refusal(at, AllocError::new(Cause::OutOfMemory, bytes), Some(fault));
        let object = self.pools.objects.take(at, bytes, dedicated).map_err(refused)?;
        Ok(VulkanAllocation::new(&self.pools, AllocationOrigin::Object, &object, 0, bytes))
    }

    /// A part of a memory object.
    #[inline]
    fn part(&self, at: u32, desc: &AllocationDesc) -> Result<VulkanAllocation, AllocationError> {
        let wanted = desc.requirements;
        let request = Request::new(wanted.size).align(wanted.alignment);
        let (pool, block, object) = self.pools.allocate(at, desc.linear, request)?;
        Ok(VulkanAllocation::new(
            &self.pools,
            AllocationOrigin::Block { pool, block },
            &object,
            block.address,
            wanted.size,
        ))
    }

    /// Allocates memory for a buffer and binds it; in an object of its own where the driver asks for that.
    ///
    /// # Errors
    /// [`AllocationError`]; the buffer is unbound then.
    ///
    /// # Safety
    /// The buffer must be of this allocator's device, live and unbound. It must be destroyed before the allocation is dropped.
    pub unsafe fn bind_buffer(
        &self,
        buffer: vk::Buffer,
        usage: MemoryUse,
    ) -> Result<VulkanAllocation, AllocationError> {
        // SAFETY: the caller's promise.
        unsafe { self.bind(Resource::Buffer(buffer), usage, true) }
    }

    /// Allocates memory for an image and binds it; in an object of its own where the driver asks for that.
    ///
    /// # Errors
    /// [`AllocationError`]; the image is unbound then.
    ///
    /// # Safety
    /// As for [`bind_buffer`](Self::bind_buffer); `linear` says whether its tiling is linear.
    pub unsafe fn bind_image(
        &self,
        image: vk::Image,
        usage: MemoryUse,
        linear: bool,
    ) -> Result<VulkanAllocation, AllocationError> {
        // SAFETY: the caller's promise.
        unsafe { self.bind(Resource::Image(image), usage, linear) }
    }

    /// # Safety
    /// As for [`bind_buffer`](Self::bind_buffer).
    unsafe fn bind(
        &self,
        resource: Resource,
        usage: MemoryUse,
        linear: bool,
    ) -> Result<VulkanAllocation, AllocationError> {
        let objects = &self.pools.objects;
        if !self.pools.process.is_current() {
            return Err(AllocationError::Driver(Fault::of("vkBindBufferMemory", FaultReason::Forked)));
        }
        // SAFETY: the caller's promise.
        let wanted = unsafe { objects.driver.requirements(resource) };
        // A wish is granted while half of the objects are left.
        let own = match wanted.dedicated {
            Wish::Requires => true,
            Wish::Prefers => objects.count() < objects.table.max_objects / 2,
            Wish::No => false,
        };
        let dedicated = match resource {
            _ if !own => Dedicated::No,
            Resource::Buffer(buffer) => Dedicated::Buffer(buffer),
            Resource::Image(image) => Dedicated::Image(image),
        };
        let desc = AllocationDesc { requirements: wanted.memory, usage, linear, dedicated };
        let allocation = match self.allocate_as(&desc) {
            // It was a wish only.
            Err(AllocationError::OutOfMemory { .. }) if own && wanted.dedicated != Wish::Requires => {
                self.allocate_as(&AllocationDesc { dedicated: Dedicated::No, ..desc })?
            }
            allocated => allocated?,
        };
        // SAFETY: the caller's promise; the allocation is as the requirements ask, and nothing else has it.
        unsafe { objects.driver.bind(resource, allocation.memory(), allocation.offset()) }?;
        Ok(allocation)
    }

    /// Frees an allocation, as dropping it does.
    ///
    /// Resources bound to it must be destroyed, and work that uses it done.
    pub fn free(&self, allocation: VulkanAllocation) {
        drop(allocation);
    }

    /// Gives all memory objects without a live block back to Vulkan; returns their bytes.
    ///
    /// Nothing in a forked child.
    pub fn trim(&self) -> u64 {
        if self.pools.process.is_current() { self.pools.trim() } else { 0 }
    }

    /// Memory types, heaps and limits of the device.
    pub fn table(&self) -> &MemoryTable {
        &self.pools.objects.table
    }

    /// A heap at this moment; `None` if there is no such heap.
    pub fn heap(&self, heap: u32) -> Option<HeapShare> {
        let bytes = self.table().heaps.get(heap as usize)?.bytes;
        let reserved = self.pools.objects.used(heap);
        let said = self.pools.objects.driver.budget(heap);
        let (budget, used) = said.map_or((bytes, reserved), |heap| (heap.budget, heap.used));
        Some(HeapShare { bytes, budget, used, reserved })
    }

    /// Counters of all pools together; without memory objects that have one owner.
    pub fn stats(&self) -> Stats {
        if self.pools.process.is_current() { self.pools.stats() } else { Stats::default() }
    }

    /// Memory objects that exist, those with one owner included.
    pub fn objects(&self) -> u32 {
        self.pools.objects.count()
    }

    /// Calls so far that allocated or freed a memory object.
    pub fn calls(&self) -> u64 {
        self.pools.objects.calls()
    }

    /// Checks all invariants of the pools. O(blocks); for tests.
    ///
    /// # Errors
    /// The invariant that is broken, and where.
    pub fn check(&self) -> Result<(), Violation> {
        if self.pools.process.is_current() { self.pools.check() } else { Ok(()) }
    }
}

impl fmt::Debug for VulkanAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanAllocator").field("table", self.table()).finish_non_exhaustive()
    }
}
