//! The return addresses of the calling thread's stack, by frame pointers.
//!
//! Promises upward: reads the thread's own stack only, whatever the frame pointer holds; costs two loads a frame.
//! Asks from below: code built with frame pointers (`-C force-frame-pointers=yes`). A function without one is passed
//! over, and the walk ends where a frame pointer leads out of the stack or back.

use core::ops::Range;

/// Fills `found` with return addresses, innermost first; returns how many.
///
/// `stack` are addresses of mapped memory that holds the calling thread's stack; nothing else is read. The first address is that to
/// which the function returns that this call is inlined in, if that function has a frame pointer.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline(always)]
pub fn walk_frames(stack: Range<usize>, found: &mut [u64]) -> usize {
    let mut frame: usize;
    // SAFETY: copies a register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags))
    };
    // SAFETY: copies a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags))
    };
    // Every address of the stack above this local is mapped and belongs to the calling thread.
    let here = core::ptr::from_ref(&frame).addr();
    let (mut least, most) = (here, stack.end.saturating_sub(FRAME_BYTES));
    if !stack.contains(&here) {
        return 0;
    }
    let mut count = 0;
    while count < found.len() && frame >= least && frame <= most && frame.is_multiple_of(size_of::<usize>()) {
        let record = core::ptr::with_exposed_provenance::<[usize; 2]>(frame);
        // SAFETY: both words lie in this thread's stack, between a live local and the stack's upper end: mapped memory that no
        // other thread writes. Any value of them is a number.
        let [caller, returns_to] = unsafe { record.read_volatile() };
        if (returns_to as u64) < LEAST_CODE {
            break;
        }
        found[count] = returns_to as u64;
        count += 1;
        // Callers lie above: so the walk ends.
        (least, frame) = (frame + FRAME_BYTES, caller);
    }
    count
}

/// Least address that can be a return address: no system maps code below.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
const LEAST_CODE: u64 = 64 << 10;

/// Bytes of a frame's record: the caller's frame pointer, and the address to return to.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
const FRAME_BYTES: usize = 2 * size_of::<usize>();

/// Finds nothing: this processor's frames are not known here.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
pub fn walk_frames(_stack: Range<usize>, _found: &mut [u64]) -> usize {
    0
}

/// The addresses of the calling thread's stack.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn stack_bounds() -> Option<Range<usize>> {
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: names the calling thread.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread lives, and the attributes have room; they are initialised if the call succeeds.
    if unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut lowest, mut bytes) = (core::ptr::null_mut(), 0);
    // SAFETY: the attributes were initialised above.
    let said = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut bytes) };
    // SAFETY: as above; they are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (said == 0).then(|| lowest.addr()..lowest.addr().saturating_add(bytes))
}

/// Not known on this system.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn stack_bounds() -> Option<Range<usize>> {
    None
}
