//! Where a tracker's events go while a recorder is attached.
//!
//! Promises upward: without a recorder, telling an event costs a load and a branch; once a sink is removed, no call into it
//! is in progress.
//! Asks from below: nothing.

use crate::origin::Origin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use terrace_core::event::Event;

/// Receives events of one tracker, from any thread.
///
/// The owner's locks may be held then: an implementation must not call the owner of the tracker, and must not wait for code
/// that does.
pub trait EventSink: Send + Sync {
    /// Takes an event. Its `id` is the block's key; the tag and the call site are those of `origin`; its time is not set.
    fn record(&self, origin: Origin, event: Event);
}

/// The sink of one tracker, if there is one.
#[derive(Default)]
pub(crate) struct SinkSlot {
    /// Whether there is a sink: the only thing that is read without one.
    is_set: AtomicBool,
    /// Whether the tracker was off before.
    was_off: AtomicBool,
    sink: RwLock<Option<Arc<dyn EventSink>>>,
}

impl SinkSlot {
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Sets the sink; false if there is one.
    pub(crate) fn set(&self, sink: Arc<dyn EventSink>) -> bool {
        let mut slot = self.sink.write().unwrap_or_else(PoisonError::into_inner);
        let is_free = slot.is_none();
        if is_free {
            *slot = Some(sink);
            self.is_set.store(true, Ordering::Relaxed);
        }
        is_free
    }

    /// Removes this sink, and waits until no call into it is in progress; false if it was not set.
    pub(crate) fn clear(&self, sink: &Arc<dyn EventSink>) -> bool {
        let mut slot = self.sink.write().unwrap_or_else(PoisonError::into_inner);
        let is_set = slot.as_ref().is_some_and(|set| std::ptr::addr_eq(Arc::as_ptr(set), Arc::as_ptr(sink)));
        if is_set {
            self.is_set.store(false, Ordering::Relaxed);
            *slot = None;
        }
        is_set
    }

    /// Says whether the tracker was off before the sink was set; returns what was said last.
    pub(crate) fn mode_was_off(&self, was_off: bool) -> bool {
        self.was_off.swap(was_off, Ordering::Relaxed)
    }

    /// Passes an event on.
    #[cold]
    pub(crate) fn pass(&self, origin: Origin, event: Event) {
        if let Some(sink) = &*self.sink.read().unwrap_or_else(PoisonError::into_inner) {
            sink.record(origin, event);
        }
    }
}
