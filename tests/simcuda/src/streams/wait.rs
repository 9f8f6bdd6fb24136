//! Waiting for operations.
//!
//! Upward: [`wait_for`] waits until operations are done, [`settle`] until none runs on a range. Both let go of the lock
//! while they wait.
//! From below: [`DONE`].

use super::Stream;
use crate::abi::Outcome;
use crate::abi::codes::{DEINITIALIZED, LAUNCH_TIMEOUT};
use crate::machine::{DONE, Fault, Held, World};
use crate::order::{Clock, Lane, Touch};
use std::time::{Duration, Instant};

/// An operation: its lane and its number.
pub type Target = (Lane, u64);

/// How often a wait looks whether streams are held, at most.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until all targets are done.
pub fn wait_for(held: &mut Held, targets: &[Target], call: &str) -> Outcome {
    wait_while(held, call, |world| !targets.iter().all(|(lane, sequence)| world.streams.is_done(*lane, *sequence)))
}

/// Waits, for a call whose purpose that is: the host knows afterwards that all targets are done.
pub fn synchronise(held: &mut Held, targets: &[Target], call: &str) -> Outcome {
    let mut known = Clock::default();
    for (lane, sequence) in targets {
        let mut clock = held.races.clock(*lane);
        clock.limit(*lane, *sequence);
        known.join(&clock);
    }
    wait_for(held, targets, call)?;
    held.races.learn(&known);
    held.trim_to_thresholds();
    Ok(())
}

/// Waits until no operation that runs touches the range, so that it can be closed. Operations that have not started
/// are not waited for: they will find it closed.
pub fn settle(held: &mut Held, start: u64, bytes: u64) -> Outcome {
    let end = start.saturating_add(bytes);
    let overlaps = move |touch: &Touch| touch.start < end && start < touch.start.saturating_add(touch.bytes);
    wait_while(held, "unmapping", move |world| {
        world.streams.all.values().filter_map(|stream| stream.running.as_ref()).flatten().any(overlaps)
    })
}

fn wait_while(held: &mut Held, call: &str, condition: impl Fn(&World) -> bool) -> Outcome {
    let generation = held.generation;
    let patience = Duration::from_millis(held.profile.patience);
    let mut since = Instant::now();
    while condition(held) {
        DONE.wait_for(held, LOOK.min(patience));
        if held.generation != generation {
            return Err(DEINITIALIZED);
        }
        if !held.streams.held {
            since = Instant::now();
        } else if since.elapsed() > patience {
            held.report.add(Fault::HeldTooLong, format!("{call} waits for operations of streams that are held"));
            return Err(LAUNCH_TIMEOUT);
        }
    }
    Ok(())
}

impl World {
    /// The newest operations of a stream, and of those that the legacy default stream stands for.
    pub fn targets_of(&self, lane: Lane) -> Vec<Target> {
        let Some(stream) = self.streams.all.get(&lane) else { return Vec::new() };
        let legacy = self.streams.legacy.get(&stream.context) == Some(&lane);
        let others = self.streams.blocking(stream.context).filter(|_| legacy);
        let others = others.map(|(lane, stream)| (lane, stream.enqueued));
        others.chain([(lane, stream.enqueued)]).collect()
    }

    /// The newest operations of all streams of a context, and of the green contexts of a primary one.
    pub fn targets_of_context(&self, context: u64) -> Vec<Target> {
        let of_context = self
            .streams
            .all
            .iter()
            .filter(|(_, stream)| stream.context == context || self.root(stream.context) == context);
        of_context.map(|(lane, stream)| (*lane, stream.enqueued)).collect()
    }

    /// The newest operation of each stream that touches a range and is not done.
    pub fn touching(&self, start: u64, bytes: u64) -> Vec<Target> {
        let end = start.saturating_add(bytes);
        let overlap =
            |touches: &[Touch]| touches.iter().any(|touch| touch.start < end && start < touch.start + touch.bytes);
        let newest = |(lane, stream): (&Lane, &Stream)| {
            let queued = stream.queue.iter().rev().find(|operation| overlap(&operation.touches));
            let running = stream.running.as_ref().filter(|touches| overlap(touches)).map(|_| stream.done + 1);
            Some((*lane, queued.map(|operation| operation.sequence).or(running)?))
        };
        self.streams.all.iter().filter_map(newest).collect()
    }
}
