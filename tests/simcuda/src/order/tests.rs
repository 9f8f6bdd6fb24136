//! The ledger beside a dumb one that keeps every access of every byte.

use super::{Clock, Races, Touch};
use terrace_tests::Random;

/// Every access of every byte: `(lane, count, writes)`.
#[derive(Default)]
struct Dumb {
    bytes: Vec<Vec<(usize, u64, bool)>>,
}

impl Dumb {
    /// Whether the new access races with any earlier one of its bytes.
    fn touch(&mut self, touch: Touch, lane: usize, count: u64, clock: &Clock) -> bool {
        let range = touch.start as usize..(touch.start + touch.bytes) as usize;
        let mut races = false;
        for byte in &mut self.bytes[range] {
            races |= byte.iter().any(|(lane, count, wrote)| (*wrote || touch.writes) && clock.of(*lane) < *count);
            byte.push((lane, count, touch.writes));
        }
        races
    }
}

#[test]
fn the_ledger_finds_what_a_dumb_one_finds() {
    const BYTES: u64 = 48;
    for seed in 1..=200 {
        let mut numbers = Random::new(seed);
        let mut races = Races::default();
        let mut dumb = Dumb { bytes: vec![Vec::new(); BYTES as usize] };
        for step in 0..120 {
            let lane = numbers.below(4) as usize;
            match numbers.below(6) {
                0 => {
                    let other = races.clock(numbers.below(4) as usize);
                    races.join(lane, &other);
                }
                1 => {
                    let clock = races.clock(lane);
                    races.learn(&clock);
                }
                _ => {
                    let start = numbers.below(BYTES);
                    let bytes = numbers.below(BYTES - start + 1);
                    let touch = Touch { start, bytes, writes: numbers.below(2) == 0 };
                    let count = races.begin(lane);
                    let clock = races.clock(lane);
                    let found = races.touch(lane, "test", touch);
                    // After a race the ledger keeps only the later write: what follows is compared from a fresh start.
                    let expected = dumb.touch(touch, lane, count, &clock);
                    assert_eq!(found.is_some(), expected, "seed {seed}, step {step}: {touch:?} on {lane}");
                    if expected {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_range_that_was_forgotten_has_no_past() {
    let mut races = Races::default();
    races.begin(0);
    assert_eq!(races.touch(0, "write", Touch::write(10, 10)), None);
    races.begin(1);
    races.ledger.forget(12, 4);
    assert_eq!(races.touch(1, "read", Touch::read(12, 4)), None);
    let conflict = races.touch(1, "read", Touch::read(8, 20)).expect("bytes 10 and 11 still have their write");
    assert_eq!((conflict.start, conflict.end, conflict.wrote), (10, 12, true));
}

#[test]
fn the_host_knows_what_it_waited_for() {
    let mut races = Races::default();
    races.begin(0);
    races.touch(0, "write", Touch::write(0, 8));
    assert!(races.pending(4, 1).is_some());
    assert!(races.pending(8, 1).is_none());
    let clock = races.clock(0);
    races.learn(&clock);
    assert!(races.pending(4, 1).is_none());
    // What the host knows, operations that it starts later know too.
    races.begin(1);
    assert_eq!(races.touch(1, "write", Touch::write(0, 8)), None);
}

#[test]
fn writes_over_many_spans_leave_one() {
    let mut races = Races::default();
    races.begin(0);
    (0..100).for_each(|at| assert_eq!(races.touch(0, "write", Touch::write(at * 2, 1)), None));
    assert_eq!(races.ledger.len(), 100);
    races.touch(0, "write", Touch::write(0, 200));
    assert_eq!(races.ledger.len(), 1);
}
