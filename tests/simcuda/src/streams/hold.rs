//! Holding streams and stepping them: for tests that want operations in flight.
//!
//! Upward: [`step`].

use super::wait::wait_for;
use crate::machine::Held;
use crate::order::Lane;

/// Lets up to `steps` operations of held streams run, one at a time, each of the oldest stream that can start one. Gives
/// how many ran.
pub fn step(held: &mut Held, steps: u64) -> u64 {
    for ran in 0..steps {
        let idle: Vec<Lane> = held.streams.all.keys().copied().collect();
        let Some(lane) = idle.into_iter().find(|lane| can_step(held, *lane)) else { return ran };
        let Some(stream) = held.streams.all.get_mut(&lane) else { return ran };
        stream.grants += 1;
        let target = (lane, stream.done + 1);
        held.streams.wake();
        if wait_for(held, &[target], "simcuda_step").is_err() {
            return ran;
        }
    }
    steps
}

/// Whether a stream's next operation would start if it were granted.
fn can_step(held: &mut Held, lane: Lane) -> bool {
    held.streams.all.get_mut(&lane).into_iter().for_each(|stream| stream.grants += 1);
    let can = held.streams.may_start(lane);
    held.streams.all.get_mut(&lane).into_iter().for_each(|stream| stream.grants -= 1);
    can
}
