//! Pressure stall information (PSI): how long tasks waited for memory or I/O.
//!
//! Promises upward: `None` where the kernel does not report it, or in another form.
//! Asks from below: the text of a file of `/proc/pressure` or of a control group.

use serde::Serialize;

/// How much of the time tasks were stalled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StallTimes {
    /// Percentage of the last 10 seconds that was stalled.
    pub avg10_percent: f64,
    /// Percentage of the last minute that was stalled.
    pub avg60_percent: f64,
    /// Percentage of the last 5 minutes that was stalled.
    pub avg300_percent: f64,
    /// Total stalled time, in microseconds.
    pub total_us: u64,
}

/// Pressure on one resource, memory or I/O.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PressureStall {
    /// Time in which at least one task was stalled.
    pub some: StallTimes,
    /// Time in which all non-idle tasks were stalled at once.
    pub full: Option<StallTimes>,
}

impl PressureStall {
    /// Parses a pressure file; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| text.lines().find_map(|line| stall(line.strip_prefix(name)?.strip_prefix(' ')?));
        Some(Self { some: of("some")?, full: of("full") })
    }
}

fn stall(fields: &str) -> Option<StallTimes> {
    let of = |name: &str| fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let share = |name: &str| of(name)?.parse().ok().filter(|share: &f64| (0.0..=100.0).contains(share));
    Some(StallTimes {
        avg10_percent: share("avg10")?,
        avg60_percent: share("avg60")?,
        avg300_percent: share("avg300")?,
        total_us: of("total")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read_and_nonsense_is_none() {
        let text = "some avg10=0.10 avg60=22.91 avg300=3.25 total=822463174\nfull avg10=0.00 avg60=0.79 avg300=20.32 total=5\n";
        let pressure = PressureStall::parse(text).expect("a pressure");
        assert_eq!((pressure.some.avg60_percent, pressure.some.total_us), (22.91, 822_463_174));
        assert_eq!(pressure.full.map(|full| (full.avg300_percent, full.total_us)), Some((20.32, 5)));
        let one = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n";
        assert_eq!(
            PressureStall::parse(one).map(|pressure| (pressure.some.avg10_percent, pressure.full)),
            Some((1.0, None))
        );
        for bad in ["", "full avg10=0.00", "some avg10=NaN avg60=2.00 avg300=3.00 total=4", "some avg10=1 total=2"] {
            assert_eq!(PressureStall::parse(bad), None, "{bad}");
        }
    }
}
