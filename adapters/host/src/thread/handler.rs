//! Whether the running thread is in a signal handler, told by its word and by frames.
//!
//! Promises upward: [`is_in_handler`] is one comparison outside of handlers. A jump out of a handler, which drops no guard, is
//! seen by the first call from a frame above the handler's, or from outside the stack that handlers have of their own.
//! Asks from below: [`tls`], and what the guard ([`Handler`](crate::Handler)) wrote into the cache.

use super::cache::IN_SIGNAL;
use super::{assigned, tls};
use core::sync::atomic::Ordering::Relaxed;

/// Whether the running thread is in a handler. Attaches its cache again when a jump left the handler.
#[inline]
pub fn is_in_handler() -> bool {
    core::ptr::addr_eq(tls::get(), &raw const IN_SIGNAL) && !was_left_by_jump()
}

/// Whether a jump left all handlers: the frame is above the outermost handler's, or, if that has a stack of its own, elsewhere.
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
    tls::set(cache);
    true
}

/// Whether the handler interrupted a slow path, so that its own thread may hold locks.
///
/// A thread without a cache may be getting one just now.
pub fn has_interrupted_slow_path() -> bool {
    is_in_handler() && assigned().is_none_or(|cache| cache.in_slow_path.load(Relaxed))
}
