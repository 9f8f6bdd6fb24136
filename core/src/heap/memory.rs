//! The memory of a region: the only module of the core that reads and writes through pointers.
//!
//! Promises upward: every access has the provenance of the pointer that was passed for the region.
//! Asks from below: that the heap's modules access only bytes of the region's tables and of free granules. They are safe
//! code, but a wrong offset there would be as bad as one here, so they are fuzzed for this contract.

use core::ptr::NonNull;

/// Number types of which every bit pattern is a value.
///
/// # Safety
/// Every bit pattern must be a valid value, and there must be no padding.
pub unsafe trait Plain: Copy {}
// SAFETY: every bit pattern is a value of an unsigned integer.
unsafe impl Plain for u8 {}
// SAFETY: every bit pattern is a value of an unsigned integer.
unsafe impl Plain for u16 {}
// SAFETY: every bit pattern is a value of an unsigned integer.
unsafe impl Plain for u32 {}
// SAFETY: every bit pattern is a value of an unsigned integer.
unsafe impl Plain for u64 {}
// SAFETY: every bit pattern is a value of an unsigned integer.
unsafe impl Plain for usize {}

/// A pointer to the memory of a region, accessed by offsets.
#[derive(Clone, Copy, Debug)]
pub struct HeapMemory {
    /// Null for no memory, so that a static heap without memory is all zeros, which take no space in an image.
    base: *mut u8,
}

impl HeapMemory {
    /// No memory; must not be accessed.
    pub const NONE: Self = Self { base: core::ptr::null_mut() };

    /// Memory from `base` on.
    ///
    /// # Safety
    /// Until the last access, every offset passed to the methods below must be in the allocation of `base`, and no other
    /// code may access those bytes, except the users of allocated blocks.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self { base: base.as_ptr() }
    }

    /// Loads a number at an offset, which must be aligned for its type.
    #[inline(always)]
    pub fn load<T: Plain>(self, offset: usize) -> T {
        let at = self.base.wrapping_add(offset).cast::<T>();
        // SAFETY: `new`'s caller promised that the bytes are in the allocation and used by no other code; `Plain` types have
        // no invalid values.
        unsafe { at.read() }
    }

    /// Stores a number at an offset, which must be aligned for its type.
    #[inline(always)]
    pub fn store<T: Plain>(self, offset: usize, value: T) {
        let at = self.base.wrapping_add(offset).cast::<T>();
        // SAFETY: `new`'s caller promised that the bytes are in the allocation and used by no other code.
        unsafe { at.write(value) }
    }

    /// Loads eight bytes at any offset.
    #[inline(always)]
    pub fn load_anywhere(self, offset: usize) -> u64 {
        let at = self.base.wrapping_add(offset).cast::<u64>();
        // SAFETY: `new`'s caller promised that the bytes are in the allocation and used by no other code.
        unsafe { at.read_unaligned() }
    }

    /// Stores eight bytes at any offset.
    #[inline(always)]
    pub fn store_anywhere(self, offset: usize, value: u64) {
        let at = self.base.wrapping_add(offset).cast::<u64>();
        // SAFETY: `new`'s caller promised that the bytes are in the allocation and used by no other code.
        unsafe { at.write_unaligned(value) }
    }

    /// The same memory with its base moved up by `offset` (down by a negative one, wrapped around).
    pub fn moved(self, offset: usize) -> Self {
        let base = self.base.wrapping_add(offset);
        #[cfg(terrace_seeded_bug = "heap_pointer_from_a_number")]
        let base = core::ptr::without_provenance_mut(base.addr());
        Self { base }
    }

    /// Zeroes the first `bytes` bytes, rounded up to whole words.
    ///
    /// Uses volatile stores, so that the compiler does not call `memset`, whose code is larger than all the rest of
    /// initializing a region.
    pub fn clear(self, bytes: usize) {
        for offset in (0..bytes).step_by(size_of::<usize>()) {
            let at = self.base.wrapping_add(offset).cast::<usize>();
            // SAFETY: `new`'s caller promised that the bytes are in the allocation and used by no other code.
            unsafe { at.write_volatile(0) }
        }
    }

    /// The pointer to an offset.
    #[inline(always)]
    pub fn pointer(self, offset: usize) -> NonNull<u8> {
        let at = self.base.wrapping_add(offset);
        // SAFETY: `new`'s caller promised that the offset is in the allocation, so its address is not null.
        unsafe { NonNull::new_unchecked(at) }
    }

    /// The offset of an address; wraps around for an address below the base.
    #[inline(always)]
    pub fn offset_of(self, address: NonNull<u8>) -> usize {
        address.addr().get().wrapping_sub(self.base.addr())
    }

    /// The base as a number.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.base.addr()
    }
}
