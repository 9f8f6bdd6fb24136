//! A pool of memory for I/O and for buffers, reused because the first touches of fresh memory cost more than the I/O.
//!
//! Promises upward: the bytes of a [`Frame`] are its holder's alone; frames and the free memory between them never exceed the
//! pool's size; a frame that is returned keeps its pages until they are needed at another address.
//! Asks from below: the pages of one mapping, which the core's arena allocates from.

mod pages;

use crate::notify::Notify;
use memmap2::MmapMut;
use pages::{HUGE_PAGE, PageSource};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_core::arena::{ArenaParts, ArenaSettings, ArenaStorage, Coalesce, PendingFree, PlainArena};
use terrace_core::{
    AllocError, Allocator, Arena, Bin, Block, Cause, Entry, GoodFit, NoFence, Owner, Request, Segment, SlotBytes,
};
use terrace_guard::Process;

/// The alignment of frames for I/O, enough for every disk.
pub const ALIGN: usize = 4096;

/// The granule of [`FramePool::take_packed`]: a cache line.
pub const CACHE_LINE: usize = 64;

/// Addresses of a sparse pool, as a multiple of its memory, for each of the arena's two areas. If block sizes differ by a factor
/// of at most 2^k, addresses of `1 + k/2` times the live bytes are always enough (Robson 1971): 4 for 64 KiB beside 4 MiB. Beyond
/// that, pages move.
const ADDRESS_FACTOR: u64 = 4;

/// The page of a sparse pool: small, so that little memory is lost between buffers.
const SMALL_PAGE: u64 = 64 << 10;

/// From this many huge pages on, a sparse pool has huge pages: what is lost at the ends of buffers is little then, too.
const HUGE_PAGES_FROM: u64 = 4096;

/// A pool of frames in one mapping. Clones share it.
#[derive(Clone)]
pub struct FramePool {
    shared: Arc<FramePoolShared>,
}

struct FramePoolShared {
    bytes: usize,
    /// First byte of the mapping, which lives as long as the arena.
    start: NonNull<u8>,
    arena: Mutex<PlainArena<PageSource, FrameRecords>>,
    /// Notified when a frame is returned, and when one is leaked.
    returned: Notify,
    /// Whether a frame was leaked to the kernel.
    leaked: AtomicBool,
    process: Process,
}

// SAFETY: the arena owns the mapping that the pointer names, and each byte of it belongs to one frame.
unsafe impl Send for FramePoolShared {}
// SAFETY: as above; a lock guards the arena.
unsafe impl Sync for FramePoolShared {}

/// Slots in a mapping of their own, whose untouched pages take no memory.
fn slots(count: u64) -> std::io::Result<SlotBytes<MmapMut>> {
    // Slots are indexed with 30 bits.
    let bytes = SlotBytes::<MmapMut>::bytes(count.min(1 << 30) as usize);
    Ok(SlotBytes::new(MmapMut::map_anon(bytes)?))
}

/// The arena's storage for its records.
struct FrameRecords;

impl ArenaStorage for FrameRecords {
    type Slots = SlotBytes<MmapMut>;
    type Index = GoodFit;
    type Bins = Box<[Bin]>;
    type Entries = &'static mut [Entry<Block>];
    type Segments = &'static mut [Segment];
    type Pending = &'static mut [PendingFree];
}

