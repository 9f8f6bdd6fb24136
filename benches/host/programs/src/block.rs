//! A block from the C interface: what every program here allocates.
//!
//! Promises upward: each call reaches `malloc`, `calloc`, `realloc`, `aligned_alloc` or `free` of whatever library is
//! loaded, and none can be optimised away, since the block is written to; both ends of a block still hold what was written
//! when it is freed, or the program ends with a word. No unsafe code outside this file is needed to use it.
//! Asks from below: a C library.

use std::process::exit;
use std::ptr::NonNull;

/// Memory that is freed when dropped, on whichever thread that happens.
pub struct Block {
    /// The start; owned.
    base: NonNull<u8>,
    /// Bytes, at least 1.
    size: usize,
}

// SAFETY: the block owns its memory alone, and an allocator takes blocks back on any thread.
unsafe impl Send for Block {}

impl Block {
    /// `malloc`.
    pub fn new(size: usize) -> Self {
        let size = size.max(1);
        // SAFETY: any size may be asked for.
        Self::stamped(unsafe { libc::malloc(size) }, size)
    }

    /// `calloc`; the first, middle and last byte must be zero.
    pub fn zeroed(size: usize) -> Self {
        let size = size.max(1);
        // SAFETY: any size may be asked for.
        let block = Self::owned(unsafe { libc::calloc(1, size) }, size);
        if [0, size / 2, size - 1].iter().any(|&at| block.get(at) != 0) {
            fail("calloc gave memory that is not zero");
        }
        block.stamp();
        block
    }

    /// `aligned_alloc`. `align`: a power of two.
    pub fn aligned(align: usize, size: usize) -> Self {
        let size = size.max(1).next_multiple_of(align);
        // SAFETY: the alignment is a power of two and divides the size, as C11 asks.
        let base = unsafe { libc::aligned_alloc(align, size) };
        if !(base as usize).is_multiple_of(align) {
            fail("aligned_alloc gave memory that is not aligned");
        }
        Self::stamped(base, size)
    }

    /// `realloc`: the start keeps its byte.
    pub fn resize(&mut self, size: usize) {
        let size = size.max(1);
        self.check();
        let first = self.get(0);
        // SAFETY: the block came from this allocator and is owned; its old start is not used again.
        let base = unsafe { libc::realloc(self.base.as_ptr().cast(), size) };
        // The old block is gone: it must not be dropped.
        std::mem::forget(std::mem::replace(self, Self::owned(base, size)));
        if self.get(0) != first {
            fail("realloc lost the first byte");
        }
        self.stamp();
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes one byte in each page, and both ends.
    pub fn touch(&self) {
        (0..self.size).step_by(4096).for_each(|at| self.set(at, at as u8));
        self.stamp();
    }

    /// Reads and writes the byte in the middle, `times`.
    pub fn bump(&self, times: usize) {
        let at = self.size / 2;
        (0..times).for_each(|_| self.set(at, self.get(at).wrapping_add(1)));
        self.stamp();
    }

    fn stamped(base: *mut libc::c_void, size: usize) -> Self {
        let block = Self::owned(base, size);
        block.stamp();
        block
    }

    fn owned(base: *mut libc::c_void, size: usize) -> Self {
        let Some(base) = NonNull::new(base.cast()) else { fail("out of memory") };
        Self { base, size }
    }

    /// Both ends say how large the block is; of a single byte the first end stands.
    fn stamp(&self) {
        self.set(self.size - 1, !(self.size as u8));
        self.set(0, self.size as u8);
    }

    fn check(&self) {
        let last = self.size == 1 || self.get(self.size - 1) == !(self.size as u8);
        if self.get(0) != self.size as u8 || !last {
            fail("a block was overwritten");
        }
    }

    fn get(&self, at: usize) -> u8 {
        debug_assert!(at < self.size);
        // SAFETY: `at` lies within the block.
        let from = unsafe { self.base.add(at) };
        // SAFETY: owned memory; volatile reads of bytes that were never written give some byte of the heap.
        unsafe { from.read_volatile() }
    }

    fn set(&self, at: usize, value: u8) {
        debug_assert!(at < self.size);
        // SAFETY: `at` lies within the block.
        let to = unsafe { self.base.add(at) };
        // SAFETY: owned memory.
        unsafe { to.write_volatile(value) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.check();
        // SAFETY: it came from this allocator, is owned, and is not used again.
        unsafe { libc::free(self.base.as_ptr().cast()) }
    }
}

/// Ends the program: what was found is the allocator's fault, or there is no memory.
pub fn fail(what: &str) -> ! {
    eprintln!("error: {what}");
    exit(3)
}
