//! The end of a process: what the disk holds for the next one, while the power stays.
//!
//! Promises upward: what was answered is read, and what no sync covered is as volatile as before; of each order that was under
//! way all, a part or nothing has happened.

use super::dice::Dice;
use super::log::{Kind, Line};
use super::{Fault, Marks, Queued, SimDisk, State};

impl SimDisk {
    /// The disk that the next process finds when this one is killed now; nothing is under way on this one then. Faults that were
    /// to come still are.
    pub fn kill(&self, dice: &mut dyn Dice) -> Self {
        let mut state = self.state();
        let mut queue = std::mem::take(&mut state.queue);
        let next = Self::with(state.capacity, state.names.clone(), state.images.clone(), Marks::default());
        let mut left = next.state();
        (left.index, left.gone_until) = (state.index, state.gone_until);
        left.plan = std::mem::take(&mut state.plan);
        drop(state);
        while !queue.is_empty() {
            let which = dice.below(queue.len() as u64) as usize;
            left.leave(queue.swap_remove(which), dice);
        }
        // What is volatile was answered before any order to come: a sync covers it.
        left.index += 1;
        left.begun = left.index;
        drop(left);
        next
    }
}

impl State {
    /// Does all of an order, what it does when it fails, or nothing. Nobody is told.
    fn leave(&mut self, queued: Queued, dice: &mut dyn Dice) {
        let mut line = Line::of(self.index, &queued.order);
        line.fault = match dice.below(3) {
            0 => return,
            1 => Some(Fault::Error).filter(|fault| fault.fits(line.kind)),
            _ => None,
        };
        if line.kind != Kind::Read {
            _ = self.perform(&line, queued.order, queued.submitted, dice);
        }
    }
}
