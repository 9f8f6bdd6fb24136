//! A `dlopen` that clears `RTLD_DEEPBIND`, since a library opened with that flag would call another malloc.
//!
//! With the flag, the dynamic linker searches for each symbol in the opened library and its dependencies first, then in
//! the program and preloaded libraries. So the library would call the C library's `malloc`, and blocks of one allocator
//! would reach the other's `free` (PHP opens its extensions with this flag). This [`dlopen`] clears the flag and jumps
//! to the C library's. A jump keeps the return address, by which the C library finds the calling library, whose RUNPATH
//! it searches. `TERRACE_DEEPBIND=1` keeps the flag.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// Mask of the flags that [`dlopen`] passes on: all but `RTLD_DEEPBIND`, until the settings are read and may allow it.
static FLAG_MASK: AtomicU32 = AtomicU32::new(!(libc::RTLD_DEEPBIND as u32));
/// The C library's `dlopen`; null until the first call resolves it.
static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Makes [`dlopen`] pass `RTLD_DEEPBIND` on, or clear it, from now on.
pub fn allow_deepbind(allowed: bool) {
    let cleared = if allowed { 0 } else { libc::RTLD_DEEPBIND as u32 };
    FLAG_MASK.store(!cleared, Relaxed);
}

/// Looks up the C library's `dlopen` and records its address.
extern "C" fn resolve() -> *mut c_void {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    let found = if found.is_null() { no_dlopen as *mut c_void } else { found };
    REAL_DLOPEN.store(found, Relaxed);
    found
}

/// Replaces the C library's `dlopen` in statically linked programs, which have none; opens nothing.
extern "C" fn no_dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    null_mut()
}

/// Opens a library as POSIX and glibc's manual describe, but without `RTLD_DEEPBIND`.
///
/// # Safety
/// `file` must be a C string or null, and the library's initialisers must be sound to run.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "and esi, dword ptr [rip + {mask}]",
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jnz 2f",
        // Saves both arguments around the call, and aligns the stack to 16 bytes.
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {resolve}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "jmp rax",
        mask = sym FLAG_MASK,
        next = sym REAL_DLOPEN,
        resolve = sym resolve,
    )
}

/// Opens a library as POSIX and glibc's manual describe, but without `RTLD_DEEPBIND`.
///
/// # Safety
/// `file` must be a C string or null, and the library's initialisers must be sound to run.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "adrp x16, {mask}",
        "ldr w16, [x16, :lo12:{mask}]",
        "and w1, w1, w16",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbnz x16, 2f",
        // Saves both arguments and the return address around the call.
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {resolve}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "2:",
        "br x16",
        mask = sym FLAG_MASK,
        next = sym REAL_DLOPEN,
        resolve = sym resolve,
    )
}
