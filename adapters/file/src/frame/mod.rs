//! Memory that files are read into and written from, and that buffers lie in: used again and again, since first touches of fresh
//! memory cost more than the I/O itself.
//!
//! Promises upward: a [`Frame`] is its holder's alone; together frames never take more memory than the pool was given, free
//! memory between them included; a frame that goes back keeps its pages until they are wanted elsewhere.
//! Asks from below: the pages of one mapping, dealt out by the core's arena.

mod pages;

use crate::notify::Notify;
use memmap2::MmapMut;
use pages::{HUGE_PAGE, PageSource};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_core::arena::{Coalesce, Parts, PlainArena, Settings, Store, Waiting};
use terrace_core::{
    AllocError, Allocator, Arena, Bin, Block, Cause, Entry, GoodFit, NoFence, Owner, Request, Segment, SlotBytes,
};
use terrace_guard::Process;

/// Alignment of frames for I/O: what every disk takes.
pub const ALIGN: usize = 4096;

/// Bytes that [`FramePool::take_packed`] deals out at least, and in multiples of: a cache line.
pub const CACHE_LINE: usize = 64;

/// Addresses of a spread pool, as a multiple of its memory, for each of its two areas. With blocks that differ in size by 2^k at
/// most, addresses of `1 + k/2` times what is live are always enough (Robson 1971): 4 for 64 KiB beside 4 MiB. Beyond that pages
/// move.
const ADDRESS_FACTOR: u64 = 4;

/// A spread pool goes back to the system by such pages: small ones leave little unused between buffers.
const SMALL_PAGE: u64 = 64 << 10;

/// Above so many huge pages a spread pool is made of them: what is unused at the ends of buffers is little then, too.
const HUGE_PAGES_FROM: u64 = 4096;

/// Frames of one mapping. Clones are the same.
#[derive(Clone)]
pub struct FramePool {
    shared: Arc<FramePoolShared>,
}

struct FramePoolShared {
    bytes: usize,
    /// First byte of the mapping, which lives as long as the arena.
    start: NonNull<u8>,
    arena: Mutex<PlainArena<PageSource, FrameRecords>>,
    /// Wakes those who wait for a frame when one comes back, and when the kernel keeps one for ever.
    returned: Notify,
    /// Whether the kernel kept a frame for ever.
    leaked: AtomicBool,
    process: Process,
}

// SAFETY: the pointer names a mapping that belongs to the arena; what is dealt out is one frame's alone.
unsafe impl Send for FramePoolShared {}
// SAFETY: as above; the arena is under a lock.
unsafe impl Sync for FramePoolShared {}

/// Slots in a mapping of their own, of which only what is used takes memory.
fn slots(count: u64) -> std::io::Result<SlotBytes<MmapMut>> {
    // Slots have 30 bits for sure.
    let bytes = SlotBytes::<MmapMut>::bytes(count.min(1 << 30) as usize);
    Ok(SlotBytes::new(MmapMut::map_anon(bytes)?))
}

/// Where the arena's records are.
struct FrameRecords;

impl Store for FrameRecords {
    type Slots = SlotBytes<MmapMut>;
    type Index = GoodFit;
    type Bins = Box<[Bin]>;
    type Entries = &'static mut [Entry<Block>];
    type Segments = &'static mut [Segment];
    type Waiting = &'static mut [Waiting];
}

