//! Linux and Android: mappings at chosen addresses, futexes, cgroups, NUMA policy.

use super::unix::READ_WRITE;
use super::{Relocation, SharedMemory, errno, set_errno};
use core::ffi::CStr;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use terrace_core::sync::AtomicU32;

/// Maps `bytes` zeros at `address`, or fails.
///
/// Kernels before 4.17 take the address as a hint; if one maps elsewhere, this unmaps the mapping and fails.
pub fn map_at(address: usize, bytes: usize) -> Option<NonNull<u8>> {
    let mapped = super::unix::map_with(address, bytes, libc::MAP_FIXED_NOREPLACE, READ_WRITE)?;
    if mapped.addr().get() == address {
        return Some(mapped);
    }
    // SAFETY: mapped just above, and used by nothing.
    unsafe { super::unmap(mapped, bytes) };
    None
}

/// Purges whole pages: they read as zeros from now on, and take no memory until they are touched.
///
/// `false`: the system refused.
///
/// # Safety
/// `map` or `map_at` must have mapped the pages, and their contents must not be needed any more.
pub unsafe fn purge(at: NonNull<u8>, bytes: usize) -> bool {
    let errno = errno();
    // SAFETY: the caller's promise.
    let done = unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_DONTNEED) } == 0;
    set_errno(errno);
    done
}

/// Purges pages by mapping fresh ones over them, which the kernel merges with neighbouring mappings.
///
/// For pages that [`relocate`] moved here, which otherwise stay a mapping of their own.
///
/// # Safety
/// As for [`purge`].
pub unsafe fn replace(at: NonNull<u8>, bytes: usize) -> bool {
    let errno = errno();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the caller's promise: whole pages of ours.
    let mapped = unsafe { libc::mmap(at.as_ptr().cast(), bytes, READ_WRITE, flags, -1, 0) };
    set_errno(errno);
    mapped != libc::MAP_FAILED
}

/// Requests huge pages for a mapping, or refuses them. `false`: the kernel has none.
///
/// # Safety
/// `map` or `map_at` must have mapped these pages.
pub unsafe fn advise_huge(at: NonNull<u8>, bytes: usize, wanted: bool) -> bool {
    let errno = errno();
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: advice changes no contents.
    let done = unsafe { libc::madvise(at.as_ptr().cast(), bytes, advice) } == 0;
    set_errno(errno);
    done
}

/// Sets the NUMA policy of a mapping for the nodes whose bits `mask` has.
///
/// `policy` is a value of `linux/mempolicy.h` (`MPOL_PREFERRED` 1, `MPOL_BIND` 2, `MPOL_INTERLEAVE` 3, `MPOL_LOCAL` 4).
/// `false`: the kernel refused.
///
/// # Safety
/// `map` or `map_at` must have mapped these pages.
pub unsafe fn bind(at: NonNull<u8>, bytes: usize, policy: i32, mask: u64) -> bool {
    let errno = errno();
    let (nodes, count) = if mask == 0 { (core::ptr::null(), 0) } else { (&raw const mask, 65usize) };
    // SAFETY: `mask` has 64 readable bits (the kernel reads one bit less than it is told); contents do not change.
    let result = unsafe { libc::syscall(libc::SYS_mbind, at.as_ptr(), bytes, policy, nodes, count, 0) };
    set_errno(errno);
    result == 0
}

/// Moves the pages of `bytes` bytes from address `from` to address `to`, without copying.
///
/// # Safety
/// Both must be whole pages that this module mapped and must not overlap; the contents at `to` must not be needed any
/// more.
pub unsafe fn relocate(from: NonNull<u8>, to: NonNull<u8>, bytes: usize) -> Relocation {
    let errno = errno();
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's promise.
    let moved = unsafe { libc::mremap(from.as_ptr().cast(), bytes, bytes, flags, to.as_ptr()) } != libc::MAP_FAILED;
    // The kernel may have unmapped the target before it refused.
    let empty = if moved { from } else { to };
    let restored = map_at(empty.addr().get(), bytes).is_some();
    set_errno(errno);
    if moved { Relocation::Moved { restored } } else { Relocation::Refused }
}

/// Sleeps until another thread wakes the waiters of `word`. Returns at once if `word` is not `seen`.
///
/// May return spuriously. Sleeps at most `milliseconds`; 0: no limit.
pub fn wait(word: &AtomicU32, seen: u32, milliseconds: u32) {
    let errno = errno();
    let time = libc::timespec {
        tv_sec: libc::time_t::from(milliseconds / 1000),
        tv_nsec: libc::c_long::from((milliseconds % 1000) * 1_000_000),
    };
    let time = if milliseconds == 0 { core::ptr::null() } else { &raw const time };
    // SAFETY: `word` and `time` outlive the call, and the kernel only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, time) };
    set_errno(errno);
}

/// Wakes up to `count` waiters of `word`.
pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the kernel uses the address as a key only, and writes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count) };
}

/// Commands of `linux/membarrier.h`.
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// Registers the process for [`barrier`], as the kernel requires.
///
/// Cheap at the allocator's start, while the process has one thread.
pub fn register_barrier() {
    membarrier(REGISTER_PRIVATE_EXPEDITED);
}

