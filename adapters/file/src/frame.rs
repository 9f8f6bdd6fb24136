//! Memory that files are read into and written from: aligned as direct I/O wants it, and used again and again, since first
//! touches of fresh memory cost more than the I/O itself.
//!
//! Promises upward: a [`Frame`] is its holder's alone, aligned to [`ALIGN`]; together frames never take more than the pool was
//! given; a frame that goes back keeps its pages.
//! Asks from below: one mapping of the system's, dealt out by the core's range allocator.

use crate::notify::Notify;
#[cfg(not(miri))]
use rustix::mm::{Advice, madvise};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_core::{AllocError, Allocator, Block, Cause, GoodFit, Owner, Range, Request, Slot};
use terrace_guard::Process;

/// Alignment of frames: what every disk takes.
pub const ALIGN: usize = 4096;

/// A huge page: the mapping starts at a multiple of it, so that the system can use such pages.
const HUGE: usize = 2 << 20;

/// Frames of one mapping. Clones are the same.
#[derive(Clone)]
pub struct Frames {
    shared: Arc<Shared>,
}

struct Shared {
    /// The mapping, whole, and the part that is dealt out: `bytes` from a multiple of [`HUGE`] on.
    mapping: NonNull<u8>,
    mapped: usize,
    base: NonNull<u8>,
    bytes: usize,
    range: Mutex<Range<Vec<Slot>, GoodFit>>,
    /// Wakes those who wait for a frame when one comes back, and when the kernel keeps one for ever.
    back: Notify,
    /// Whether the kernel kept a frame for ever.
    lost: AtomicBool,
    process: Process,
}

// SAFETY: the pointers name a mapping that belongs to `Shared` until it is dropped; what is dealt out is one frame's alone.
unsafe impl Send for Shared {}
// SAFETY: as above; the range is under a lock.
unsafe impl Sync for Shared {}

impl Frames {
    /// Room for frames of `bytes` bytes together, rounded up to 2 MiB. Nothing is touched yet.
    ///
    /// # Errors
    /// The system's, as for memory.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let short = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE).ok_or_else(short)?;
        let mapped = bytes.checked_add(HUGE).ok_or_else(short)?;
        // A frame is at least a page; the range's numbers are offsets from here, from 1 page on: 0 is no address.
        let (mut slots, count) = (Vec::new(), bytes / ALIGN + 2);
        slots.try_reserve_exact(count).map_err(|_| short())?;
        slots.resize(count, Slot::EMPTY);
        let mut range = Range::new(slots, ALIGN as u64, GoodFit::new()).map_err(std::io::Error::other)?;
        range.add_region(ALIGN as u64, bytes as u64).map_err(std::io::Error::other)?;
        // Miri knows plain mappings only, and no advice.
        let kind = if cfg!(miri) { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::NORESERVE };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice.
        let mapping = unsafe { mmap_anonymous(null_mut(), mapped, access, kind) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let skip = mapping.as_ptr().align_offset(HUGE);
        // SAFETY: the mapping has a huge page more than is dealt out.
        let base = unsafe { mapping.add(skip) };
        // SAFETY: inside the mapping. Refused: small pages do.
        #[cfg(not(miri))]
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self {
            shared: Arc::new(Shared {
                mapping,
                mapped,
                base,
                bytes,
                range: Mutex::new(range),
                back: Notify::new(),
                lost: AtomicBool::new(false),
                process: Process::current(),
            }),
        })
    }

    /// A frame of at least `bytes` bytes (rounded up to [`ALIGN`]); what it holds is left from its last holder.
    ///
    /// # Errors
    /// That there is no room: frames must come back first. It says what was asked and what the largest would be.
    /// [`Cause::SourceFailed`] in a forked child.
    pub fn take(&self, bytes: usize) -> Result<Frame, AllocError> {
        let short = |cause| AllocError::new(cause, bytes as u64);
        // The lock may be a thread's that is not in this child.
        self.shared.is_own().ok_or(short(Cause::SourceFailed))?;
        let len = bytes.max(1).checked_next_multiple_of(ALIGN).ok_or(short(Cause::TooLarge))?;
        let block = self.range().allocate(Request::new(len as u64))?;
        let offset = block.address as usize - ALIGN;
        // SAFETY: the range deals out `bytes` bytes from `base` on.
        let start = unsafe { self.shared.base.add(offset) };
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
            let back = self.shared.back.listen();
            if let Ok(frame) = self.take(bytes) {
                return Ok(frame);
            }
            if self.shared.lost.load(Ordering::Acquire) {
                return Err(0);
            }
            back.await;
            self.shared.is_own().ok_or(0usize)?;
        }
    }

    /// Bytes that frames hold now, and room for them in all.
    pub fn usage(&self) -> (usize, usize) {
        let used = self.shared.is_own().map_or(0, |()| self.range().stats().in_use as usize);
        (used, self.shared.bytes)
    }

    fn range(&self) -> std::sync::MutexGuard<'_, Range<Vec<Slot>, GoodFit>> {
        self.shared.range.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("usage", &self.usage()).finish()
    }
}

