//! Memory over time, in bounded space.
//!
//! Promises upward: between [`POINTS_MAX`] / 2 and `POINTS_MAX` points for a long trace. Each is the sample with the most live
//! memory of its interval, so that no peak is lost; all pools are sampled at the same events.
//! Asks from below: chunks that choose their samples likewise.

/// The most points of a timeline: 4096, more than a picture has pixels across.
pub const POINTS_MAX: usize = 4096;

/// Live memory at one event of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Microseconds since the first event.
    pub time_us: u64,
    /// Sum of the requested bytes of live blocks after the event.
    pub live: u64,
}

/// The points of a trace, in order of time.
#[derive(Clone, Debug)]
pub struct Timeline {
    points: Vec<Point>,
    /// Number of events that each point stands for.
    stride: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1 }
    }
}

impl Timeline {
    /// Number of events that each point stands for, so far.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The points so far.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Appends points; if there are too many, thins out all of them, and each list in `reserved` alike.
    ///
    /// Of every 2, 4, ... neighbouring points the one with the most live memory stays. Each list must already have a
    /// value for every point, the new ones included.
    pub fn extend<'a>(&mut self, points: &[Point], reserved: impl Iterator<Item = &'a mut Vec<u64>>) {
        self.points.extend_from_slice(points);
        let mut halvings = 0;
        let mut left = self.points.len();
        while left > POINTS_MAX {
            left = left.div_ceil(2);
            halvings += 1;
        }
        if halvings == 0 {
            return;
        }
        self.stride <<= halvings;
        let keep = self.highest(1 << halvings);
        self.points = keep.iter().map(|&i| self.points[i]).collect();
        for values in reserved {
            *values = keep.iter().filter_map(|&i| values.get(i).copied()).collect();
        }
    }

    /// For every `group` neighbouring points, the index of the one with the most live memory.
    fn highest(&self, group: usize) -> Vec<usize> {
        let groups = self.points.chunks(group).enumerate();
        groups
            .filter_map(|(g, points)| Some(g * group + index_of_max(points.iter().map(|point| point.live))?))
            .collect()
    }
}

/// The index of the first maximum; `None` without values.
pub fn index_of_max(values: impl Iterator<Item = u64>) -> Option<usize> {
    values.enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_keeps_the_peaks_and_the_pools_in_step() {
        let mut timeline = Timeline::default();
        let mut reserved = Vec::new();
        for i in 0..10_000u64 {
            let live = if i == 7777 { 1_000_000 } else { i % 10 };
            reserved.push(live + 5);
            timeline.extend(&[Point { time_us: i, live }], [&mut reserved].into_iter());
        }
        assert!(timeline.points().len() <= POINTS_MAX && timeline.points().len() > POINTS_MAX / 2);
        assert!(timeline.points().contains(&Point { time_us: 7777, live: 1_000_000 }));
        assert!(timeline.points().is_sorted_by_key(|point| point.time_us));
        assert_eq!(reserved.len(), timeline.points().len());
        assert!(timeline.points().iter().zip(&reserved).all(|(point, reserved)| point.live + 5 == *reserved));
    }

    #[test]
    fn one_large_addition_is_halved_as_often_as_needed() {
        let mut timeline = Timeline::default();
        let points: Vec<_> = (0..POINTS_MAX as u64 * 5).map(|i| Point { time_us: i, live: i }).collect();
        timeline.extend(&points, std::iter::empty());
        assert_eq!(timeline.stride(), 8);
        assert_eq!(timeline.points().len(), POINTS_MAX * 5 / 8);
    }
}