/// Makes every thread of this process execute a full memory barrier, at whatever instruction it is.
///
/// `false`: this kernel has no such call.
pub fn barrier() -> bool {
    // Registers again if the first command fails: in a child of a fork, or where the first registration was refused.
    membarrier(PRIVATE_EXPEDITED) || membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED)
}

fn membarrier(command: i32) -> bool {
    let errno = errno();
    // SAFETY: the call orders accesses to memory and changes none.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    set_errno(errno);
    done
}

/// Milliseconds since a fixed moment before the process began.
///
/// Advances with the kernel's tick, every few milliseconds: the coarse clock is the cheapest.
pub fn milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is local and writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Random bits that differ between processes; all copies of this code in one process get the same.
///
/// Hashes the last eight of the 16 random bytes that the kernel passes to a process (the first eight become the stack's
/// canary), so that addresses chosen by these bits reveal none of those bytes.
pub fn random() -> u64 {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    let address = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let bytes = core::ptr::with_exposed_provenance::<[u8; 16]>(address as usize);
    // SAFETY: null, or the address of 16 bytes that the kernel wrote for this process.
    unsafe { bytes.as_ref() }.map_or(0, |bytes| mix((u128::from_le_bytes(*bytes) >> 64) as u64))
}

/// The finaliser of splitmix64 (Steele, Lea and Flood, 2014).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Whether this process was given rights that its user lacks.
///
/// The environment must not change the settings of such a process.
pub fn is_secure() -> bool {
    // SAFETY: the call has no precondition; it only reads a value of the system.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The address of the running thread's `errno`.
pub(super) fn errno_place() -> *mut i32 {
    // SAFETY: the call has no precondition.
    unsafe { libc::__errno_location() }
}

/// Bytes of memory that the process's control group may use, or `usize::MAX`.
///
/// Reads cgroup version 2 (`memory.max` of the group that `/proc/self/cgroup` names, and of the groups above it), and
/// version 1 at the path where containers mount it; returns the lowest limit.
pub fn memory_limit() -> usize {
    let mut buffer = [0; 1024];
    let mut limit = usize::MAX;
    if let Some(text) = read(c"/proc/self/cgroup", &mut buffer) {
        // Version 2 has the line `0::/path`.
        if let Some(path) = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::")) {
            limit = limit_of_group(b"/sys/fs/cgroup", path);
        }
    }
    let file = c"/sys/fs/cgroup/memory/memory.limit_in_bytes";
    limit.min(read(file, &mut buffer).and_then(number).unwrap_or(usize::MAX))
}

/// The lowest `memory.max` of the group `path` and all groups above it, up to the root, which is mounted at `mount`.
fn limit_of_group(mount: &[u8], path: &[u8]) -> usize {
    const NAME: &[u8] = b"/memory.max\0";
    let mut limit = usize::MAX;
    let mut file = [0; 1024];
    let mut end = path.len();
    loop {
        let length = mount.len() + end + NAME.len();
        let text = path.get(..end).unwrap_or(b"");
        if length <= file.len() {
            let parts = [mount, text.strip_suffix(b"/").unwrap_or(text), NAME];
            let bytes = parts.iter().flat_map(|part| part.iter());
            file.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            let mut buffer = [0; 64];
            let name = CStr::from_bytes_until_nul(&file).unwrap_or(c"");
            limit = limit.min(read(name, &mut buffer).and_then(number).unwrap_or(usize::MAX));
        }
        match text.iter().rposition(|&byte| byte == b'/') {
            Some(at) if end > 0 => end = at,
            _ => return limit,
        }
    }
}

/// Maps the first `bytes` bytes of sealed memory behind a descriptor.
///
/// The descriptor stays open, for programs that this process starts.
pub fn map_shared(file: i32, bytes: usize) -> SharedMemory {
    let errno = errno();
    // SAFETY: the call only reads flags of a descriptor, or fails.
    let is_open = unsafe { libc::fcntl(file, libc::F_GETFD) } != -1;
    // SAFETY: the call only reads seals of a descriptor, or fails.
    let seals = unsafe { libc::fcntl(file, libc::F_GET_SEALS) };
    let mut about = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `about` is local and writable.
    unsafe { libc::fstat(file, about.as_mut_ptr()) };
    // SAFETY: `about` holds zeros or what the call wrote, both valid.
    let size = unsafe { about.assume_init() }.st_size;
    let is_sealed = seals != -1 && seals & libc::F_SEAL_SHRINK != 0 && size >= bytes as libc::off_t;
    let mut mapped = libc::MAP_FAILED;
    if is_open && is_sealed {
        // SAFETY: without MAP_FIXED no mapping that exists is changed; the system checks every argument.
        mapped = unsafe { libc::mmap(core::ptr::null_mut(), bytes, READ_WRITE, libc::MAP_SHARED, file, 0) };
    }
    set_errno(errno);
    if mapped == libc::MAP_FAILED {
        return if is_open { SharedMemory::Foreign } else { SharedMemory::Closed };
    }
    // SAFETY: mapped just above, aligned to pages, for ever, and the memory never shrinks; all that use the words do so atomically.
    SharedMemory::Words(unsafe { core::slice::from_raw_parts(mapped.cast::<AtomicU64>(), bytes / 8) })
}

