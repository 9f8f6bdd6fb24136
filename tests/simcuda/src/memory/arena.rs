//! The addresses of device memory, and the file behind physical memory.
//!
//! Upward: [`Arena::open`], [`Arena::close`], [`Arena::map`] act on ranges inside the arena only: nothing in Rust lies
//! there, so no reference can break, whatever is asked. Memory comes when it is touched.
//! From below: `mmap`, `mprotect`, `memfd_create`.

use super::PAGE;
use core::ptr;
use std::sync::OnceLock;

/// Addresses wished for: 16 TiB, four times the largest machine. Smaller halves are tried down to [`LEAST`], where a
/// limit on addresses is set.
const WISHED: usize = 1 << 44;
const LEAST: usize = 1 << 36;

/// Everything in it is aligned to so much.
const ALIGN: u64 = 2 << 20;

/// A range of addresses of our own.
pub struct Arena {
    /// First byte, a multiple of [`ALIGN`].
    pub start: u64,
    /// Past the last.
    pub end: u64,
    file: libc::c_int,
}

static ARENA: OnceLock<Option<Arena>> = OnceLock::new();

impl Arena {
    /// The arena; `None` where the system gives none.
    pub fn get() -> Option<&'static Arena> {
        ARENA.get_or_init(Arena::new).as_ref()
    }

    /// Whether an address lies in the arena. False before it exists.
    pub fn has(address: u64) -> bool {
        let arena = ARENA.get().and_then(Option::as_ref);
        arena.is_some_and(|arena| (arena.start..arena.end).contains(&address))
    }

    fn new() -> Option<Arena> {
        let sizes = std::iter::successors(Some(WISHED), |size| Some(size / 2)).take_while(|size| *size >= LEAST);
        let (start, size) = sizes.filter_map(|size| Some((reserve(size)?, size as u64))).next()?;
        // SAFETY: a literal name and flags; the call touches no memory of ours.
        let file = unsafe { libc::memfd_create(c"simcuda".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the length of a file of our own.
        let sized = file >= 0 && unsafe { libc::ftruncate(file, super::FILE as libc::off_t) } == 0;
        sized.then(|| Arena { start: start.next_multiple_of(ALIGN), end: start + size, file })
    }

    /// Closes a range that was open. The system may refuse where it has no room to tell ranges apart; then the range
    /// stays usable and nobody counts it.
    pub fn shut(start: u64, bytes: u64) {
        ARENA.get().and_then(Option::as_ref).into_iter().for_each(|arena| {
            arena.close(start, bytes);
        });
    }

    /// Closes everything and gives all memory back.
    pub fn clear() {
        if let Some(arena) = ARENA.get().and_then(Option::as_ref) {
            arena.close(arena.start, arena.end - arena.start);
            arena.punch(0, super::FILE);
        }
    }

    fn inside(&self, start: u64, bytes: u64) -> bool {
        start >= self.start && start.checked_add(bytes).is_some_and(|end| end <= self.end)
    }

    /// Makes a range usable; it is zero.
    pub fn open(&self, start: u64, bytes: u64) -> bool {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is inside the arena, where nothing of Rust lies.
        self.inside(start, bytes) && unsafe { libc::mprotect(start as *mut _, bytes as usize, rights) } == 0
    }

    /// Writes bytes to a range, whose pages are usable from then on.
    pub fn write(&self, start: u64, bytes: &[u8]) -> bool {
        let first = start / PAGE * PAGE;
        let end = (start + bytes.len() as u64).next_multiple_of(PAGE);
        if !self.open(first, end - first) {
            return false;
        }
        // SAFETY: the range is inside the arena, where nothing of Rust lies, and was just opened.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
        true
    }

    /// Makes a range unusable and gives its memory back.
    pub fn close(&self, start: u64, bytes: u64) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        self.inside(start, bytes) && self.place(start, bytes, libc::PROT_NONE, flags, -1, 0)
    }

    /// Makes the file's bytes from `place` on usable in a range.
    pub fn map(&self, start: u64, bytes: u64, place: u64, writes: bool) -> bool {
        let rights = if writes { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        self.inside(start, bytes) && self.place(start, bytes, rights, flags, self.file, place)
    }

    /// Gives the memory of a part of the file back; it is zero again.
    pub fn punch(&self, place: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: bytes of a file of our own, which no mapping shows any more.
        unsafe { libc::fallocate(self.file, mode, place as libc::off_t, bytes as libc::off_t) };
    }

    fn place(&self, start: u64, bytes: u64, rights: i32, flags: i32, file: i32, place: u64) -> bool {
        // SAFETY: callers made sure that the range is inside the arena, where nothing of Rust lies.
        let at = unsafe { libc::mmap(start as *mut _, bytes as usize, rights, flags, file, place as libc::off_t) };
        at != libc::MAP_FAILED
    }
}

/// Addresses that nobody uses and nobody can touch.
fn reserve(bytes: usize) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, where the system has room.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at as u64)
}
