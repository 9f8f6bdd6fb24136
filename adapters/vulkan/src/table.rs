//! Memory types, heaps and limits of a device as plain data, and which type serves what.
//!
//! Promises upward: a choice depends on the table alone, so that tables of devices that are not here can be tried; types that need a
//! feature or an extension of their own are never chosen.
//! Asks from below: what the driver says, read once by [`MemoryTable::of`].

use ash::vk;
use std::cmp::Reverse;
use vk::MemoryPropertyFlags as Flags;

/// A memory type: what memory of it can do, and from which heap it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryType {
    /// Properties.
    pub flags: vk::MemoryPropertyFlags,
    /// Index of its heap.
    pub heap: u32,
}

/// A heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryHeap {
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the memory is the device's own.
    pub device_local: bool,
}

/// The memory of a physical device: its types and heaps, and the limits that an allocator must keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryTable {
    /// Memory types, by index.
    pub types: Vec<MemoryType>,
    /// Heaps, by index.
    pub heaps: Vec<MemoryHeap>,
    /// Linear and optimal resources share no part of memory of this size (`bufferImageGranularity`); a power of two, in bytes.
    pub buffer_image_granularity: u64,
    /// Ranges of memory that is not coherent are flushed in multiples of this (`nonCoherentAtomSize`), in bytes.
    pub non_coherent_atom: u64,
    /// Memory objects that may exist at once (`maxMemoryAllocationCount`).
    pub max_objects: u32,
    /// Bytes of the largest memory object (`maxMemoryAllocationSize`).
    pub max_object_bytes: u64,
    /// Whether the driver tells a budget for each heap (`VK_EXT_memory_budget`).
    pub budget: bool,
}

/// From where memory is used: this decides among memory types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryUse {
    /// The device alone: its own memory, which the host does not see where there is such (`GpuOnly`).
    Device,
    /// The host writes in order, the device reads (`CpuToGpu`): host-visible; the device's own memory, unless only a small window
    /// of that is host-visible.
    Upload,
    /// The device writes, the host reads (`GpuToCpu`): host-visible and cached.
    Readback,
    /// By properties, as `VmaAllocationCreateInfo` has them.
    Properties {
        /// A type must have all of these.
        required: vk::MemoryPropertyFlags,
        /// The more of these the better.
        preferred: vk::MemoryPropertyFlags,
    },
}

/// Types with one of these are chosen only where it is required.
const SPECIAL: Flags = Flags::from_raw(
    Flags::PROTECTED.as_raw()
        | Flags::LAZILY_ALLOCATED.as_raw()
        | Flags::DEVICE_COHERENT_AMD.as_raw()
        | Flags::DEVICE_UNCACHED_AMD.as_raw()
        | Flags::RDMA_CAPABLE_NV.as_raw(),
);

impl MemoryUse {
    /// What a type must have, should have and should lack, each with the most important first.
    fn wishes(self) -> (Flags, &'static [Flags], &'static [Flags]) {
        match self {
            Self::Device => (Flags::empty(), &[Flags::DEVICE_LOCAL], &[Flags::HOST_VISIBLE, Flags::HOST_CACHED]),
            Self::Upload => (Flags::HOST_VISIBLE, &[Flags::HOST_COHERENT, Flags::DEVICE_LOCAL], &[Flags::HOST_CACHED]),
            Self::Readback => {
                (Flags::HOST_VISIBLE, &[Flags::HOST_CACHED, Flags::HOST_COHERENT], &[Flags::DEVICE_LOCAL])
            }
            Self::Properties { required, .. } => (required, &[], &[]),
        }
    }
}

impl MemoryTable {
    /// The table of a physical device.
    ///
    /// # Safety
    /// The instance must be of Vulkan 1.1 or newer, and `physical` one of its devices, which supports Vulkan 1.1.
    pub unsafe fn of(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Self {
        // SAFETY: the caller's promise.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        let mut more = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut more);
        // SAFETY: the caller's promise; both structures live through the call.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let limits = properties.properties.limits;
        // SAFETY: the caller's promise.
        let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }.unwrap_or_default();
        let budget = |extension: &vk::ExtensionProperties| {
            extension.extension_name_as_c_str() == Ok(ash::ext::memory_budget::NAME)
        };
        Self {
            types: memory.memory_types_as_slice().iter().map(MemoryType::of).collect(),
            heaps: memory.memory_heaps_as_slice().iter().map(MemoryHeap::of).collect(),
            buffer_image_granularity: limits.buffer_image_granularity.max(1),
            non_coherent_atom: limits.non_coherent_atom_size.max(1),
            max_objects: limits.max_memory_allocation_count,
            max_object_bytes: more.max_memory_allocation_size,
            budget: extensions.iter().any(budget),
        }
    }

