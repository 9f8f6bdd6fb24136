//! Memory that the allocator gave: where it is, its bytes, flushes.
//!
//! Promises upward: the memory is live as long as the value; slices lie inside it.
//! Asks from below: the user's promise that resources bound to it are destroyed, and work on it done, before it is dropped.

use crate::driver::{MemoryObject, ObjectRange, mapped_pointer};
use crate::error::AllocationError;
use crate::pools::Pools;
use ash::vk;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_core::Block;

/// Where the memory of an allocation is from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AllocationOrigin {
    /// A part of a memory object, from a pool.
    Block {
        /// Its number.
        pool: u32,
        block: Block,
    },
    /// A memory object of its own.
    Object,
}

/// Device memory for a resource, freed when it is dropped.
///
/// Before that, resources bound to it must be destroyed, and work that uses them done: calls that bind and submit are `unsafe`, and this
/// is part of what they ask for.
pub struct VulkanAllocation {
    pools: Arc<Pools>,
    origin: AllocationOrigin,
    object: MemoryObject,
    offset: u64,
    bytes: u64,
}

impl VulkanAllocation {
    #[inline]
    pub(crate) fn new(
        pools: &Arc<Pools>,
        origin: AllocationOrigin,
        object: &MemoryObject,
        offset: u64,
        bytes: u64,
    ) -> Self {
        Self { pools: Arc::clone(pools), origin, object: *object, offset, bytes }
    }

    /// The memory object.
    pub fn memory(&self) -> vk::DeviceMemory {
        self.object.memory
    }

    /// Offset in the memory object, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes, as requested.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    /// Index of the memory type.
    pub fn memory_type(&self) -> u32 {
        self.object.type_index
    }

    /// Properties of the memory type.
    pub fn memory_properties(&self) -> vk::MemoryPropertyFlags {
        self.pools.objects.table.types[self.object.type_index as usize].flags
    }

    /// Whether the memory object has this owner alone.
    pub fn is_dedicated(&self) -> bool {
        matches!(self.origin, AllocationOrigin::Object)
    }

    /// First byte of the memory as the host sees it; `None` where it does not.
    ///
    /// Valid until the allocation is dropped.
    pub fn mapped_ptr(&self) -> Option<NonNull<c_void>> {
        let start = self.object.mapped;
        (start != 0).then(|| NonNull::new(mapped_pointer(start + self.offset))).flatten()
    }

    /// The bytes as the host sees them; `None` where it does not.
    ///
    /// Work that writes them must be done before (a submission that writes what the host has borrowed breaks its promise), and
    /// [invalidated](Self::invalidate) where the memory is not coherent. Fresh memory holds any bytes.
    pub fn mapped_slice(&self) -> Option<&[u8]> {
        let start = self.mapped_ptr()?.cast::<u8>().as_ptr();
        // SAFETY: the object is mapped as long as it lives, and the range is this allocation's alone. The device writes only what
        // was submitted, by unsafe calls which promise that the host has not borrowed it.
        Some(unsafe { std::slice::from_raw_parts(start, self.bytes as usize) })
    }

    /// The bytes as the host sees them, to write; `None` where it does not.
    ///
    /// Work that uses them must be done before. Where the memory is not coherent, [flush](Self::flush) what was written.
    pub fn mapped_slice_mut(&mut self) -> Option<&mut [u8]> {
        let start = self.mapped_ptr()?.cast::<u8>().as_ptr();
        // SAFETY: as above, and `&mut self` is the one handle of the range.
        Some(unsafe { std::slice::from_raw_parts_mut(start, self.bytes as usize) })
    }

    /// Makes what the host wrote visible to work that is submitted afterwards.
    ///
    /// Does nothing where the memory is coherent.
    ///
    /// # Errors
    /// [`AllocationError::BadRequest`] if the range is not inside the allocation or not mapped; the driver's refusal.
    pub fn flush(&self, offset: u64, bytes: u64) -> Result<(), AllocationError> {
        let Some(range) = self.atoms(offset, bytes)? else { return Ok(()) };
        // SAFETY: the range is mapped, and in whole atoms or up to the end of the object.
        unsafe { self.pools.objects.driver.flush(range) }.map_err(AllocationError::Driver)
    }

    /// Makes what finished work wrote visible to the host. Does nothing where the memory is coherent.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub fn invalidate(&self, offset: u64, bytes: u64) -> Result<(), AllocationError> {
        let Some(range) = self.atoms(offset, bytes)? else { return Ok(()) };
        // SAFETY: as above.
        unsafe { self.pools.objects.driver.invalidate(range) }.map_err(AllocationError::Driver)
    }

    /// The atoms around a range; `None` where the memory is coherent or the range empty. Blocks are whole granules, so that no atom
    /// belongs to two.
    fn atoms(&self, offset: u64, bytes: u64) -> Result<Option<ObjectRange>, AllocationError> {
        let table = &self.pools.objects.table;
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes);
        let end = end.ok_or(AllocationError::BadRequest("a range must lie inside its allocation"))?;
        if self.object.mapped == 0 {
            return Err(AllocationError::BadRequest("the memory is not host-visible"));
        }
        if bytes == 0 || table.is_coherent(self.object.type_index) {
            return Ok(None);
        }
        let atom = table.non_coherent_atom;
        let from = (self.offset + offset) / atom * atom;
        let to = (self.offset + end).next_multiple_of(atom).min(self.object.bytes);
        Ok(Some(ObjectRange { memory: self.object.memory, offset: from, bytes: to - from }))
    }
}

impl Drop for VulkanAllocation {
    fn drop(&mut self) {
        if !self.pools.process.is_current() {
            // The memory is the parent's, and a thread of it may have a lock.
            return;
        }
        match self.origin {
            AllocationOrigin::Block { pool, block } => self.pools.free(pool, block),
            // SAFETY: the object has no other owner; the user has destroyed what was bound to it.
            AllocationOrigin::Object => unsafe { self.pools.objects.give_back(&self.object) },
        }
    }
}

impl fmt::Debug for VulkanAllocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("VulkanAllocation");
        shown.field("memory", &self.object.memory).field("offset", &self.offset).field("size", &self.bytes);
        shown
            .field("memory_type", &self.object.type_index)
            .field("dedicated", &self.is_dedicated())
            .finish_non_exhaustive()
    }
}
