//! A pool of memory for I/O and for buffers, reused because the first touches of fresh memory cost more than the I/O.
//!
//! Promises upward: the bytes of a [`Frame`] belong to its holder alone; frames and the free memory between them never
//! exceed the pool's size; the pages of a returned frame stay until their memory is needed at another address.
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

/// The alignment of frames for I/O in bytes, enough for every disk.
pub const ALIGN: usize = 4096;

/// The unit in which [`FramePool::take_packed`] allocates: the bytes of a cache line.
pub const CACHE_LINE: usize = 64;

/// Address space of a sparse pool, as a multiple of its memory, for each of the arena's two areas. If block sizes
/// differ by a factor of at most 2^k, address space of `1 + k/2` times the live bytes always suffices despite
/// fragmentation (Robson 1971): 4 times for blocks of 64 KiB to 4 MiB. If sizes differ more, the memory of free pages
/// may have to move to other addresses.
const ADDRESS_FACTOR: u64 = 4;

/// Bytes of a page of a sparse pool, which is the unit of memory that it takes and returns: small, so that partly used
/// pages between buffers waste little.
const SMALL_PAGE: u64 = 64 << 10;

/// A sparse pool of at least this many huge pages uses huge pages: partly used pages at the ends of buffers then waste
/// little in proportion.
const HUGE_PAGES_FROM: u64 = 4096;

/// A pool of memory for I/O frames, in one mapping. Clones share the pool.
#[derive(Clone)]
pub struct FramePool {
    shared: Arc<FramePoolShared>,
}

struct FramePoolShared {
    bytes: usize,
    /// First byte of the region that the arena allocates from; its mapping lives as long as the arena.
    start: NonNull<u8>,
    arena: Mutex<PlainArena<PageSource, FrameRecords>>,
    /// Notified when a frame is returned, and when one is leaked.
    returned: Notify,
    /// Whether any frame was leaked, because the kernel may still access it.
    leaked: AtomicBool,
    process: Process,
}

// SAFETY: the arena owns the mapping that the pointer names, and each byte of it belongs to one frame.
unsafe impl Send for FramePoolShared {}
// SAFETY: as above; a lock guards the arena.
unsafe impl Sync for FramePoolShared {}

