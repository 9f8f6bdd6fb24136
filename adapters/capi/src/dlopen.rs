//! dlopen: a library opened with `RTLD_DEEPBIND` finds this malloc, as every other one does.
//!
//! The flag makes a library look for symbols in itself and in what it needs before it looks in the program: it then calls the
//! C library's `malloc` under any preloaded one, and a block that one of them gave out comes to the other's `free` (PHP opens
//! its extensions so). [`dlopen`] clears the flag and jumps, so that the C library still sees who called: it looks for the file
//! in the caller's RUNPATH. `TERRACE_DEEPBIND=1` leaves the flag as it is.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// The flags that pass; until the settings are read, all but one.
static FLAG_MASK: AtomicU32 = AtomicU32::new(!(libc::RTLD_DEEPBIND as u32));
/// The C library's `dlopen`, once it was asked for.
static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What to do with the flag from now on.
pub fn allow_deepbind(deepbind: bool) {
    let stopped = if deepbind { 0 } else { libc::RTLD_DEEPBIND as u32 };
    FLAG_MASK.store(!stopped, Relaxed);
}

/// Finds the C library's `dlopen`.
extern "C" fn resolve() -> *mut c_void {
    // SAFETY: a query; the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    let found = if found.is_null() { no_dlopen as *mut c_void } else { found };
    REAL_DLOPEN.store(found, Relaxed);
    found
}

/// The answer in programs that have no other `dlopen`: those that are static as a whole.
extern "C" fn no_dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    null_mut()
}

/// Opens a library: as POSIX and glibc's manual say, without `RTLD_DEEPBIND`.
///
/// # Safety
/// `file` is a string or null; what the library runs when it is loaded may run.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "and esi, dword ptr [rip + {mask}]",
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jnz 2f",
        // `resolve` may change both arguments: they wait on the stack, with 8 bytes that keep it at a multiple of 16.
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

/// Opens a library: as POSIX and glibc's manual say, without `RTLD_DEEPBIND`.
///
/// # Safety
/// `file` is a string or null; what the library runs when it is loaded may run.
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
        // `resolve` may change both arguments, and the call changes where to return to: they wait on the stack.
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
