//! Counters of an engine.
//!
//! Promises upward: separate counters for each direction; time with pieces in flight counts once, however many there
//! are.
//! Asks from below: lanes report when a piece begins and ends; jobs report how they ended.

use super::job::Direction;
use crate::error::DeviceError;
use crate::meter::TransferReport;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counters of an engine's transfers in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct DirectionStats {
    /// Number of transfers that moved all of their bytes.
    pub transfers: u64,
    /// Bytes of those transfers.
    pub bytes: u64,
    /// Number of transfers that ended with an error.
    pub failed: u64,
    /// Number of transfers that were cancelled.
    pub cancelled: u64,
    /// Number of pieces that arrived.
    pub pieces: u64,
    /// Number of ranges that shared a piece with others.
    pub batched: u64,
    /// Number of times that a range was tried again after a refusal.
    pub retries: u64,
    /// Bytes of all pieces that arrived, even if their transfers then failed.
    pub moved: u64,
    /// Time during which at least one piece was in flight.
    pub busy: Duration,
    /// Highest rate in bytes per second, over successive windows of 5 ms, or shorter ones that ended with no piece in
    /// flight.
    pub best: f64,
    /// When the last transfer ended.
    ///
    /// Serialised as its age under the key `last_age`: a moment of this clock means nothing to another process.
    #[cfg_attr(feature = "serde", serde(rename = "last_age", with = "crate::stats::age"))]
    pub last: Option<Instant>,
}

impl DirectionStats {
    /// Bytes per second while pieces were in flight; 0 before the first piece.
    pub fn bandwidth(&self) -> f64 {
        let busy = self.busy.as_secs_f64();
        if busy > 0.0 { self.moved as f64 / busy } else { 0.0 }
    }

    /// The bandwidth divided by `best`: 1 if the rate was always the highest; 0 before the first piece.
    pub fn efficiency(&self) -> f64 {
        if self.best > 0.0 { self.bandwidth() / self.best } else { 0.0 }
    }
}

/// Counters of an engine, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct TransferStats {
    /// Counters of transfers from the host to the device.
    pub up: DirectionStats,
    /// Counters of transfers from the device to the host.
    pub down: DirectionStats,
    /// Counters of transfers within the device.
    pub within: DirectionStats,
    /// Number of transfers in the queue, some bytes of which wait to be issued; cancelled ones count until the queue
    /// drops them.
    pub queued: u64,
}

/// Counters of one engine, for each direction.
#[derive(Default)]
pub(super) struct EngineCounters([Mutex<DirectionCounts>; 3]);

#[derive(Default)]
struct DirectionCounts {
    stats: DirectionStats,
    /// Number of pieces in flight, and since when there has been at least one.
    in_flight: u32,
    since: Option<Instant>,
    /// Start of the window in which `best` is measured, and the bytes that arrived in it.
    window: Option<(Instant, u64)>,
}

/// Length of the windows in which [`DirectionStats::best`] is measured: a dozen pieces of 4 MiB at 10 GB/s.
const WINDOW: Duration = Duration::from_millis(5);

impl DirectionCounts {
    /// Counts bytes that arrived; `last`: no piece is in flight any more.
    fn arrived(&mut self, bytes: u64, last: bool) {
        let now = Instant::now();
        let (since, before) = self.window.unwrap_or((now, 0));
        let (time, bytes) = (now - since, before + bytes);
        let over = last || time >= WINDOW;
        if over {
            self.stats.best = self.stats.best.max(bytes as f64 / time.as_secs_f64().max(1e-6));
        }
        self.window = (!last).then_some(if over { (now, 0) } else { (since, bytes) });
    }
}

