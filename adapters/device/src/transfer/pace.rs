//! Finds a good size for pieces, by trying sizes.
//!
//! Promises upward: a size between two bounds, whose throughput is nearly that of the best neighbouring size; it adapts
//! when the machine's speed changes. Pure: reads no clock.
//!
//! Hill climbing over powers of two. After every eight pieces of the present size, a neighbouring size is tried for
//! four pieces, the larger and the smaller one in turn. A larger size replaces the present one if it is 3 % faster
//! (less is noise on a machine that does other work too), a smaller one if it is nearly as fast.

/// Number of pieces of the present size before a neighbouring size is tried.
const STAY: u32 = 8;

/// Number of pieces of a neighbouring size before it is judged.
const TRY: u32 = 4;

/// Throughput, relative to the present size's, above which a larger size replaces it.
const BETTER: f64 = 1.03;

/// Throughput, relative to the present size's, above which a smaller size replaces it: smaller pieces delay other
/// transfers less. The share of a piece's fixed cost doubles at each halving, so all halvings together lose at most 2
/// %.
const WORSE: f64 = 0.99;

/// Weight of the newest measurement in a mean: with an eighth, the mean follows a change within 20 pieces.
const WEIGHT: f64 = 0.125;

/// The present size of pieces, and the throughput measured at each size.
#[derive(Debug)]
pub(super) struct Pace {
    least: u32,
    most: u32,
    /// `least`, `most`, `now` and `tried` are exponents of two, `least <= now, tried <= most`; `tried` differs from
    /// `now` by at most one.
    now: u32,
    tried: u32,
    /// Number of pieces measured at size `tried` since it was chosen.
    done: u32,
    /// Whether the next neighbouring size to try is the larger one.
    up: bool,
    /// Mean bytes per nanosecond for each exponent; 0: never measured.
    rates: [f64; 64],
}

impl Pace {
    /// `least` and `most` are the bounds in bytes, powers of two, both included. Starts at four times `least`.
    pub(super) fn new(least: u64, most: u64) -> Self {
        let (least, most) = (least.trailing_zeros(), most.trailing_zeros());
        let now = (least + 2).min(most);
        Self { least, most, now, tried: now, done: 0, up: true, rates: [0.0; 64] }
    }

    /// Size of the next piece in bytes.
    pub(super) fn bytes(&self) -> u64 {
        1 << self.tried
    }

    /// Takes in the time of a piece. A piece much smaller or larger than the tried size is ignored.
    pub(super) fn measured(&mut self, bytes: u64, nanoseconds: u64) {
        if bytes > self.bytes() || bytes < self.bytes() / 4 * 3 {
            return;
        }
        let rate = bytes as f64 / nanoseconds.max(1) as f64;
        let mean = &mut self.rates[self.tried as usize];
        *mean = if *mean == 0.0 { rate } else { *mean + (rate - *mean) * WEIGHT };
        self.done += 1;
        if self.tried == self.now && self.done >= STAY {
            self.try_neighbour();
        } else if self.tried != self.now && self.done >= TRY {
            self.judge();
        }
    }

    fn try_neighbour(&mut self) {
        self.done = 0;
        let next = if self.up { self.now + 1 } else { self.now.saturating_sub(1) };
        self.up = !self.up;
        if (self.least..=self.most).contains(&next) {
            self.tried = next;
            // Forget the old mean: the machine may have changed since then.
            self.rates[next as usize] = 0.0;
        }
    }

    fn judge(&mut self) {
        self.done = 0;
        let (rate, present) = (self.rates[self.tried as usize], self.rates[self.now as usize]);
        let enough = present * if self.tried > self.now { BETTER } else { WORSE };
        if rate > enough {
            // Try the next size in the same direction first.
            self.up = self.tried > self.now;
            self.now = self.tried;
        }
        self.tried = self.now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size after 2000 pieces, each of which costs `fixed` nanoseconds plus one for `rate` bytes, or plus two for
    /// `rate` bytes if the piece is larger than `cliff` bytes.
    fn rest(pace: &mut Pace, fixed: u64, rate: u64, cliff: u64) -> u64 {
        for _ in 0..2000 {
            let bytes = pace.bytes();
            let slow = if bytes > cliff { 2 } else { 1 };
            pace.measured(bytes, fixed + bytes / rate * slow);
        }
        1 << pace.now
    }

    #[test]
    fn it_grows_while_that_pays_and_no_further() {
        // 10 us per piece and 25 bytes per ns: at 4 MiB the fixed cost is 5.6 %, at 8 MiB 2.9 %, at 16 MiB 1.5 %.
        let mut pace = Pace::new(1 << 18, 1 << 24);
        assert_eq!(pace.bytes(), 1 << 20);
        let rest_at = rest(&mut pace, 10_000, 25, u64::MAX);
        assert!((1 << 22..=1 << 23).contains(&rest_at), "{rest_at}");
    }

    #[test]
    fn it_stays_below_a_cliff_and_follows_when_the_machine_changes() {
        let mut pace = Pace::new(1 << 18, 1 << 24);
        assert_eq!(rest(&mut pace, 1_000, 10, 1 << 19), 1 << 19);
        assert!(rest(&mut pace, 100_000, 10, u64::MAX) >= 1 << 23);
        assert_eq!(rest(&mut pace, 1_000, 10, 1 << 18), 1 << 18);
    }

    /// The size exponents of the first `pieces` pieces, each of which takes `fixed` nanoseconds plus one for 25 bytes.
    fn sizes(pieces: usize, fixed: u64) -> Vec<u32> {
        let mut pace = Pace::new(1 << 18, 1 << 24);
        let piece = |_| {
            let bytes = pace.bytes();
            pace.measured(bytes, fixed + bytes / 25);
            bytes.trailing_zeros()
        };
        (0..pieces).map(piece).collect()
    }

    #[test]
    fn eight_pieces_of_the_present_size_then_four_of_a_neighbour_up_and_down_in_turn() {
        // The fixed cost is 3 % of a piece of 1 MiB: twice the size gains 1.5 %, half of it loses 3 %.
        let wanted = [[20; 8].as_slice(), &[21; 4], &[20; 8], &[19; 4], &[20; 8], &[21; 4]].concat();
        assert_eq!(sizes(36, 1258), wanted);
    }

    #[test]
    fn after_a_larger_size_has_won_a_still_larger_one_is_tried_first() {
        assert_eq!(sizes(24, 100_000), [[20; 8].as_slice(), &[21; 4], &[21; 8], &[22; 4]].concat());
    }

    #[test]
    fn it_never_leaves_its_bounds() {
        for (least, most) in [(1 << 12, 1 << 12), (1 << 18, 1 << 19)] {
            let mut pace = Pace::new(least, most);
            for piece in 0..1000u64 {
                assert!((least..=most).contains(&pace.bytes()));
                pace.measured(pace.bytes(), piece * 7919 % 1000 + 1);
            }
        }
    }

    #[test]
    fn pieces_of_other_sizes_say_nothing() {
        let mut pace = Pace::new(1 << 18, 1 << 24);
        for _ in 0..100 {
            pace.measured(1 << 12, 1);
            pace.measured(1 << 30, 1);
        }
        assert_eq!((pace.done, pace.now), (0, 20));
    }
}
