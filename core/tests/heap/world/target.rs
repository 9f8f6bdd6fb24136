//! One face for all configurations, with headers and without, so that one shadow serves them all.
//!
//! Promises upward: each call is the heap's, and nothing else.
//! Asks from below: the heap.

use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::heap::{HeaderHeap, HeapConfig, HeapUsage, RegionError, RegionHeap};
use terrace_core::{FreeError, Violation};

/// A heap of any configuration.
pub trait Target {
    /// See [`RegionHeap::add_region`].
    ///
    /// # Safety
    /// As there.
    unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError>;
    /// See [`RegionHeap::allocate`].
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>>;
    /// See [`RegionHeap::free`].
    ///
    /// # Safety
    /// As there.
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError>;
    /// See [`RegionHeap::resize`]. `None`: blocks with headers cannot be resized without the right to move them.
    ///
    /// # Safety
    /// As there.
    unsafe fn resize(&mut self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<Result<bool, FreeError>>;
    /// See [`RegionHeap::reallocate`].
    ///
    /// # Safety
    /// As there.
    unsafe fn reallocate(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError>;
    /// Bytes that a live block's header says, if it has one.
    ///
    /// # Safety
    /// The block is live.
    unsafe fn bytes_of(&self, block: NonNull<u8>) -> Option<usize>;
    /// See [`RegionHeap::merge`].
    fn merge(&mut self);
    /// See [`RegionHeap::usage`].
    fn usage(&self) -> HeapUsage;
    /// See [`RegionHeap::check`].
    fn check(&self) -> Result<(), Violation>;
    /// See [`RegionHeap::contains`].
    fn contains(&self, address: NonNull<u8>) -> bool;
}

impl<C: HeapConfig, const REGIONS: usize> Target for RegionHeap<C, REGIONS> {
    unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError> {
        // SAFETY: the caller's promise.
        unsafe { RegionHeap::add_region(self, start, bytes) }
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        RegionHeap::allocate(self, layout)
    }

    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        // SAFETY: the caller's promise.
        unsafe { RegionHeap::free(self, block, layout) }
    }

    unsafe fn resize(&mut self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<Result<bool, FreeError>> {
        // SAFETY: the caller's promise.
        Some(unsafe { RegionHeap::resize(self, block, layout, bytes) })
    }

    unsafe fn reallocate(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller's promise.
        unsafe { RegionHeap::reallocate(self, block, layout, bytes) }
    }

    unsafe fn bytes_of(&self, _: NonNull<u8>) -> Option<usize> {
        None
    }

    fn merge(&mut self) {
        RegionHeap::merge(self);
    }

    fn usage(&self) -> HeapUsage {
        RegionHeap::usage(self)
    }

    fn check(&self) -> Result<(), Violation> {
        RegionHeap::check(self)
    }

    fn contains(&self, address: NonNull<u8>) -> bool {
        RegionHeap::contains(self, address)
    }
}

impl<C: HeapConfig, const REGIONS: usize> Target for HeaderHeap<C, REGIONS> {
    unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError> {
        // SAFETY: the caller's promise.
        unsafe { HeaderHeap::add_region(self, start, bytes) }
    }

    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        HeaderHeap::allocate(self, layout.size(), layout.align())
    }

    unsafe fn free(&mut self, block: NonNull<u8>, _: Layout) -> Result<(), FreeError> {
        // SAFETY: the caller's promise.
        unsafe { HeaderHeap::free(self, block) }
    }

    unsafe fn resize(&mut self, _: NonNull<u8>, _: Layout, _: usize) -> Option<Result<bool, FreeError>> {
        None
    }

    unsafe fn reallocate(
        &mut self,
        block: NonNull<u8>,
        _: Layout,
        bytes: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller's promise.
        unsafe { HeaderHeap::reallocate(self, block, bytes) }
    }

    unsafe fn bytes_of(&self, block: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise.
        Some(unsafe { HeaderHeap::size_of(self, block) })
    }

    fn merge(&mut self) {
        HeaderHeap::merge(self);
    }

    fn usage(&self) -> HeapUsage {
        HeaderHeap::usage(self)
    }

    fn check(&self) -> Result<(), Violation> {
        HeaderHeap::check(self)
    }

    fn contains(&self, address: NonNull<u8>) -> bool {
        HeaderHeap::contains(self, address)
    }
}