/// The number of this process.
pub fn process() -> u32 {
    // SAFETY: the call has no precondition.
    unsafe { libc::getpid() as u32 }
}

/// Reads the first bytes of the program's name, and of a line feed behind it.
pub fn program_name(name: &mut [u8]) {
    _ = read(c"/proc/self/comm", name);
}

/// The addresses of the mapping that holds an address.
///
/// Reads the list of the process's mappings, some ten microseconds for each hundred.
#[cfg_attr(not(feature = "track"), allow(dead_code, reason = "call stacks are read for the tracker"))]
pub fn mapping_of(address: usize) -> Option<Range<usize>> {
    let mut found = None;
    each_line(c"/proc/self/maps", |line| {
        found = mapping(line).filter(|range| range.contains(&address));
        found.is_some()
    });
    found
}

/// The addresses of a line such as `7ffc1000-7ffc3000 rw-p ...`.
fn mapping(line: &[u8]) -> Option<Range<usize>> {
    let bounds = core::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (low, end) = bounds.split_once('-')?;
    Some(usize::from_str_radix(low, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Calls `each` with the first bytes of every line of a file, until it returns `true`.
///
/// By system calls, not by the C library's functions: those may cancel the thread, or be another library's that allocates.
fn each_line(name: &CStr, mut each: impl FnMut(&[u8]) -> bool) {
    let errno = errno();
    // SAFETY: `name` is a C string.
    let file =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let (mut bytes, mut line, mut used, mut is_done) = ([0u8; 1024], [0u8; 48], 0, file < 0);
    while !is_done {
        // SAFETY: the buffer is local and writable.
        let count = unsafe { libc::syscall(libc::SYS_read, file, bytes.as_mut_ptr(), bytes.len()) };
        let Ok(count @ 1..) = usize::try_from(count) else { break };
        for &byte in &bytes[..count] {
            if byte == b'\n' {
                is_done = is_done || each(&line[..used]);
                used = 0;
            } else if let Some(place) = line.get_mut(used) {
                *place = byte;
                used += 1;
            }
        }
    }
    if file >= 0 {
        // SAFETY: `file` was opened above, and is closed once.
        unsafe { libc::syscall(libc::SYS_close, file) };
    }
    set_errno(errno);
}

/// Reads the first bytes of a file, as many as fit in `buffer`.
fn read<'a>(name: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let errno = errno();
    // SAFETY: `name` is a C string.
    let file = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut count = -1;
    if file >= 0 {
        // SAFETY: the buffer is local and writable.
        count = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        // SAFETY: `file` was opened above, and is closed once.
        unsafe { libc::close(file) };
    }
    set_errno(errno);
    buffer.get(..usize::try_from(count).ok()?)
}

/// The decimal number at the start of a text; `None` without digits, as in `max`, or on overflow.
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    core::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::{fs, process};

    #[test]
    fn the_tightest_group_up_to_the_root_counts() {
        let mount = std::env::temp_dir().join(std::format!("terrace-groups-{}", process::id()));
        fs::create_dir_all(mount.join("outer/inner")).expect("a folder");
        let write = |file: &str, text: &str| fs::write(mount.join(file), text).expect("a file");
        let limit = |path: &str| limit_of_group(mount.as_os_str().as_bytes(), path.as_bytes());
        assert_eq!(limit("/outer/inner"), usize::MAX);
        write("outer/inner/memory.max", "max\n");
        assert_eq!(limit("/outer/inner"), usize::MAX);
        write("outer/memory.max", "1048576\n");
        assert_eq!((limit("/outer/inner"), limit("/outer"), limit("/")), (1 << 20, 1 << 20, usize::MAX));
        write("outer/inner/memory.max", "4096");
        assert_eq!(limit("/outer/inner"), 4096);
        assert_eq!(limit("/other"), usize::MAX);
        fs::remove_dir_all(&mount).expect("ours");
    }

    #[test]
    fn the_mapping_of_a_local_holds_it_and_none_holds_address_0() {
        let local = 0u8;
        let here = (&raw const local).addr();
        let mapping = mapping_of(here).expect("the stack is mapped");
        assert!(mapping.contains(&here) && mapping.start.is_multiple_of(4096) && mapping.end.is_multiple_of(4096));
        assert_eq!(mapping_of(0), None);
        assert_eq!(super::mapping(b"7f00-7fff rw-p 0 00:00"), Some(0x7f00..0x7fff));
        assert_eq!(super::mapping(b"nothing"), None);
    }

    #[test]
    fn numbers_end_where_their_digits_do() {
        assert_eq!((number(b"12\n"), number(b"max"), number(b""), number(b"0")), (Some(12), None, None, Some(0)));
        assert_eq!(number(b"99999999999999999999999"), None);
    }
}