impl Shared {
    /// `None` in a forked child.
    fn is_own(&self) -> Option<()> {
        self.process.is_current().then_some(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the last frame and the last handle are gone.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// Bytes for I/O. Dropped, they go back to their pool.
pub struct Frame {
    start: NonNull<u8>,
    /// Bytes, a multiple of [`ALIGN`].
    len: usize,
    block: Block,
    shared: Arc<Shared>,
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
    pub(crate) fn forsake(self) {
        self.shared.lost.store(true, Ordering::Release);
        self.shared.back.notify();
        // With it the mapping stays.
        std::mem::forget(self);
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range dealt these bytes to this frame alone; the mapping is zero or what was written.
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
        let mut range = self.shared.range.lock().unwrap_or_else(PoisonError::into_inner);
        // Refused only for a name that is not live, and this one is.
        let _ = range.free(self.block, Owner(0));
        drop(range);
        // All: what came back may do for several, or for none but the last.
        self.shared.back.notify();
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_aligned_apart_and_bounded() {
        let frames = Frames::new(4 << 20).expect("a mapping");
        let mut held: Vec<Frame> = (1..=40).map(|i| frames.take(i * 1000).expect("there is room")).collect();
        for (i, frame) in held.iter_mut().enumerate() {
            assert_eq!((frame.as_ptr() as usize % ALIGN, frame.len() % ALIGN), (0, 0));
            assert!(frame.len() >= (i + 1) * 1000);
            frame.fill(i as u8);
        }
        // Under Miri a few bytes of each.
        let step = if cfg!(miri) { 997 } else { 1 };
        for (i, frame) in held.iter().enumerate() {
            assert!(frame.iter().step_by(step).all(|&byte| byte == i as u8), "frame {i} is its holder's alone");
        }
        assert!(frames.take(4 << 20).is_err());
        let (in_use, all) = frames.usage();
        assert!(in_use > 0 && in_use <= all && all == 4 << 20);
        drop(held);
        assert_eq!(frames.usage().0, 0);
        assert_eq!(frames.take(4 << 20).expect("all of it").len(), 4 << 20);
    }

    #[test]
    fn a_frame_outlives_its_pool() {
        let mut frame = Frames::new(1).expect("a mapping").take(1).expect("a page");
        frame.fill(7);
        assert_eq!(frame[ALIGN - 1], 7);
    }

    #[test]
    fn nobody_waits_for_a_frame_that_the_kernel_keeps() {
        let frames = Frames::new(2 << 20).expect("a mapping");
        let kept = frames.take(4096).expect("there is room");
        let mut waits = Box::pin(frames.wait(2 << 20));
        let mut poll = || futures_lite::future::block_on(futures_lite::future::poll_once(&mut waits));
        assert!(poll().is_none(), "a frame may still come back");
        kept.forsake();
        assert_eq!(poll().map(|got| got.map(drop)), Some(Err(0)));
        assert_eq!(frames.usage().0, 4096, "it is never dealt out again");
        let rest = futures_lite::future::block_on(frames.wait(1 << 20)).expect("there is room beside it");
        assert_eq!(rest.len(), 1 << 20);
    }

    #[test]
    fn no_number_of_bytes_is_too_large_to_be_refused() {
        let frames = Frames::new(4 << 20).expect("a mapping");
        for bytes in [usize::MAX, usize::MAX - 4094, usize::MAX - 4095, usize::MAX / 2, (4 << 20) + 1] {
            let refused = frames.take(bytes).expect_err("more than there is");
            assert!(refused.asked >= bytes as u64, "{refused}");
            let waits = futures_lite::future::poll_once(frames.wait(bytes));
            assert_eq!(futures_lite::future::block_on(waits).map(|got| got.map(drop)), Some(Err(4 << 20)));
        }
        assert_eq!(frames.usage(), (0, 4 << 20));
    }
}
