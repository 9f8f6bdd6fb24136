//! A stream's thread.
//!
//! Upward: [`start`]. The thread takes operations in order, each when those it waits for are done, and ends with its
//! stream. It holds the lock while it decides and not while bytes move; what moves is in `Stream::running`, and nothing
//! closes memory that stands there.
//! From below: [`Work::run`].

use super::{Operation, Work};
use crate::abi::codes::{ILLEGAL_ADDRESS, OUT_OF_MEMORY};
use crate::abi::{Code, Outcome};
use crate::machine::{self, DONE, Fault, Held, World};
use crate::order::Lane;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a stream's stack: callers' host functions run on it. Untouched it costs nothing.
const STACK: usize = 1 << 20;

/// Gives a stream its thread.
pub fn start(world: &mut World, lane: Lane) -> Outcome {
    let generation = world.generation;
    let Some(stream) = world.streams.all.get_mut(&lane).filter(|stream| !stream.started) else { return Ok(()) };
    let builder = std::thread::Builder::new().name(format!("stream {lane}")).stack_size(STACK);
    builder.spawn(move || run(generation, lane)).map_err(|_| OUT_OF_MEMORY)?;
    stream.started = true;
    Ok(())
}

fn run(generation: u64, lane: Lane) {
    let mut held = machine::lock();
    while let Some(operation) = next(&mut held, generation, lane) {
        let fault = judge(&mut held, lane, &operation);
        let stays = held.streams.all.get_mut(&lane).map(|stream| stream.running = Some(operation.touches.clone()));
        if fault.is_none() && stays.is_some() {
            MutexGuard::unlocked(&mut held, || perform(&operation.work));
        }
        finish(&mut held, lane, &operation, fault);
    }
}

/// The stream's next operation, when it may start; `None` when the stream or its world is gone.
fn next(held: &mut Held, generation: u64, lane: Lane) -> Option<Operation> {
    loop {
        if held.generation != generation {
            return None;
        }
        if held.streams.may_start(lane) {
            let stream = held.streams.all.get_mut(&lane)?;
            stream.grants = stream.grants.saturating_sub(1);
            return stream.queue.pop_front();
        }
        let stream = held.streams.all.get(&lane)?;
        if stream.destroyed && stream.queue.is_empty() {
            held.streams.all.remove(&lane);
            DONE.notify_all();
            return None;
        }
        let wake = Arc::clone(&stream.wake);
        wake.wait(held);
    }
}

/// What keeps an operation from running: its context is lost, it is a fault, or memory it touches is closed.
fn judge(held: &mut Held, lane: Lane, operation: &Operation) -> Option<Code> {
    let context = held.streams.all.get(&lane)?.context;
    if held.is_lost(context) {
        return Some(ILLEGAL_ADDRESS);
    }
    if let Work::Fault(code) = operation.work {
        return Some(code);
    }
    let closed = operation.touches.iter().find(|touch| !held.is_open(**touch))?;
    let past = held.memory.past(closed.start).unwrap_or_else(|| "memory that is closed".into());
    let text = format!("{} #{} of stream {lane}, queued, runs on {past}", operation.name, operation.sequence);
    held.report.add(Fault::UseAfterFree, text);
    Some(ILLEGAL_ADDRESS)
}

/// Runs without the lock.
fn perform(work: &Work) {
    let run = || {
        // SAFETY: `judge` found all device memory open under the lock, and it stays open while `running` names it;
        // host memory is the caller's promise.
        unsafe { work.run() }
    };
    match work {
        Work::Host(_) => machine::current::callback(run),
        _ => run(),
    }
}

/// Marks an operation as done and wakes whoever waited for it.
fn finish(held: &mut Held, lane: Lane, operation: &Operation, fault: Option<Code>) {
    let Some(stream) = held.streams.all.get_mut(&lane) else { return };
    stream.running = None;
    stream.done = operation.sequence;
    let context = stream.context;
    if let Some(code) = fault {
        held.lose(context, code);
    }
    match operation.work {
        Work::Record(event, serial) => {
            let event = held.events.get_mut(event);
            let same = event.filter(|event| event.serial == serial);
            same.into_iter().for_each(|event| event.time = Some(Instant::now()));
        }
        // The caller's function ran: whoever hears of it on the host knows that all before it is done.
        Work::Host(_) => operation.tells.iter().for_each(|clock| held.races.learn(clock)),
        _ => {}
    }
    held.streams.wake();
    DONE.notify_all();
}