impl FramePool {
    /// A pool of `bytes` bytes, rounded up to 2 MiB, for I/O: addresses are dense. Touches no memory.
    ///
    /// # Errors
    /// The system's, for memory.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let bytes = round_up(bytes)?;
        // The smallest frame is a page of the system's, so small frames have no area of their own.
        Self::build(bytes, bytes, HUGE_PAGE, [8, bytes / ALIGN as u64 + 8])
    }

    /// A pool of `bytes` bytes for long-lived frames of all sizes.
    ///
    /// It has more addresses than memory: free pages between frames move where a frame needs them.
    ///
    /// # Errors
    /// The system's, for memory.
    /// The system's, as for memory.
    pub fn sparse(bytes: usize) -> std::io::Result<Self> {
        let bytes = round_up(bytes)?;
        let page = if bytes >= HUGE_PAGES_FROM * HUGE_PAGE { HUGE_PAGE } else { SMALL_PAGE };
        let slots = bytes / CACHE_LINE as u64 + 64;
        let mut space = bytes.saturating_mul(ADDRESS_FACTOR);
        // A limit of addresses (`ulimit -v`) is no failure: take fewer.
        loop {
            match Self::build(bytes, space, page, [slots, slots.min(bytes / ALIGN as u64 * 2 + 64)]) {
                Err(_) if space > bytes => space = (space / 2).max(bytes),
                made => return made,
            }
        }
    }

    /// `slots`: the number of slots for small frames, and for others.
    fn build(bytes: u64, space: u64, page: u64, slots: [u64; 2]) -> std::io::Result<Self> {
        // The arena numbers granules with 32 bits.
        let granule = (CACHE_LINE as u64).max((space >> 32).next_power_of_two() << 1);
        let settings = ArenaSettings {
            granule,
            small: if slots[0] > 8 { ALIGN as u64 - 1 } else { 0 },
            coalesce: Coalesce::AtOnce,
            // Pages move when the memory is used up, not before.
            slack: u32::MAX,
            max_slack: u32::MAX,
            grain: page,
            space,
            ..ArenaSettings::growing()
        };
        let parts = ArenaParts::<FrameRecords> {
            slots: [self::slots(slots[0])?, self::slots(slots[1])?],
            index: [GoodFit::new(), GoodFit::new()],
            bins: Box::new([Bin::EMPTY; 4]),
            entries: &mut [],
            segments: &mut [],
            pending: [&mut [], &mut []],
        };
        let mut arena =
            Arena::new(PageSource::new(bytes, page), NoFence, parts, settings).map_err(std::io::Error::other)?;
        let start = arena.source_mut().start().ok_or_else(out_of_memory)?;
        let shared = FramePoolShared {
            bytes: bytes as usize,
            start,
            arena: Mutex::new(arena),
            returned: Notify::new(),
            leaked: AtomicBool::new(false),
            process: Process::current(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A frame for I/O of at least `bytes` bytes, rounded up to [`ALIGN`].
    ///
    /// It holds the bytes of its last holder.
    ///
    /// # Errors
    /// The pool has no room until frames are returned: the error tells the size that was asked for and the largest that would
    /// fit. [`Cause::SourceFailed`] in a forked child.
    pub fn take(&self, bytes: usize) -> Result<Frame, AllocError> {
        self.allocate_frame(bytes, ALIGN)
    }

    /// A frame that is not for I/O, in multiples of [`CACHE_LINE`].
    ///
    /// Aligned to [`CACHE_LINE`], or to [`ALIGN`] from that many bytes on. Small frames share pages.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_packed(&self, bytes: usize) -> Result<Frame, AllocError> {
        self.allocate_frame(bytes, CACHE_LINE)
    }

    fn allocate_frame(&self, bytes: usize, step: usize) -> Result<Frame, AllocError> {
        let short = |cause| AllocError::new(cause, bytes as u64);
        // In a forked child another thread of the parent may hold the lock for ever.
        self.shared.is_own().ok_or(short(Cause::SourceFailed))?;
        let len = bytes.max(1).checked_next_multiple_of(step).ok_or(short(Cause::TooLarge))?;
        let align = if bytes < ALIGN { step } else { ALIGN };
        let block = self.shared.arena().allocate(Request::new(len as u64).align(align as u64))?;
        // The arena's addresses are those of the mapping.
        let start = self.shared.start.map_addr(|start| start.saturating_add(block.address as usize - start.get()));
        Ok(Frame { start, len, block, shared: Arc::clone(&self.shared) })
    }

    /// A frame as from [`take`](Self::take), once the pool has room.
    ///
    /// # Errors
    /// The size of the pool, if that is less than `bytes`; 0 in a forked child, and when a frame is leaked and the pool has no
    /// room.
    pub async fn wait(&self, bytes: usize) -> Result<Frame, usize> {
        self.shared.is_own().ok_or(0usize)?;
        if bytes > self.shared.bytes {
            return Err(self.shared.bytes);
        }
        loop {
            if let Ok(frame) = self.take(bytes) {
                return Ok(frame);
            }
            // Listen before the second try: a frame that is returned between the two is not missed.
            let back = self.shared.returned.listen();
            if let Ok(frame) = self.take(bytes) {
                return Ok(frame);
            }
            if self.shared.leaked.load(Ordering::Acquire) {
                return Err(0);
            }
            back.await;
            self.shared.is_own().ok_or(0usize)?;
        }
    }

    /// Bytes that frames hold now, and the size of the pool.
    pub fn usage(&self) -> (usize, usize) {
        let used = self.shared.is_own().map_or(0, |()| self.shared.arena().stats().in_use as usize);
        (used, self.shared.bytes)
    }

    /// Bytes of memory under frames and former frames: of pages that were touched and are not trimmed.
    pub fn resident(&self) -> usize {
        self.shared.is_own().map_or(0, |()| self.shared.arena().reserved() as usize)
    }

    /// Returns pages without a frame to the system; the result is their bytes.
    pub fn trim(&self) -> usize {
        self.shared.is_own().map_or(0, |()| self.shared.arena().trim() as usize)
    }
}

fn out_of_memory() -> std::io::Error {
    std::io::ErrorKind::OutOfMemory.into()
}

/// Rounds up to huge pages.
fn round_up(bytes: usize) -> std::io::Result<u64> {
    (bytes.max(1) as u64)
        .checked_next_multiple_of(HUGE_PAGE)
        .filter(|bytes| *bytes <= 1 << 46)
        .ok_or_else(out_of_memory)
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FramePool").field("usage", &self.usage()).finish()
    }
}

impl FramePoolShared {
    fn arena(&self) -> MutexGuard<'_, PlainArena<PageSource, FrameRecords>> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` in a forked child.
    fn is_own(&self) -> Option<()> {
        self.process.is_current().then_some(())
    }
}

/// Bytes from a [`FramePool`]. Dropped, they return to it.
pub struct Frame {
    start: NonNull<u8>,
    /// Length, a multiple of [`ALIGN`], or of [`CACHE_LINE`] in a packed frame.
    len: usize,
    block: Block,
    shared: Arc<FramePoolShared>,
}

// SAFETY: a frame's bytes are its holder's alone, on any thread.
unsafe impl Send for Frame {}
// SAFETY: a shared frame is only read.
unsafe impl Sync for Frame {}

impl Frame {
    /// The first byte of the frame.
    ///
    /// For system calls, and for a holder that shares out the bytes under its own rules.
    pub fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Leaves the frame to the kernel, which may access it for ever. Waiters that only this frame could serve fail.
    pub(crate) fn leak(self) {
        self.shared.leaked.store(true, Ordering::Release);
        self.shared.returned.notify();
        // The frame's reference keeps the mapping alive.
        std::mem::forget(self);
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the arena allocated these bytes to this frame alone; the mapping is initialised, with zeros at first.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.shared.is_own().is_none() {
            return;
        }
        // Fails only for a block that is not live.
        let _ = self.shared.arena().free(self.block, Owner(0));
        // All waiters: this room may serve several of them, or only the last.
        self.shared.returned.notify();
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
