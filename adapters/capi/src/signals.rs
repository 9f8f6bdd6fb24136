//! sigaction, signal and their old names: the program's handlers run inside a guard ([`Handler`]).
//!
//! malloc is not safe in signal handlers by any standard, and programs call it there. Here the handler that the kernel knows is
//! [`trampoline`], which marks the thread and calls the program's; questions are answered with the program's. Handlers installed
//! past the C library (by the system call) are called as they are.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_host::Handler;

/// Signals there are, and 0.
const SIGNALS: usize = 65;

/// The program's handlers, where ours stands in for them.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(libc::SIG_DFL) }; SIGNALS];
/// The flags they were installed with.
static FLAGS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];

/// A handler with all arguments; one that takes fewer does not look at the others.
type FullHandler = extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

unsafe extern "C" {
    /// The C library's own, under the name that no library replaces.
    fn __sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int;
}

/// What the kernel calls.
extern "C-unwind" fn trampoline(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handler = HANDLERS[signal as usize % SIGNALS].load(Relaxed);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return;
    }
    // SAFETY: the program gave it as a handler: a function of these arguments, or of the first.
    let handler: FullHandler = unsafe { core::mem::transmute::<usize, FullHandler>(handler) };
    // A jump out of the handler passes over this frame, in which therefore nothing waits to be dropped.
    let inside = ManuallyDrop::new(Handler::enter());
    handler(signal, info, context);
    drop(ManuallyDrop::into_inner(inside));
}

/// Whether a handler is [`trampoline`], which functions of the C library that bypass ours give out: it stays, with what it calls.
fn is_trampoline(handler: usize) -> bool {
    handler == trampoline as *const () as usize
}

/// Whether a handler is a function.
fn is_function(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN && handler != libc::SIG_ERR
}

/// Installs a handler, or asks for the one that is installed: as POSIX says.
///
/// # Safety
/// Both pointers are null or point to what they say; the handler is a function of its arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    if !(0..SIGNALS as c_int).contains(&signal) {
        // SAFETY: the caller's promise; the C library refuses the signal.
        return unsafe { __sigaction(signal, action, before) };
    }
    let at = signal as usize % SIGNALS;
    let (handler, flags) = (HANDLERS[at].load(Relaxed), FLAGS[at].load(Relaxed));
    // SAFETY: the caller's promise.
    let mut ours = unsafe { action.as_ref() }.copied();
    if let Some(ours) = ours.as_mut().filter(|ours| is_function(ours.sa_sigaction) && !is_trampoline(ours.sa_sigaction))
    {
        // Set first: from the moment the kernel knows, `trampoline` finds it.
        HANDLERS[at].store(ours.sa_sigaction, Relaxed);
        FLAGS[at].store(ours.sa_flags as usize, Relaxed);
        ours.sa_sigaction = trampoline as *const () as usize;
        ours.sa_flags |= libc::SA_SIGINFO;
    }
    let pointer = ours.as_ref().map_or(core::ptr::null(), |ours| &raw const *ours);
    // SAFETY: our copy, or null; the caller's place for the answer, or null.
    let result = unsafe { __sigaction(signal, pointer, before) };
    if result != 0 {
        HANDLERS[at].store(handler, Relaxed);
        FLAGS[at].store(flags, Relaxed);
        return result;
    }
    // SAFETY: written by the call above, or null.
    if let Some(before) =
        unsafe { before.as_mut() }.filter(|before| before.sa_sigaction == trampoline as *const () as usize)
    {
        before.sa_sigaction = handler;
        // SA_SIGINFO says which of its two types the handler has.
        before.sa_flags = before.sa_flags & !libc::SA_SIGINFO | flags as c_int & libc::SA_SIGINFO;
    }
    0
}

/// Installs a handler by its address alone.
fn install(signal: c_int, handler: usize, flags: c_int) -> usize {
    let mut action = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
    let mut before = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a value of every field.
    let fields = unsafe { action.assume_init_mut() };
    fields.sa_sigaction = handler;
    fields.sa_flags = flags;
    if flags & libc::SA_RESTART != 0 {
        // SAFETY: the set is a field of ours.
        unsafe { libc::sigaddset(&raw mut fields.sa_mask, signal) };
    }
    // SAFETY: both are ours.
    if unsafe { sigaction(signal, action.as_ptr(), before.as_mut_ptr()) } != 0 {
        return libc::SIG_ERR;
    }
    // SAFETY: zeros, or what the call wrote.
    unsafe { before.assume_init() }.sa_sigaction
}

/// Installs a handler that stays and restarts calls: what BSD and glibc mean by it.
///
/// # Safety
/// The handler is a function of a signal, or one of the constants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESTART)
}

/// An old name of [`signal()`].
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESTART)
}

/// An old name of [`signal()`].
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESTART)
}

/// Installs a handler for one signal: what System V means by it.
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

/// The name under which programs built for System V call it.
///
/// # Safety
/// See [`signal()`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    install(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}
