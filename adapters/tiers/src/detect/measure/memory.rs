//! Measures the machine's memory: copy bandwidth, and the latency of dependent reads.
//!
//! Promises upward: within half a second and 256 MiB, less where less is available or granted; `None` where too little
//! is.

use super::splitmix64;
use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Figures measured of memory. The field names are JSON keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryFigures {
    /// Size in bytes of each of the two buffers.
    pub buffer_bytes: u64,
    /// Bytes that one thread copies a second, the median of several rounds. A copied byte counts once, not as a read
    /// and a write.
    pub copy_bytes_per_s: u64,
    /// Latency of a read whose address depends on the previous read, page-table walks included: the lower quartile of
    /// many rounds, as in the others the thread may have had to wait for its processor.
    pub latency_ns: f64,
}

/// Largest buffer in bytes: it exceeds the last-level cache of most machines (only servers have 64 MiB and more). The
/// two buffers together have 256 MiB.
const MOST: u64 = 128 << 20;

/// Smallest buffer in bytes: a smaller one would measure caches, and a small board cannot spare more.
const LEAST: u64 = 4 << 20;

/// Time for each of the two measurements, of copies and of latency.
const TIME: Duration = Duration::from_millis(150);

/// Reads of a round of the walk, which takes 0.1 ms or so: short enough that most rounds are not interrupted, and long beside
/// a look at the clock.
const STEPS: u32 = 1024;

/// Number of 32-bit words in a cache line of 64 bytes. Each line is one node of the walk that measures latency.
const LINE: usize = 16;

/// Measures memory with two buffers, together at most a sixteenth of `available_bytes`.
///
/// If the system refuses to allocate the buffers, buffers of half the size are tried, and so on. `None` if the system
/// refuses even two of 4 MiB.
pub fn memory(available_bytes: Option<u64>) -> Option<MemoryFigures> {
    let most = (available_bytes.unwrap_or(LEAST * 32) / 32).clamp(LEAST, MOST);
    let sizes = std::iter::successors(Some(most), |bytes| Some(bytes / 2).filter(|&half| half >= LEAST));
    sizes.into_iter().find_map(|bytes| {
        let (copy_bytes_per_s, latency_ns) = (copy(bytes as usize)?, walk(bytes as usize)?);
        Some(MemoryFigures { buffer_bytes: bytes, copy_bytes_per_s, latency_ns })
    })
}

/// Returns `count` clones of a value; `None` if the system refuses the memory.
fn filled<T: Clone>(value: T, count: usize) -> Option<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    values.resize(count, value);
    Some(values)
}

fn copy(bytes: usize) -> Option<u64> {
    let (from, mut to) = (filled(1u8, bytes)?, filled(2u8, bytes)?);
    let (begin, mut times) = (Instant::now(), Vec::new());
    // The first round is a warm-up.
    while times.len() < 4 || begin.elapsed() < TIME {
        let round = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        times.push(round.elapsed());
    }
    times.remove(0);
    times.sort_unstable();
    Some((bytes as f64 / times[times.len() / 2].as_secs_f64().max(1e-9)) as u64)
}

fn walk(bytes: usize) -> Option<f64> {
    let nodes = bytes / (LINE * 4);
    // Links all cache lines into one cycle, in an order that no prefetcher predicts (Sattolo's algorithm).
    let mut order = filled(0u32, nodes)?;
    order.iter_mut().zip(0..).for_each(|(place, number)| *place = number);
    let mut state = 7;
    for i in (1..nodes).rev() {
        order.swap(i, (splitmix64(&mut state) % i as u64) as usize);
    }
    let mut lines = filled([0u32; LINE], nodes)?;
    order.iter().zip(&mut lines).for_each(|(next, line)| line[0] = *next);
    drop(order);
    let (begin, mut times, mut at) = (Instant::now(), Vec::new(), 0usize);
    while times.len() < 4 || begin.elapsed() < TIME {
        let round = Instant::now();
        for _ in 0..STEPS {
            at = lines[at][0] as usize;
        }
        times.push(round.elapsed());
    }
    black_box(at);
    times.sort_unstable();
    Some(times[times.len() / 4].as_nanos() as f64 / f64::from(STEPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_what_is_available_and_figures_make_sense() {
        let figures = memory(Some(1 << 20)).expect("there are 8 MiB");
        assert_eq!(figures.buffer_bytes, LEAST);
        // The bounds are below and above what any machine can reach.
        assert!((1 << 20..1 << 44).contains(&figures.copy_bytes_per_s), "{figures:?}");
        assert!((0.1..100_000.0).contains(&figures.latency_ns), "{figures:?}");
        assert_eq!(memory(Some(1 << 30)).map(|figures| figures.buffer_bytes), Some(32 << 20));
        assert!(filled([0u8; 1 << 10], usize::MAX >> 11).is_none(), "more than there is");
    }
}