    /// The types among `type_bits` that serve a usage, the best first. O(types log types).
    ///
    /// # Example
    /// ```
    /// use ash::vk::MemoryPropertyFlags as Flags;
    /// use terrace_vulkan::{MemoryUse, MemoryHeap, MemoryTable, MemoryType};
    /// let host = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
    /// let table = MemoryTable {
    ///     types: vec![MemoryType { flags: host, heap: 1 }, MemoryType { flags: Flags::DEVICE_LOCAL, heap: 0 }],
    ///     heaps: [(8 << 30, true), (16 << 30, false)].map(|(bytes, device_local)| MemoryHeap { bytes, device_local }).to_vec(),
    ///     buffer_image_granularity: 1024, non_coherent_atom: 64, max_objects: 4096, max_object_bytes: 4 << 30, budget: true,
    /// };
    /// assert_eq!(table.candidates(0b11, MemoryUse::Device), [1, 0]);
    /// assert_eq!(table.candidates(0b11, MemoryUse::Upload), [0]);
    /// assert_eq!(table.candidates(0b10, MemoryUse::Upload), []);
    /// ```
    pub fn candidates(&self, type_bits: u32, usage: MemoryUse) -> Vec<u32> {
        let (required, _, _) = usage.wishes();
        let fits = |&(at, of): &(u32, &MemoryType)| {
            type_bits & (1 << at) != 0
                && of.flags.contains(required)
                && !(of.flags & SPECIAL & !required).intersects(SPECIAL)
        };
        let mut found: Vec<_> = (0_u32..).zip(self.types.iter().take(32)).filter(fits).collect();
        // Stable: among alike the driver's order, which has the faster ones first.
        found.sort_by_key(|(_, of)| Reverse(self.score(of, usage)));
        found.into_iter().map(|(at, _)| at).collect()
    }

    /// As [`candidates`](Self::candidates); for [`MemoryUse::Device`] of the best type's heap alone where that is the device's.
    ///
    /// A pool of the device's memory gives free memory back and tells its user when that heap is full; memory of the host's instead
    /// would only be slow.
    pub(crate) fn pool_candidates(&self, type_bits: u32, usage: MemoryUse) -> Vec<u32> {
        let mut found = self.candidates(type_bits, usage);
        let heap = found.first().map(|&at| self.types[at as usize].heap);
        if let Some(heap) = heap.filter(|&heap| usage == MemoryUse::Device && self.heaps[heap as usize].device_local) {
            found.retain(|&at| self.types[at as usize].heap == heap);
        }
        found
    }

    /// How well a type serves a usage: one bit for each wish, the most important highest.
    fn score(&self, of: &MemoryType, usage: MemoryUse) -> u32 {
        if let MemoryUse::Properties { required, preferred } = usage {
            // Fewer of what was not asked for, among equals.
            let others = (of.flags & !required & !preferred).as_raw().count_ones();
            return (of.flags & preferred).as_raw().count_ones() * 32 + 31 - others;
        }
        if usage == MemoryUse::Upload && self.is_window(of.heap) {
            return 0;
        }
        let (_, wanted, unwanted) = usage.wishes();
        let has = wanted.iter().map(|&flag| of.flags.contains(flag));
        let lacks = unwanted.iter().map(|&flag| !of.flags.contains(flag));
        has.chain(lacks).fold(0, |score, wish| score << 1 | u32::from(wish))
    }

    /// Whether a heap is the device's, and less than a quarter of its largest: the window of 256 MiB through which the host sees a
    /// device without a resizable BAR, which the driver needs too.
    fn is_window(&self, heap: u32) -> bool {
        let own = self.heaps.iter().filter(|heap| heap.device_local).map(|heap| heap.bytes).max();
        let heap = &self.heaps[heap as usize];
        heap.device_local && own.is_some_and(|largest| heap.bytes < largest / 4)
    }

    /// Whether the host can map memory of a type.
    pub fn is_host_visible(&self, at: u32) -> bool {
        self.types[at as usize].flags.contains(Flags::HOST_VISIBLE)
    }

    /// Whether host and device see each other's writes to memory of a type without flushes.
    ///
    /// Elsewhere [`flush`](crate::VulkanAllocation::flush) and [`invalidate`](crate::VulkanAllocation::invalidate) make them seen.
    pub fn is_coherent(&self, at: u32) -> bool {
        self.types[at as usize].flags.contains(Flags::HOST_COHERENT)
    }
}

impl MemoryType {
    fn of(theirs: &vk::MemoryType) -> Self {
        Self { flags: theirs.property_flags, heap: theirs.heap_index }
    }
}

impl MemoryHeap {
    fn of(theirs: &vk::MemoryHeap) -> Self {
        Self { bytes: theirs.size, device_local: theirs.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) }
    }
}
