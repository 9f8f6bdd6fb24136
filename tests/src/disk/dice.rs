//! Where choices come from: a seed, or every combination in turn.
//!
//! Promises upward: what happens depends on the choices alone; [`Odometer`] meets every combination once.

use crate::Random;

/// A source of choices.
pub trait Dice {
    /// A number below `options`, which is at least 1.
    fn below(&mut self, options: u64) -> u64;

    /// Whether choices are counted out: then few of them should be asked for.
    fn counted_out(&self) -> bool {
        false
    }
}

impl Dice for Random {
    fn below(&mut self, options: u64) -> u64 {
        Random::below(self, options)
    }
}

/// Every combination of choices, one a round, as an odometer counts.
#[derive(Debug, Default)]
pub struct Odometer {
    /// What was chosen, of how many.
    wheels: Vec<(u64, u64)>,
    /// The wheel that is asked next.
    at: usize,
}

impl Odometer {
    /// Turns to the next combination. False when there is none.
    pub fn turn(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, options)) = self.wheels.last_mut() {
            *chosen += 1;
            if *chosen < *options {
                return true;
            }
            self.wheels.pop();
        }
        false
    }
}

impl Dice for Odometer {
    fn below(&mut self, options: u64) -> u64 {
        if self.at == self.wheels.len() {
            self.wheels.push((0, options));
        }
        self.at += 1;
        self.wheels[self.at - 1].0
    }

    fn counted_out(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odometer_meets_every_combination_once() {
        let (mut odometer, mut seen) = (Odometer::default(), Vec::new());
        loop {
            let first = odometer.below(3);
            // How many are asked for may depend on what was chosen.
            let second = if first == 1 { 9 } else { odometer.below(2) };
            seen.push((first, second));
            if !odometer.turn() {
                break;
            }
        }
        assert_eq!(seen, [(0, 0), (0, 1), (1, 9), (2, 0), (2, 1)]);
    }
}
