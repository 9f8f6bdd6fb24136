//! Tells whether the running thread is in a signal handler, by its thread-local pointer and by stack frames.
//!
//! Promises upward: [`is_in_handler`] is one comparison outside of handlers. A jump (`siglongjmp`) out of a handler
//! drops no guard; the thread's next slow call detects it if its frame lies above the handler's, or outside the
//! alternate signal stack on which the handler ran.
//! Asks from below: [`tls`], and the fields of the cache that the guard ([`Handler`](crate::Handler)) wrote.

use super::cache::IN_SIGNAL;
use super::{assigned, bypass, tls};
use core::sync::atomic::Ordering::Relaxed;

/// Whether the running thread is in a signal handler.
///
/// Attaches the thread's cache again if a jump left the handler.
#[inline]
pub fn is_in_handler() -> bool {
    core::ptr::addr_eq(tls::get(), &raw const IN_SIGNAL) && !was_left_by_jump()
}

/// Whether a jump left all of the thread's handlers: this frame lies above the outermost handler's, or outside the
/// alternate signal stack on which that handler ran.
#[cold]
#[inline(never)]
fn was_left_by_jump() -> bool {
    let frame = 0u8;
    let here = (&raw const frame).addr();
    let Some(cache) = assigned() else { return false };
    let handler = cache.handler.load(Relaxed);
    let own_stack = cache.stack[0].load(Relaxed)..cache.stack[1].load(Relaxed);
    let is_gone = handler < here || !own_stack.is_empty() && !own_stack.contains(&here);
    if handler == 0 || !is_gone {
        return false;
    }
    cache.end_handlers();
    bypass::attach(cache);
    true
}

/// Whether the running thread is in a signal handler that interrupted a slow path.
///
/// Then the thread may hold locks. Also true for a thread without a cache, which may just be getting one.
pub fn has_interrupted_slow_path() -> bool {
    is_in_handler() && assigned().is_none_or(|cache| cache.in_slow_path.load(Relaxed))
}
