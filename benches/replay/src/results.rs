//! The results of a pool on a trace.
//!
//! Promises upward: the keys of [`PoolRow`] are stable.
//! Asks from below: the allocator's statistics, ticks of a clock.

use crate::pools::SourceKind;
use hdrhistogram::Histogram;
use quanta::Clock;
use serde::Serialize;
use terrace_core::Stats;

/// The results of one pool on one trace. The field names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct PoolRow {
    /// Name of the trace.
    pub trace: String,
    /// Name of the pool.
    pub pool: &'static str,
    /// The kind of memory source: `growing` or `segments`.
    pub source: &'static str,
    /// Number of events replayed: those of blocks below `--min-size` are left out.
    pub events: u64,
    /// Highest sum of requested bytes of live blocks.
    pub peak_live_bytes: u64,
    /// Highest sum of bytes taken from the source.
    pub peak_reserved_bytes: u64,
    /// `peak_live_bytes / peak_reserved_bytes`, 0 when nothing was reserved.
    pub utilisation: f64,
    /// Number of calls to the source up to the last event of the trace.
    pub source_calls: u64,
    /// Number of handles that the source created for these calls.
    pub handles: u64,
    /// Number of allocations served without a call to the source.
    pub hits: u64,
    /// Number of allocations that called the source.
    pub misses: u64,
    /// Number of allocations and reallocations that failed.
    pub failed: u64,
    /// How many failed and why the first did, in the words of the caller, which has [`PoolReplay::failed`](crate::PoolReplay::failed);
    /// `null` if none failed.
    pub failure: Option<String>,
    /// Mean nanoseconds of an event.
    pub ns_mean: f64,
    /// Median nanoseconds of an event.
    pub ns_p50: u64,
    /// 99th percentile of the nanoseconds of an event.
    pub ns_p99: u64,
    /// 99.9th percentile of the nanoseconds of an event.
    pub ns_p999: u64,
    /// The most nanoseconds of an event.
    pub ns_max: u64,
    /// Bytes still reserved after all blocks were freed and the pool was trimmed.
    pub reserved_after_trim: u64,
}

/// The distribution of events' latencies, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Latencies {
    /// Converts a histogram of ticks of `clock` to nanoseconds; `longest` is the exact maximum in ticks.
    pub fn new(ticks: &Histogram<u64>, longest: u64, clock: &Clock) -> Self {
        let at = |quantile| clock.delta_as_nanos(0, ticks.value_at_quantile(quantile).min(longest));
        // Convert 2^32 ticks (about a second) at once, so that the ratio has nine digits.
        let per_tick = clock.delta_as_nanos(0, 1 << 32) as f64 / (1u64 << 32) as f64;
        let mean = (ticks.mean() * per_tick * 10.0).round() / 10.0;
        Self { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: clock.delta_as_nanos(0, longest) }
    }
}

impl PoolRow {
    /// The row of a pool; `stats` are the pool's after the last event.
    #[expect(clippy::too_many_arguments, reason = "each is a column")]
    pub(crate) fn new(
        trace: &str,
        pool: &'static str,
        source: SourceKind,
        events: u64,
        (peak_live, failed): (u64, u64),
        stats: &Stats,
        reserved_after_trim: u64,
        times: &Latencies,
    ) -> Self {
        let reserved = stats.peak_reserved;
        Self {
            trace: trace.into(),
            pool,
            source: source.name(),
            events,
            peak_live_bytes: peak_live,
            peak_reserved_bytes: reserved,
            utilisation: if reserved == 0 { 0.0 } else { peak_live as f64 / reserved as f64 },
            source_calls: stats.source_calls,
            handles: stats.handles,
            hits: stats.hits,
            misses: stats.misses,
            failed,
            failure: None,
            ns_mean: times.mean,
            ns_p50: times.p50,
            ns_p99: times.p99,
            ns_p999: times.p999,
            ns_max: times.max,
            reserved_after_trim,
        }
    }
}
