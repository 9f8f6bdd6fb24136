//! sigaction, signal and their old names: the program's signal handlers run inside a guard ([`Handler`]), so they may
//! allocate.
//!
//! No standard allows signal handlers to call malloc, but programs do. So [`sigaction`] records the program's handler
//! and installs [`trampoline`] with the kernel; the trampoline makes the guard and calls the recorded handler. A query
//! returns the program's handler. A handler that the program installs by the system call runs without a guard.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_host::Handler;

/// Number of Linux's signals, 1 to 64, and of the unused number 0.
const SIGNALS: usize = 65;

/// The program's handler of each signal for which [`trampoline`] is installed.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(libc::SIG_DFL) }; SIGNALS];
/// The flags that the program passed with each of these handlers.
static FLAGS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

/// A handler with all three arguments. A handler that takes only the first ignores the others in every supported
/// calling convention.
type FullHandler = extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

unsafe extern "C" {
    /// The C library's sigaction, under a name that this library does not define.
    fn __sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int;
}

/// The handler that the kernel calls: runs the program's handler inside the guard.
extern "C-unwind" fn trampoline(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handler = HANDLERS[signal as usize % SIGNALS].load(Relaxed);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return;
    }
    // SAFETY: `sigaction` recorded the program's function, which takes these arguments or only the first.
    let handler: FullHandler = unsafe { core::mem::transmute::<usize, FullHandler>(handler) };
    // `ManuallyDrop`: a handler may `longjmp` past this frame, which is sound only if the frame has no destructor to
    // run.
    let inside = ManuallyDrop::new(Handler::enter());
    handler(signal, info, context);
    drop(ManuallyDrop::into_inner(inside));
}

/// Whether a handler is [`trampoline`]. Functions of the C library that bypass this `sigaction` return it to programs,
/// which may then install it as their own: the recorded handler must stay.
fn is_trampoline(handler: usize) -> bool {
    handler == trampoline as *const () as usize
}

/// Whether a handler is a function, not `SIG_DFL`, `SIG_IGN` or `SIG_ERR`.
fn is_function(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN && handler != libc::SIG_ERR
}

/// Installs a handler and stores the previous one in `before`, as POSIX describes.
///
/// # Safety
/// Each pointer must be null or valid, and the handler a function of the arguments that its flags name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    if !(0..SIGNALS as c_int).contains(&signal) {
        // SAFETY: the caller's promise; the C library refuses the number.
        return unsafe { __sigaction(signal, action, before) };
    }
    let at = signal as usize % SIGNALS;
    let (handler, flags) = (HANDLERS[at].load(Relaxed), FLAGS[at].load(Relaxed));
    // SAFETY: the caller's promise.
    let mut ours = unsafe { action.as_ref() }.copied();
    if let Some(ours) = ours.as_mut().filter(|ours| is_function(ours.sa_sigaction) && !is_trampoline(ours.sa_sigaction))
    {
        // Records the handler before the kernel can call the trampoline.
        HANDLERS[at].store(ours.sa_sigaction, Relaxed);
        FLAGS[at].store(ours.sa_flags as usize, Relaxed);
        ours.sa_sigaction = trampoline as *const () as usize;
        ours.sa_flags |= libc::SA_SIGINFO;
    }
    let pointer = ours.as_ref().map_or(core::ptr::null(), |ours| &raw const *ours);
    // SAFETY: `pointer` is null or points to the copy `ours`; for `before` the caller's promise.
    let result = unsafe { __sigaction(signal, pointer, before) };
    if result != 0 {
        HANDLERS[at].store(handler, Relaxed);
        FLAGS[at].store(flags, Relaxed);
        return result;
    }
    // SAFETY: null, or valid as the caller promised, and written by the call above.
    if let Some(before) = unsafe { before.as_mut() }.filter(|before| is_trampoline(before.sa_sigaction)) {
        before.sa_sigaction = handler;
        // `SA_SIGINFO` tells the program which of two types its handler has.
        before.sa_flags = before.sa_flags & !libc::SA_SIGINFO | flags as c_int & libc::SA_SIGINFO;
    }
    0
}

/// Installs a handler for `signal`; returns the previous one, or `SIG_ERR`.
fn install(signal: c_int, handler: usize, flags: c_int) -> usize {
    let mut action = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
    let mut before = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are valid for every field.
    let fields = unsafe { action.assume_init_mut() };
    fields.sa_sigaction = handler;
    fields.sa_flags = flags;
    if flags & libc::SA_RESTART != 0 {
        // SAFETY: `fields.sa_mask` is a valid set in a local variable.
        unsafe { libc::sigaddset(&raw mut fields.sa_mask, signal) };
    }
    // SAFETY: both point to locals; the callers promise that the handler is a function or a constant.
    if unsafe { sigaction(signal, action.as_ptr(), before.as_mut_ptr()) } != 0 {
        return libc::SIG_ERR;
    }
    // SAFETY: `before` was initialised with zeros, which are valid.
    unsafe { before.assume_init() }.sa_sigaction
}

/// Installs a handler that stays installed and restarts system calls, as BSD's and glibc's `signal` do.
///
/// # Safety
/// The handler must be a function that takes a signal number, or one of the constants `SIG_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESTART)
}

/// [`signal()`] under an old name.
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESTART)
}

/// [`signal()`] under an old name.
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESTART)
}

/// Installs a handler that is reset when it runs, as System V's `signal` does.
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

/// [`sysv_signal`] under the name that programs built for System V call.
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}
