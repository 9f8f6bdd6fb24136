//! The memory of a region: the only place of the core that reads and writes through pointers.
//!
//! Promises upward: every access keeps the provenance of the pointer that the region was given by.
//! Asks from below: that the engine names only bytes of the region's tables and of free granules. This is the contract
//! that the engine is fuzzed for: it is safe code, and a mistake in it would be as bad as one here.

use core::ptr::NonNull;

/// Numbers that every pattern of bits is a value of.
///
/// # Safety
/// Any bytes must be a valid value, and there must be no padding.
pub unsafe trait Plain: Copy {}
// SAFETY: an unsigned integer takes every pattern of bits.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}

/// Where a region starts. Everything else about it is known to the engine.
#[derive(Clone, Copy, Debug)]
pub struct HeapMemory {
    /// Null for none, so that a static without memory is all zeros and takes no room in an image.
    base: *mut u8,
}

impl HeapMemory {
    /// No memory: nothing may be asked of it.
    pub const NONE: Self = Self { base: core::ptr::null_mut() };

    /// Memory from `base` on.
    ///
    /// # Safety
    /// Until the last access: whatever offset is named below lies in one allocation with `base`, and no other code
    /// reads or writes those bytes meanwhile, but for blocks that were handed out.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self { base: base.as_ptr() }
    }

    /// A number `offset` bytes behind the start, aligned for its type.
    #[inline(always)]
    pub fn load<T: Plain>(self, offset: usize) -> T {
        let at = self.base.wrapping_add(offset).cast::<T>();
        // SAFETY: inside the region and no user's, as promised to `new`; any bytes are a value of T.
        unsafe { at.read() }
    }

    /// Sets a number.
    #[inline(always)]
    pub fn store<T: Plain>(self, offset: usize, value: T) {
        let at = self.base.wrapping_add(offset).cast::<T>();
        // SAFETY: inside the region and no user's, as promised to `new`.
        unsafe { at.write(value) }
    }

    /// Eight bytes at any address.
    #[inline(always)]
    pub fn load_anywhere(self, offset: usize) -> u64 {
        let at = self.base.wrapping_add(offset).cast::<u64>();
        // SAFETY: inside the region and no user's, as promised to `new`.
        unsafe { at.read_unaligned() }
    }

    /// Sets eight bytes at any address.
    #[inline(always)]
    pub fn store_anywhere(self, offset: usize, value: u64) {
        let at = self.base.wrapping_add(offset).cast::<u64>();
        // SAFETY: inside the region and no user's, as promised to `new`.
        unsafe { at.write_unaligned(value) }
    }

    /// The memory whose offsets are less by `offset`, which may be negative, wrapped around.
    pub fn moved(self, offset: usize) -> Self {
        let base = self.base.wrapping_add(offset);
        #[cfg(terrace_seeded_bug = "heap_pointer_from_a_number")]
        let base = core::ptr::without_provenance_mut(base.addr());
        Self { base }
    }

    /// Fills the first bytes, whole words, with zeros.
    ///
    /// Word by word and volatile, so that no call to `memset` comes of it: that alone is larger than the rest of
    /// setting a region up.
    pub fn clear(self, bytes: usize) {
        for offset in (0..bytes).step_by(size_of::<usize>()) {
            let at = self.base.wrapping_add(offset).cast::<usize>();
            // SAFETY: inside the region and no user's, as promised to `new`.
            unsafe { at.write_volatile(0) }
        }
    }

    /// The address of an offset.
    #[inline(always)]
    pub fn pointer(self, offset: usize) -> NonNull<u8> {
        let at = self.base.wrapping_add(offset);
        // SAFETY: an address inside an allocation, as promised to `new`, is not null.
        unsafe { NonNull::new_unchecked(at) }
    }

    /// How far behind the start an address is; wraps around for one in front.
    #[inline(always)]
    pub fn offset_of(self, address: NonNull<u8>) -> usize {
        address.addr().get().wrapping_sub(self.base.addr())
    }

    /// The first address, as a number.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.base.addr()
    }
}