/// Allocates `count` slots (records of the arena) in a mapping of their own, whose untouched pages take no memory.
fn slots(count: u64) -> std::io::Result<SlotBytes<MmapMut>> {
    // The arena indexes slots with 30 bits, so that more are of no use.
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
    /// Creates a pool of `bytes` bytes for I/O, rounded up to 2 MiB; touches no memory.
    ///
    /// It reserves as many bytes of addresses as it has memory.
    ///
    /// # Errors
    /// The error of the system when it cannot map the memory.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let bytes = round_up(bytes)?;
        // Frames have at least [`ALIGN`] bytes, so the arena needs no area for small blocks.
        Self::build(bytes, bytes, HUGE_PAGE, [8, bytes / ALIGN as u64 + 8])
    }

    /// Creates a pool of `bytes` bytes for long-lived frames of all sizes.
    ///
    /// It reserves more addresses than it has memory. Where a new frame finds no contiguous pages, the memory of free
    /// pages elsewhere is moved to its addresses.
    ///
    /// # Errors
    /// The error of the system when it cannot map the memory.
    pub fn sparse(bytes: usize) -> std::io::Result<Self> {
        let bytes = round_up(bytes)?;
        let page = if bytes >= HUGE_PAGES_FROM * HUGE_PAGE { HUGE_PAGE } else { SMALL_PAGE };
        let slots = bytes / CACHE_LINE as u64 + 64;
        let mut space = bytes.saturating_mul(ADDRESS_FACTOR);
        // Where a limit (`ulimit -v`) refuses that many addresses, reserve fewer.
        loop {
            match Self::build(bytes, space, page, [slots, slots.min(bytes / ALIGN as u64 * 2 + 64)]) {
                Err(_) if space > bytes => space = (space / 2).max(bytes),
                made => return made,
            }
        }
    }

    /// Creates a pool of `bytes` bytes of memory under `space` bytes of addresses. `slots`: the number of records for
    /// small blocks, and for all other blocks.
    fn build(bytes: u64, space: u64, page: u64, slots: [u64; 2]) -> std::io::Result<Self> {
        // The arena numbers granules with 32 bits, so that a large address space needs larger granules.
        let granule = (CACHE_LINE as u64).max((space >> 32).next_power_of_two() << 1);
        let settings = ArenaSettings {
            granule,
            small_threshold: if slots[0] > 8 { ALIGN as u64 - 1 } else { 0 },
            coalesce: Coalesce::AtOnce,
            // Move free pages to other addresses only when the memory is used up.
            slack: u32::MAX,
            max_slack: u32::MAX,
            grain: page,
            // So that the kernel can use huge pages whatever the size of frames.
            map_multiple: HUGE_PAGE,
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

    /// Allocates a frame for I/O of at least `bytes` bytes, rounded up to a multiple of [`ALIGN`].
    ///
    /// It contains what its previous holder left in it.
    ///
    /// # Errors
    /// If the pool has no room until frames are returned: the error tells the size requested, and the largest that
    /// would fit. [`Cause::SourceFailed`] in a forked child.
    pub fn take(&self, bytes: usize) -> Result<Frame, AllocError> {
        self.allocate_frame(bytes, ALIGN)
    }

    /// Allocates a frame that is not for I/O, rounded up to a multiple of [`CACHE_LINE`].
    ///
    /// A frame of fewer than [`ALIGN`] bytes is aligned to [`CACHE_LINE`], and may share its page with others; a larger
    /// one is aligned to [`ALIGN`].
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_packed(&self, bytes: usize) -> Result<Frame, AllocError> {
        self.allocate_frame(bytes, CACHE_LINE)
    }

    fn allocate_frame(&self, bytes: usize, step: usize) -> Result<Frame, AllocError> {
        let short = |cause| AllocError::new(cause, bytes as u64);
        // Do not lock the arena in a forked child: if a thread of the parent held the lock at the fork, it is never
        // released.
        self.shared.is_own().ok_or(short(Cause::SourceFailed))?;
        let len = bytes.max(1).checked_next_multiple_of(step).ok_or(short(Cause::TooLarge))?;
        let align = if bytes < ALIGN { step } else { ALIGN };
        let block = self.shared.arena().allocate(Request::new(len as u64).align(align as u64))?;
        // The block's address lies in the mapping; the pointer is derived from the mapping's, to keep its provenance.
        let start = self.shared.start.map_addr(|start| start.saturating_add(block.address as usize - start.get()));
        Ok(Frame { start, len, owner: FrameOwner::Pool(block, Arc::clone(&self.shared)), read_only: false })
    }

    /// Waits until the pool has room, then returns a frame as [`take`](Self::take) does.
    ///
    /// # Errors
    /// A number of bytes: the size of the pool if it is less than `bytes`; 0 in a forked child, and if the pool has no
    /// room after a frame was leaked.
    pub async fn wait(&self, bytes: usize) -> Result<Frame, usize> {
        self.shared.is_own().ok_or(0usize)?;
        if bytes > self.shared.bytes {
            return Err(self.shared.bytes);
        }
        loop {
            if let Ok(frame) = self.take(bytes) {
                return Ok(frame);
            }
            // Listen before the second try, so that a frame returned between that try and `await` is not missed.
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

    /// The number of bytes that frames hold now, and the size of the pool in bytes.
    pub fn usage(&self) -> (usize, usize) {
        let used = self.shared.is_own().map_or(0, |()| self.shared.arena().stats().in_use as usize);
        (used, self.shared.bytes)
    }

    /// Bytes of memory in pages that hold a frame, held one or were mapped ahead, and are not trimmed.
    pub fn resident(&self) -> usize {
        self.shared.is_own().map_or(0, |()| self.shared.arena().reserved() as usize)
    }

    /// Gives the memory of pages that hold no frame back to the system; returns the number of bytes.
    pub fn trim(&self) -> usize {
        self.shared.is_own().map_or(0, |()| self.shared.arena().trim() as usize)
    }
}

fn out_of_memory() -> std::io::Error {
    std::io::ErrorKind::OutOfMemory.into()
}

/// Rounds up to a multiple of a huge page; fails above 2^46 bytes.
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

/// A range of memory from a [`FramePool`], returned to the pool on drop.
///
/// Or a part of memory that others hold too: see [`Frame::part_of`].
pub struct Frame {
    start: NonNull<u8>,
    /// Length in bytes: a multiple of [`ALIGN`], or of [`CACHE_LINE`] in a packed frame.
    len: usize,
    owner: FrameOwner,
    /// Whether the bytes are only read: others may read them too.
    read_only: bool,
}

/// What keeps a frame's memory.
enum FrameOwner {
    /// The frame is this block of the pool.
    Pool(Block, Arc<FramePoolShared>),
    /// The frame is a part of memory that lives as long as this reference.
    Shared(#[expect(dead_code, reason = "only kept")] Arc<dyn Send + Sync>),
}

// SAFETY: a frame's bytes are its holder's alone, on any thread; of a part, as the caller of `part_of` promised.
unsafe impl Send for Frame {}
// SAFETY: a shared frame is only read.
unsafe impl Sync for Frame {}

impl Frame {
    /// A frame over `len` bytes of memory that `owner` keeps, so that I/O needs no copy of them.
    ///
    /// # Safety
    /// The bytes must be initialised, and stay valid while `owner` lives, wherever it is moved. Until the frame is
    /// dropped, no other thread may write them. If other threads may read them, the frame must be made
    /// [`read_only`](Self::read_only) at once.
    pub unsafe fn part_of(owner: Arc<dyn Send + Sync>, start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, owner: FrameOwner::Shared(owner), read_only: false }
    }

    /// The frame as one that cannot be written or read into: borrowing its bytes for that panics.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Whether the frame cannot be written or read into.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The first byte of the frame.
    ///
    /// For system calls, and for a holder that synchronises access to the bytes by itself.
    pub fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Never returns the memory, because the kernel may still access it. Fails waiters that only this frame could
    /// serve.
    pub(crate) fn leak(self) {
        if let FrameOwner::Pool(_, shared) = &self.owner {
            shared.leaked.store(true, Ordering::Release);
            shared.returned.notify();
        }
        // `forget` also keeps this frame's reference to its owner, so that the mapping stays.
        std::mem::forget(self);
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the arena allocated these bytes to this frame alone, and the mapping is initialised, with zeros at
        // first; of a part, the caller of `part_of` promised that they are initialised and not written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(!self.read_only, "these bytes are lent to be read");
        // SAFETY: as above, and `self` is borrowed exclusively; of a part, the caller of `part_of` promised that no
        // other thread reads it: the frame is not read-only.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let FrameOwner::Pool(block, shared) = &self.owner else { return };
        if shared.is_own().is_none() {
            return;
        }
        // `free` fails only for a block that is not allocated.
        let _ = shared.arena().free(*block, Owner(0));
        // Wake all waiters: the freed room may suffice for several of them, or for only one that is not the first.
        shared.returned.notify();
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