impl EngineCounters {
    fn of(&self, direction: Direction) -> MutexGuard<'_, DirectionCounts> {
        self.0[direction as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a piece that begins.
    pub(super) fn begin(&self, direction: Direction) {
        let mut counts = self.of(direction);
        if counts.in_flight == 0 {
            counts.since = Some(Instant::now());
            counts.window = counts.since.map(|since| (since, 0));
        }
        counts.in_flight += 1;
    }

    /// Counts a piece that ended: `bytes` bytes arrived, in `ranges` ranges; none if the piece was refused.
    pub(super) fn end(&self, direction: Direction, bytes: u64, ranges: usize) {
        let mut counts = self.of(direction);
        counts.in_flight -= 1;
        if counts.in_flight == 0 {
            let busy = counts.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            counts.stats.busy += busy;
        }
        if bytes > 0 {
            let stats = &mut counts.stats;
            (stats.pieces, stats.moved) = (stats.pieces + 1, stats.moved + bytes);
            stats.batched += if ranges > 1 { ranges as u64 } else { 0 };
        }
        let last = counts.in_flight == 0;
        counts.arrived(bytes, last);
    }

    /// Counts a job that ended.
    pub(super) fn ended(&self, direction: Direction, error: Option<&DeviceError>, report: TransferReport) {
        let stats = &mut self.of(direction).stats;
        match error {
            None => (stats.transfers, stats.bytes) = (stats.transfers + 1, stats.bytes + report.bytes),
            Some(DeviceError::Cancelled) => stats.cancelled += 1,
            Some(_) => stats.failed += 1,
        }
        stats.retries += u64::from(report.retries);
        stats.last = Some(Instant::now());
    }

    /// The counters as of now.
    pub(super) fn stats(&self, queued: u64) -> TransferStats {
        let stats = |direction| {
            let counts = self.of(direction);
            let busy = counts.since.map_or(Duration::ZERO, |since| since.elapsed());
            DirectionStats { busy: counts.stats.busy + busy, ..counts.stats }
        };
        TransferStats {
            up: stats(Direction::Up),
            down: stats(Direction::Down),
            within: stats(Direction::Within),
            queued,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bytes_over_time() {
        let direction = DirectionStats {
            moved: 3000,
            busy: Duration::from_millis(500),
            best: 12_000.0,
            ..DirectionStats::default()
        };
        assert_eq!((direction.bandwidth(), direction.efficiency()), (6000.0, 0.5));
        assert_eq!((DirectionStats::default().bandwidth(), DirectionStats::default().efficiency()), (0.0, 0.0));
    }

    #[test]
    fn a_piece_counts_from_its_beginning_to_its_end() {
        let (counters, bytes, outer) = (EngineCounters::default(), 1 << 20, Instant::now());
        counters.begin(Direction::Down);
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        let shortest = inner.elapsed();
        assert!(counters.stats(0).down.busy >= shortest, "what is on its way counts");
        counters.end(Direction::Down, bytes, 1);
        let (longest, down) = (outer.elapsed(), counters.stats(0).down);
        assert!((shortest..=longest).contains(&down.busy), "{down:?}");
        let rate = |time: Duration| bytes as f64 / time.as_secs_f64();
        assert!((rate(longest)..=rate(shortest)).contains(&down.best), "{down:?}");
        assert_eq!((down.moved, down.pieces, down.batched), (bytes, 1, 0));
        counters.begin(Direction::Down);
        counters.begin(Direction::Down);
        counters.end(Direction::Down, bytes, 3);
        counters.end(Direction::Down, 0, 1);
        let both = counters.stats(0).down;
        assert_eq!((both.moved, both.pieces, both.batched), (2 * bytes, 2, 3), "what was refused moved nothing");
        assert!(both.busy > down.busy && both.best >= down.best, "{both:?}");
        assert_eq!(counters.stats(7), TransferStats { down: both, queued: 7, ..TransferStats::default() });
    }

    #[test]
    fn a_transfer_ends_as_done_failed_or_cancelled() {
        let (counters, report) =
            (EngineCounters::default(), TransferReport { bytes: 5, retries: 2, ..TransferReport::default() });
        for error in [
            None,
            Some(DeviceError::Cancelled),
            Some(DeviceError::BadOption("a failure".into())),
            None,
            Some(DeviceError::Cancelled),
        ] {
            counters.ended(Direction::Up, error.as_ref(), report);
        }
        let up = counters.stats(0).up;
        assert_eq!((up.transfers, up.bytes, up.failed, up.cancelled, up.retries), (2, 10, 1, 2, 10));
        assert!(up.last.is_some());
    }
}
