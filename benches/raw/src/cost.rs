//! What moving some bytes cost: seconds, processor time and latencies.
//!
//! Promises upward: processor time of all threads of the process, in the program and in the system.
//! Asks from below: the system's clocks.

use crate::Error;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Time that passed, and processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds that passed.
    pub wall_ns: u64,
    /// Nanoseconds of processor time of this process, in the program and in the system.
    pub cpu_ns: u64,
}

impl Cost {
    /// Adds what came after.
    pub fn add(&mut self, next: Self) {
        self.wall_ns += next.wall_ns;
        self.cpu_ns += next.cpu_ns;
    }
}

/// Runs a function; returns what it returned, and what it cost.
///
/// # Errors
/// Those of the function.
pub fn timed<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<(T, Cost), Error> {
    let (begun, before) = (Instant::now(), processor());
    let result = run()?;
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    Ok((
        result,
        Cost { wall_ns: nanoseconds(begun.elapsed()), cpu_ns: nanoseconds(processor().saturating_sub(before)) },
    ))
}

/// Processor time that this process has used.
pub fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Latencies of many calls.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // A microsecond to ten minutes, which is longer than a call lasts, to three digits.
        Self(Histogram::new_with_bounds(1000, 600_000_000_000, 3).expect("the bounds are in order"))
    }
}

impl Latencies {
    /// Counts a call that began then, and ends now.
    pub fn end(&mut self, begun: Instant) {
        self.0.saturating_record(begun.elapsed().as_nanos() as u64);
    }

    /// Counts the calls of others too.
    pub fn add(&mut self, others: &Self) {
        self.0.add(&others.0).expect("both have the same bounds");
    }

    /// The latency in nanoseconds that this part of the calls do not exceed; zero without calls.
    pub fn quantile(&self, part: f64) -> u64 {
        self.0.value_at_quantile(part)
    }
}

impl FromIterator<Self> for Latencies {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, one| {
            sum.add(&one);
            sum
        })
    }
}

/// Bytes that were moved, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Time of all of them.
    #[serde(flatten)]
    pub cost: Cost,
    /// Latency of one in nanoseconds, from the call until its bytes are there: the median.
    pub p50_ns: u64,
    /// The latency that one in a hundred exceeds.
    pub p99_ns: u64,
}

impl Moved {
    /// Sums up.
    pub fn new(bytes: u64, cost: Cost, latencies: &Latencies) -> Self {
        Self { bytes, cost, p50_ns: latencies.quantile(0.5), p99_ns: latencies.quantile(0.99) }
    }
}