impl FramePool {
    /// Room for frames of `bytes` bytes together, rounded up to 2 MiB, for I/O: their addresses lie side by side. Nothing is
    /// touched yet.
    ///
    /// # Errors
    /// The system's, as for memory.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let bytes = round_up(bytes)?;
        // A frame is at least a page of the system's; small ones have no area of their own.
        Self::build(bytes, bytes, HUGE_PAGE, [8, bytes / ALIGN as u64 + 8])
    }

    /// The same for frames of all sizes that stay for long: there are more addresses than memory, and pages that are free between
    /// frames go where one needs them.
    ///
    /// # Errors
    /// The system's, as for memory.
    pub fn sparse(bytes: usize) -> std::io::Result<Self> {
        let bytes = round_up(bytes)?;
        let page = if bytes >= HUGE_PAGES_FROM * HUGE_PAGE { HUGE_PAGE } else { SMALL_PAGE };
        let slots = bytes / CACHE_LINE as u64 + 64;
        let mut space = bytes.saturating_mul(ADDRESS_FACTOR);
        // A limit of addresses is no reason to fail.
        loop {
            match Self::build(bytes, space, page, [slots, slots.min(bytes / ALIGN as u64 * 2 + 64)]) {
                Err(_) if space > bytes => space = (space / 2).max(bytes),
                made => return made,
            }
        }
    }

    /// `slots`: for small frames, and for others.
    fn build(bytes: u64, space: u64, page: u64, slots: [u64; 2]) -> std::io::Result<Self> {
        // The arena numbers granules with 32 bits.
        let granule = (CACHE_LINE as u64).max((space >> 32).next_power_of_two() << 1);
        let settings = Settings {
            granule,
            small: if slots[0] > 8 { ALIGN as u64 - 1 } else { 0 },
            coalesce: Coalesce::AtOnce,
            // Pages move when the memory is used up, not before.
            slack: u32::MAX,
            slack_most: u32::MAX,
            grain: page,
            space,
            ..Settings::growing()
        };
        let parts = Parts::<FrameRecords> {
            slots: [self::slots(slots[0])?, self::slots(slots[1])?],
            index: [GoodFit::new(), GoodFit::new()],
            bins: Box::new([Bin::EMPTY; 4]),
            entries: &mut [],
            segments: &mut [],
            waiting: [&mut [], &mut []],
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

    /// A frame for I/O of at least `bytes` bytes (rounded up to [`ALIGN`]); what it holds is left from its last holder.
    ///
    /// # Errors
    /// That there is no room: frames must come back first. It says what was asked and what the largest would be.
    /// [`Cause::SourceFailed`] in a forked child.
    pub fn take(&self, bytes: usize) -> Result<Frame, AllocError> {
        self.allocate_frame(bytes, ALIGN)
    }

    /// The same, not for I/O: rounded up to [`CACHE_LINE`], and aligned to it; from [`ALIGN`] bytes on, to that. Small ones share pages.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_packed(&self, bytes: usize) -> Result<Frame, AllocError> {
        self.allocate_frame(bytes, CACHE_LINE)
    }

    fn allocate_frame(&self, bytes: usize, step: usize) -> Result<Frame, AllocError> {
        let short = |cause| AllocError::new(cause, bytes as u64);
        // The lock may be a thread's that is not in this child.
        self.shared.is_own().ok_or(short(Cause::SourceFailed))?;
        let len = bytes.max(1).checked_next_multiple_of(step).ok_or(short(Cause::TooLarge))?;
        let align = if bytes < ALIGN { step } else { ALIGN };
        let block = self.shared.arena().allocate(Request::new(len as u64).align(align as u64))?;
        // The arena's addresses are those of the mapping.
        let start = self.shared.start.map_addr(|start| start.saturating_add(block.address as usize - start.get()));
        Ok(Frame { start, len, block, shared: Arc::clone(&self.shared) })
    }

    /// The same, when there is room: others must give frames back first.
    ///
    /// # Errors
    /// Bytes of room in all, when that is less than was asked for; none in a forked child, nor where there is no room now and
    /// the kernel keeps a frame for ever.
    pub async fn wait(&self, bytes: usize) -> Result<Frame, usize> {
        self.shared.is_own().ok_or(0usize)?;
        if bytes > self.shared.bytes {
            return Err(self.shared.bytes);
        }
        loop {
            if let Ok(frame) = self.take(bytes) {
                return Ok(frame);
            }
            // Listened for before looking again, so that nothing is missed.
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

    /// Bytes that frames hold now, and room for them in all.
    pub fn usage(&self) -> (usize, usize) {
        let used = self.shared.is_own().map_or(0, |()| self.shared.arena().stats().in_use as usize);
        (used, self.shared.bytes)
    }

    /// Bytes of memory that frames hold or held: those of pages that were touched and did not go back to the system.
    pub fn resident(&self) -> usize {
        self.shared.is_own().map_or(0, |()| self.shared.arena().reserved() as usize)
    }

    /// Gives pages that no frame has a part of back to the system. Returns their bytes.
    pub fn trim(&self) -> usize {
        self.shared.is_own().map_or(0, |()| self.shared.arena().trim() as usize)
    }
}

fn out_of_memory() -> std::io::Error {
    std::io::ErrorKind::OutOfMemory.into()
}

/// In whole huge pages.
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

/// Bytes for I/O. Dropped, they go back to their pool.
pub struct Frame {
    start: NonNull<u8>,
    /// Bytes, a multiple of [`ALIGN`]; of [`CACHE_LINE`] where it is packed.
    len: usize,
    block: Block,
    shared: Arc<FramePoolShared>,
}

// SAFETY: a frame's bytes are its holder's alone, wherever that is.
unsafe impl Send for Frame {}
// SAFETY: shared frames are only read.
unsafe impl Sync for Frame {}

impl Frame {
    /// Its first byte: for the system, and for who keeps the frame and hands its bytes out under a rule of its own.
    pub fn pointer(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Leaves it to the kernel, which may read or write it for ever. Nobody waits for it any more.
    pub(crate) fn leak(self) {
        self.shared.leaked.store(true, Ordering::Release);
        self.shared.returned.notify();
        // With it the mapping stays.
        std::mem::forget(self);
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the arena dealt these bytes to this frame alone; the mapping is zero or what was written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.shared.is_own().is_none() {
            return;
        }
        // Refused only for a name that is not live, and this one is.
        let _ = self.shared.arena().free(self.block, Owner(0));
        // All: what came back may do for several, or for none but the last.
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
