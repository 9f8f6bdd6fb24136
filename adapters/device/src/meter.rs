//! Counters of the transfers of one buffer.
//!
//! Promises upward: each counter is read and written on its own, without a lock.
//! Asks from below: nothing; the transfer engine reports each transfer once, when it ends.

use crate::error::DeviceError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a finished transfer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct TransferReport {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Number of pieces in which the bytes were moved.
    pub pieces: u32,
    /// Number of times that a piece was tried again after a refusal.
    pub retries: u32,
    /// Time from the call until the last byte arrived.
    pub time: Duration,
}

/// What transfer engines did with one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct BufferStats {
    /// Bytes copied into the buffer.
    pub bytes_in: u64,
    /// Bytes copied out of the buffer.
    pub bytes_out: u64,
    /// Number of transfers that moved all of their bytes.
    pub transfers: u64,
    /// Number of transfers that ended with an error or were cancelled.
    pub failed: u64,
    /// Sum of the successful transfers' times, each from call to end.
    pub time: Duration,
    /// When the last transfer ended, `None` before the first.
    ///
    /// Serialised as its age under the key `last_age`: a moment of this clock means nothing to another process.
    #[cfg_attr(feature = "serde", serde(rename = "last_age", with = "crate::stats::age"))]
    pub last: Option<Instant>,
}

impl BufferStats {
    /// Bytes per second of transfer time, waiting included; 0 before the first transfer.
    pub fn bandwidth(&self) -> f64 {
        let time = self.time.as_secs_f64();
        if time > 0.0 { (self.bytes_in + self.bytes_out) as f64 / time } else { 0.0 }
    }
}

/// Counters of one buffer, shared with readers. Each is read and written on its own.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    transfers: AtomicU64,
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    /// Nanoseconds from [`Meter::epoch`] to the end of the last transfer, plus 1; 0: none ended yet.
    last: AtomicU64,
}

impl Meter {
    /// The moment from which `last` counts, since an `Instant` cannot be stored in an atomic.
    fn epoch() -> Instant {
        static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *EPOCH.get_or_init(Instant::now)
    }

    /// Counts a transfer that ended; `arrived`: it copied into this buffer, otherwise out of it.
    pub(crate) fn ended(&self, result: &Result<TransferReport, DeviceError>, arrived: bool) {
        let epoch = Self::epoch();
        match result {
            Ok(report) => {
                let bytes = if arrived { &self.bytes_in } else { &self.bytes_out };
                bytes.fetch_add(report.bytes, Ordering::Relaxed);
                self.transfers.fetch_add(1, Ordering::Relaxed);
                self.nanoseconds.fetch_add(report.time.as_nanos() as u64, Ordering::Relaxed);
            }
            Err(_) => _ = self.failed.fetch_add(1, Ordering::Relaxed),
        }
        self.last.store(epoch.elapsed().as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> BufferStats {
        let last = self.last.load(Ordering::Relaxed);
        BufferStats {
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            transfers: self.transfers.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
            last: (last > 0).then(|| Self::epoch() + Duration::from_nanos(last - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bytes_over_time() {
        let (time, none) = (Duration::from_millis(250), BufferStats::default());
        let buffer = BufferStats { bytes_in: 300, bytes_out: 200, time, ..none };
        assert_eq!((buffer.bandwidth(), none.bandwidth()), (2000.0, 0.0));
    }

    #[test]
    fn a_buffer_s_transfers_are_added_up() {
        let (meter, begun) = (Meter::default(), Instant::now());
        assert_eq!(meter.stats(), BufferStats::default());
        let report =
            |bytes, time| Ok(TransferReport { bytes, time: Duration::from_millis(time), ..TransferReport::default() });
        meter.ended(&report(100, 3), true);
        meter.ended(&report(40, 4), false);
        meter.ended(&Err(DeviceError::Cancelled), true);
        let stats = meter.stats();
        assert_eq!((stats.bytes_in, stats.bytes_out, stats.transfers, stats.failed), (100, 40, 2, 1));
        assert_eq!(stats.time, Duration::from_millis(7));
        let last = stats.last.expect("one ended");
        assert!(last + Duration::from_millis(1) >= begun && last <= Instant::now(), "{stats:?}");
    }
}
