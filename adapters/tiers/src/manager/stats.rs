//! Statistics: in which tier uses found their bytes, how long calls waited, what moved and why.
//!
//! Promises upward: every use is counted once, under no lock; a use that finds its bytes in memory costs one addition to
//! a counter that few threads share.

use super::types::{MoveStats, TierInfo};
use super::{BufferState, Manager, ManagerShared};
use crate::ledger::{EvictionStats, PrefetchStats};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use terrace_core::residence::{TIERS, Tier};
use terrace_core::stats::rate;

/// Number of counters of each kind: threads beyond so many share them.
const SHARDS: usize = 8;

/// Counters of a few threads, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    found: [AtomicU64; TIERS as usize],
    read: AtomicU64,
    written: AtomicU64,
}

/// What a call may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Lease,
    Read,
    Write,
    Allocation,
}

/// The counters of a manager.
#[derive(Debug)]
pub(super) struct StatsRecorder {
    built: Instant,
    pub memory: Tier,
    shards: [Shard; SHARDS],
    /// Microseconds, by [`Waited`].
    waits: [Mutex<Histogram<u32>>; 4],
}

/// How long calls took that did not find at once what they needed.
///
/// The other calls take well below a microsecond more than their copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitStats {
    /// Number of calls that waited.
    pub calls: u64,
    /// The median.
    pub p50: Duration,
    /// 90 % took no longer, to one part in a hundred.
    pub p90: Duration,
    /// 99 % took no longer.
    pub p99: Duration,
    /// 99.9 % took no longer.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

/// Uses of buffers as one tier saw them: leases, reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierUses {
    /// Uses that found the newest bytes in this tier, and in no better one.
    pub hits: u64,
    /// Uses that found the newest bytes only in lower tiers.
    pub misses: u64,
}

/// Statistics of a manager since it was built.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct ManagerStats {
    /// How long ago the manager was built.
    pub elapsed: Duration,
    /// Uses by tier, best first.
    pub tiers: Vec<TierUses>,
    /// Bytes that calls have read.
    pub bytes_read: u64,
    /// Bytes that calls have written.
    pub bytes_written: u64,
    /// Leases that waited, for their bytes to be moved or for calls.
    pub leases: WaitStats,
    /// Reads that did not find their bytes in memory.
    pub reads: WaitStats,
    /// Writes that did not find their bytes in memory.
    pub writes: WaitStats,
    /// Allocations.
    pub allocations: WaitStats,
    /// Copies between tiers.
    pub moves: MoveStats,
    /// What became of prefetches.
    pub prefetches: PrefetchStats,
    /// Evictions by cause.
    pub evictions: EvictionStats,
}

impl ManagerStats {
    /// How fast a number grew between an earlier snapshot and this one, per second.
    ///
    /// # Example
    /// ```
    /// use terrace_tiers::Manager;
    ///
    /// let manager = Manager::builder().memory(1 << 20).build()?;
    /// let (before, buffer) = (manager.stats(), manager.allocate(4096)?);
    /// buffer.write(0, &[7; 4096])?;
    /// let now = manager.stats();
    /// assert!(now.rate_since(&before, |stats| stats.bytes_written) > 0.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rate_since(&self, earlier: &Self, number: impl Fn(&Self) -> u64) -> f64 {
        rate(number(earlier), number(self), self.elapsed.saturating_sub(earlier.elapsed))
    }
}

/// The number of this thread's counters.
fn shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

impl StatsRecorder {
    /// `memory`: the tier of the machine's memory.
    pub(super) fn new(memory: Tier) -> Self {
        // From a microsecond to an hour, to two digits; longer waits count as an hour.
        let histogram = || Mutex::new(Histogram::new_with_max(HOUR, 2).expect("the bounds are in order"));
        let waits = [histogram(), histogram(), histogram(), histogram()];
        Self { built: Instant::now(), memory, shards: Default::default(), waits }
    }

