//! What the pool did that a trace reports: growth, steps before a request fails, fallbacks.
//!
//! Promises upward: without the feature `tracing` nothing is kept; with it a subscriber is called without the pool's lock, and
//! its panic goes no further.
//! Asks from below: nothing. The pool takes notices when it releases its lock.

#[cfg(feature = "tracing")]
use terrace_guard::catch_panic;
#[cfg(feature = "tracing")]
use tracing::{Level, event};

/// A step of the pool for a request of `asked` bytes, to be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "the fields are read by traces only"))]
pub(super) enum PoolNotice {
    /// The streams' caches were emptied into the arena.
    CachesEmptied { asked: u64 },
    /// The pool waited for streams that used dropped blocks.
    WaitedForStreams { asked: u64 },
    /// Free memory was returned to the driver, for a graph's pool.
    Trimmed { asked: u64, bytes: u64 },
    /// The user's hook was called; whether it says that it freed memory.
    HookCalled { asked: u64, freed: bool },
    /// Pinned host memory was given in place of the device's.
    FellBack { asked: u64 },
    /// A request failed for good.
    OutOfMemory { asked: u64 },
}

/// Notices that were not reported yet, and the size of the pool that was reported last.
#[derive(Debug, Default)]
pub(super) struct PoolNotices {
    #[cfg(feature = "tracing")]
    waiting: Vec<PoolNotice>,
    #[cfg(feature = "tracing")]
    reserved: u64,
}

impl PoolNotices {
    /// Keeps a notice, if traces are compiled in.
    #[inline]
    pub(super) fn add(&mut self, notice: PoolNotice) {
        #[cfg(feature = "tracing")]
        self.waiting.push(notice);
        #[cfg(not(feature = "tracing"))]
        let _ = notice;
    }

    /// Takes all notices, and by how much the pool changed to `reserved` bytes: before and now.
    #[cfg(feature = "tracing")]
    pub(super) fn take(&mut self, reserved: u64) -> (Vec<PoolNotice>, [u64; 2]) {
        (std::mem::take(&mut self.waiting), [std::mem::replace(&mut self.reserved, reserved), reserved])
    }
}

/// Reports notices of a device. The caller must hold no lock.
#[cfg(feature = "tracing")]
pub(super) fn report(device: &str, notices: Vec<PoolNotice>, [before, reserved]: [u64; 2]) {
    if before != reserved {
        let message = if reserved > before { "pool grew" } else { "pool shrank" };
        catch_panic(|| event!(Level::DEBUG, device, bytes = reserved.abs_diff(before), reserved, "{message}"));
    }
    for notice in notices {
        catch_panic(|| match notice {
            PoolNotice::CachesEmptied { asked } => event!(Level::DEBUG, device, asked, "caches emptied"),
            PoolNotice::WaitedForStreams { asked } => event!(Level::DEBUG, device, asked, "waited for streams"),
            PoolNotice::Trimmed { asked, bytes } => event!(Level::DEBUG, device, asked, bytes, "trimmed for a graph"),
            PoolNotice::HookCalled { asked, freed } => event!(Level::DEBUG, device, asked, freed, "hook called"),
            PoolNotice::FellBack { asked } => event!(Level::INFO, device, asked, "fell back to pinned memory"),
            PoolNotice::OutOfMemory { asked } => event!(Level::WARN, device, asked, "out of memory"),
        });
    }
}
