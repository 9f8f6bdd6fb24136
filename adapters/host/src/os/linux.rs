//! Linux and Android: mappings at chosen addresses, futexes, cgroups, NUMA policy.

use super::unix::READ_WRITE;
use super::{Relocation, errno, set_errno};
use core::ffi::CStr;
use core::ptr::NonNull;
use terrace_core::sync::AtomicU32;

/// Maps `bytes` zeros at `address`, or fails.
///
/// An older kernel takes the address as a hint; a mapping elsewhere is unmapped again.
pub fn map_at(address: usize, bytes: usize) -> Option<NonNull<u8>> {
    let mapped = super::unix::map_with(address, bytes, libc::MAP_FIXED_NOREPLACE, READ_WRITE)?;
    if mapped.addr().get() == address {
        return Some(mapped);
    }
    // SAFETY: mapped here, a moment ago.
    unsafe { super::unmap(mapped, bytes) };
    None
}

/// Purges whole pages: they read as zeros from now on, and cost nothing until they are touched.
///
/// `false`: the system refused.
///
/// # Safety
/// The pages' contents are needed no more, and `map` or `map_at` mapped them.
pub unsafe fn purge(at: NonNull<u8>, bytes: usize) -> bool {
    let errno = errno();
    // SAFETY: the caller's promise.
    let done = unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_DONTNEED) } == 0;
    set_errno(errno);
    done
}

/// Purges pages by a fresh mapping, which joins its neighbours.
///
/// For pages that were moved here and whose mapping stands alone.
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

/// Asks for huge pages under a mapping, or for none. `false` when the kernel has none.
///
/// # Safety
/// `map` or `map_at` mapped these pages.
pub unsafe fn advise_huge(at: NonNull<u8>, bytes: usize, wanted: bool) -> bool {
    let errno = errno();
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: advice changes no contents.
    let done = unsafe { libc::madvise(at.as_ptr().cast(), bytes, advice) } == 0;
    set_errno(errno);
    done
}

/// Sets the NUMA policy of a mapping, by the nodes of `mask`.
///
/// `policy` is a policy of `linux/mempolicy.h` (`MPOL_PREFERRED` 1, `MPOL_BIND` 2, `MPOL_INTERLEAVE` 3, `MPOL_LOCAL` 4). `false`
/// if the kernel refuses.
///
/// # Safety
/// `map` or `map_at` mapped these pages.
pub unsafe fn bind(at: NonNull<u8>, bytes: usize, policy: i32, mask: u64) -> bool {
    let errno = errno();
    let (nodes, count) = if mask == 0 { (core::ptr::null(), 0) } else { (&raw const mask, 65usize) };
    // SAFETY: the mask has 64 readable bits (the kernel reads one less than it is told), contents do not change.
    let result = unsafe { libc::syscall(libc::SYS_mbind, at.as_ptr(), bytes, policy, nodes, count, 0) };
    set_errno(errno);
    result == 0
}

/// Moves the memory under `bytes` bytes at `from` to `to`.
///
/// # Safety
/// Both are whole pages that this module mapped; the contents at `to` are needed no more, and they do not overlap.
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

/// Sleeps until another thread wakes the waiters of `word`, unless it is no longer `seen`.
///
/// May return spuriously. Sleeps at most `milliseconds`; 0: without limit.
pub fn wait(word: &AtomicU32, seen: u32, milliseconds: u32) {
    let errno = errno();
    let time = libc::timespec {
        tv_sec: libc::time_t::from(milliseconds / 1000),
        tv_nsec: libc::c_long::from((milliseconds % 1000) * 1_000_000),
    };
    let time = if milliseconds == 0 { core::ptr::null() } else { &raw const time };
    // SAFETY: the word outlives the call, and so does the time; the kernel reads both.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, seen, time) };
    set_errno(errno);
}

/// Wakes `count` waiters of `word`.
pub fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the kernel takes the address as a name and writes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count) };
}

/// Commands of `linux/membarrier.h`.
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// Registers the process for [`barrier`].
///
/// Costs nothing at the start, when a process has one thread.
pub fn register_barrier() {
    membarrier(REGISTER_PRIVATE_EXPEDITED);
}

/// Has every thread of this process pass a full memory barrier, wherever it is.
///
/// `false`: this kernel cannot.
pub fn barrier() -> bool {
    // A child of a fork, or a process whose start was refused, registers now.
    membarrier(PRIVATE_EXPEDITED) || membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED)
}

fn membarrier(command: i32) -> bool {
    let errno = errno();
    // SAFETY: orders memory, changes none.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    set_errno(errno);
    done
}

/// Milliseconds since some moment before the process began.
///
/// As coarse as the kernel's tick, which is the cheapest clock.
pub fn milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Bits that differ from process to process, the same for every copy of this code in one.
///
/// Mixed from the last eight of the random bytes that the kernel passed (the first are the stack's canary), so that addresses
/// reveal none of them.
pub fn random() -> u64 {
    // SAFETY: a query.
    let address = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let bytes = core::ptr::with_exposed_provenance::<[u8; 16]>(address as usize);
    // SAFETY: 16 bytes that the kernel laid there, or null.
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
/// Then the environment must not change its settings.
pub fn is_secure() -> bool {
    // SAFETY: a query.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The C library's place for the thread's error number.
pub(super) fn errno_place() -> *mut i32 {
    // SAFETY: asks for nothing.
    unsafe { libc::__errno_location() }
}

/// Bytes of memory that the process's control group may use, or `usize::MAX`.
///
/// Reads version 2 (`memory.max` of the group that `/proc/self/cgroup` names and of those above it), or version 1 as containers
/// mount it.
pub fn memory_limit() -> usize {
    let mut buffer = [0; 1024];
    let mut limit = usize::MAX;
    if let Some(text) = read(c"/proc/self/cgroup", &mut buffer) {
        // The line of version 2 is `0::/path`.
        if let Some(path) = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::")) {
            limit = limit_of_group(b"/sys/fs/cgroup", path);
        }
    }
    let file = c"/sys/fs/cgroup/memory/memory.limit_in_bytes";
    limit.min(read(file, &mut buffer).and_then(number).unwrap_or(usize::MAX))
}

/// The least `memory.max` from a group up to the root, which is mounted at `mount`.
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

/// The first bytes of a small file.
fn read<'a>(name: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let errno = errno();
    // SAFETY: the name is a string.
    let file = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut count = -1;
    if file >= 0 {
        // SAFETY: the buffer is ours to be written.
        count = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        // SAFETY: opened above.
        unsafe { libc::close(file) };
    }
    set_errno(errno);
    buffer.get(..usize::try_from(count).ok()?)
}

/// The number at the start of a text; `None` for `max`.
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
    fn numbers_end_where_their_digits_do() {
        assert_eq!((number(b"12\n"), number(b"max"), number(b""), number(b"0")), (Some(12), None, None, Some(0)));
        assert_eq!(number(b"99999999999999999999999"), None);
    }
}