    /// Counts a use that found its bytes in a tier.
    #[inline]
    pub(super) fn found(&self, tier: Tier) {
        if let Some(count) = self.shards[shard()].found.get(usize::from(tier)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a use that found its bytes in memory.
    #[inline]
    pub(super) fn found_in_memory(&self) {
        self.found(self.memory);
    }

    /// Counts bytes that a call has read.
    pub(super) fn read(&self, bytes: usize) {
        self.shards[shard()].read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that a call has written.
    pub(super) fn written(&self, bytes: usize) {
        self.shards[shard()].written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records a wait that began at `since`.
    pub(super) fn waited(&self, what: Waited, since: Instant) {
        let micros = since.elapsed().as_micros().min(HOUR.into()) as u64;
        let mut waits = self.waits[what as usize].lock().unwrap_or_else(PoisonError::into_inner);
        waits.saturating_record(micros);
    }

    fn waits(&self, what: Waited) -> WaitStats {
        let waits = self.waits[what as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let at = |quantile| Duration::from_micros(waits.value_at_quantile(quantile));
        let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(at);
        WaitStats { calls: waits.len(), p50, p90, p99, p999, max: Duration::from_micros(waits.max()) }
    }

    fn sum(&self, of: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
    }
}

/// Microseconds of an hour.
const HOUR: u64 = 3_600_000_000;

impl ManagerShared {
    pub(super) fn collect_stats(&self) -> ManagerStats {
        let (stats, tiers) = (&self.stats, self.tiers());
        let found: Vec<u64> = tiers.map(|tier| stats.sum(|shard| &shard.found[usize::from(tier)])).collect();
        let uses = |at| TierUses { hits: found[at], misses: found[at + 1..].iter().sum() };
        let (moves, prefetches, evictions) = {
            let state = self.state();
            (state.moves, state.ledger.prefetches(), state.ledger.evictions())
        };
        ManagerStats {
            elapsed: stats.built.elapsed(),
            tiers: (0..found.len()).map(uses).collect(),
            bytes_read: stats.sum(|shard| &shard.read),
            bytes_written: stats.sum(|shard| &shard.written),
            leases: stats.waits(Waited::Lease),
            reads: stats.waits(Waited::Read),
            writes: stats.waits(Waited::Write),
            allocations: stats.waits(Waited::Allocation),
            moves,
            prefetches,
            evictions,
        }
    }

    /// Counts a read that found its bytes in a tier.
    pub(super) fn count_read(&self, tier: Tier, bytes: usize) {
        self.stats.found(tier);
        self.stats.read(bytes);
    }

    /// Counts a write that found its bytes in a tier.
    pub(super) fn count_write(&self, tier: Tier, bytes: usize) {
        self.stats.found(tier);
        self.stats.written(bytes);
    }

    /// Counts a use whose bytes are not where it needs them.
    pub(super) fn missed(&self, buffer: &BufferState) {
        let best = self.state().ledger.view(buffer.id).map(|view| view.residence.best());
        best.into_iter().for_each(|tier| self.stats.found(tier));
    }
}

impl Manager {
    /// Statistics since the manager was built; zeros in a forked child.
    pub fn stats(&self) -> ManagerStats {
        if self.shared.check_process().is_err() { ManagerStats::default() } else { self.shared.collect_stats() }
    }

    /// A reader of the manager's statistics that does not keep the manager.
    ///
    /// # Example
    /// ```
    /// use terrace_tiers::Manager;
    ///
    /// let manager = Manager::builder().memory(1 << 20).build()?;
    /// let weak = manager.downgrade();
    /// assert_eq!(weak.tiers().map(|tiers| tiers.len()), Some(1));
    /// drop(manager);
    /// assert!(weak.stats().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn downgrade(&self) -> WeakManager {
        WeakManager { shared: Arc::downgrade(&self.shared) }
    }
}

/// A manager as seen by a reader of its statistics: the manager ends as if there were no reader.
#[derive(Clone)]
pub struct WeakManager {
    shared: Weak<ManagerShared>,
}

impl WeakManager {
    /// Statistics since the manager was built.
    ///
    /// `None` once the manager and its buffers are dropped, and in a forked child.
    pub fn stats(&self) -> Option<ManagerStats> {
        self.own().map(|shared| shared.collect_stats())
    }

    /// The state of all tiers.
    ///
    /// `None` once the manager and its buffers are dropped, and in a forked child.
    pub fn tiers(&self) -> Option<Vec<TierInfo>> {
        self.own().map(|shared| shared.tier_infos())
    }

    /// Dropping the last handle waits until no reader holds this, so a reader does not end the manager.
    fn own(&self) -> Option<Arc<ManagerShared>> {
        self.shared.upgrade().filter(|shared| shared.check_process().is_ok())
    }
}

impl fmt::Debug for WeakManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakManager").finish_non_exhaustive()
    }
}
