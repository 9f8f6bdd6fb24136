//! C's queries and hints: malloc_usable_size, malloc_trim, mallinfo, mallinfo2, malloc_info, malloc_stats, mallopt.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};
use terrace_host::{Stats, api, report, stats, trim};

/// Returns the bytes that fit in a block; 0 for null.
///
/// # Safety
/// `block` must be null, or a live block of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { api::usable(block.cast()) }
}

/// Purges all free memory; returns 1 if any was purged. Ignores the padding.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_padding: usize) -> c_int {
    c_int::from(trim())
}

/// Statistics, in the fields of glibc's `mallinfo2`.
///
/// `arena`: bytes reserved; `uordblks`: bytes that the program holds; `fordblks`: bytes reserved and free; `hblks`:
/// number of large blocks; `keepcost`: the most bytes that a trim could purge.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let Stats { in_use, cached, reserved, peak_reserved, dirty, large_blocks, live_blocks, .. } = stats();
    libc::mallinfo2 {
        arena: reserved,
        ordblks: live_blocks,
        smblks: 0,
        hblks: large_blocks,
        hblkhd: 0,
        usmblks: peak_reserved,
        fsmblks: cached,
        uordblks: in_use,
        fordblks: reserved.saturating_sub(in_use),
        keepcost: dirty.saturating_sub(in_use),
    }
}

/// [`mallinfo2`] as C `int`s, saturated at `INT_MAX`.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> libc::mallinfo {
    let long = mallinfo2();
    let short = |number: usize| c_int::try_from(number).unwrap_or(c_int::MAX);
    libc::mallinfo {
        arena: short(long.arena),
        ordblks: short(long.ordblks),
        smblks: short(long.smblks),
        hblks: short(long.hblks),
        hblkhd: short(long.hblkhd),
        usmblks: short(long.usmblks),
        fsmblks: short(long.fsmblks),
        uordblks: short(long.uordblks),
        fordblks: short(long.fordblks),
        keepcost: short(long.keepcost),
    }
}

/// An open `FILE` of the C library, as a writer.
struct CFile(*mut libc::FILE);

impl Write for CFile {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the caller of `malloc_info` promised an open stream; the text has `text.len()` bytes.
        let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), self.0) };
        if written == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Writes the statistics to a stream as XML, in the elements of glibc's `malloc_info`.
///
/// `fast`: free bytes in caches; `rest`: other free bytes. Returns 0 on success; `EINVAL` for options other than 0; -1
/// if writing fails.
///
/// # Safety
/// `stream` must be open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let Stats { in_use, cached, reserved, peak_reserved, mapped, large_blocks, live_blocks, .. } = stats();
    let rest = reserved.saturating_sub(in_use + cached);
    let written = write!(
        CFile(stream),
        "<malloc version=\"1\">\n\
         <total type=\"fast\" size=\"{cached}\"/>\n\
         <total type=\"rest\" size=\"{rest}\"/>\n\
         <total type=\"used\" count=\"{live_blocks}\" size=\"{in_use}\"/>\n\
         <total type=\"large\" count=\"{large_blocks}\"/>\n\
         <system type=\"current\" size=\"{reserved}\"/>\n\
         <system type=\"max\" size=\"{peak_reserved}\"/>\n\
         <aspace type=\"total\" size=\"{mapped}\"/>\n\
         </malloc>\n"
    );
    if written.is_ok() { 0 } else { -1 }
}

/// Prints a line of statistics to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    report::line(format_args!("{}", stats()));
}

/// Ignores glibc's tuning parameters; returns 1, which means success to programs.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    1
}

/// The library's name and version, by which a debugger shows which allocator a program uses.
#[unsafe(no_mangle)]
pub static terrace_malloc_version: [u8; VERSION.len()] = {
    let (mut bytes, mut at) = ([0; VERSION.len()], 0);
    while at < bytes.len() {
        bytes[at] = VERSION.as_bytes()[at];
        at += 1;
    }
    bytes
};

/// The name and version as a C string.
const VERSION: &str = concat!("terrace ", env!("CARGO_PKG_VERSION"), "\0");
