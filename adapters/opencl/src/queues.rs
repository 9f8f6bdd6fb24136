//! QueuedCommand queues as streams.
//!
//! Promises upward: each queue that this crate puts work on is known, so that [`Queues::synchronize`] waits for all of it,
//! also for that of destroyed queues; a copy or fill that failed is told once, by the next wait for its queue or for all; a queue's
//! id is never reused; a queue that does not keep the order of its commands is
//! refused. Work that is in flight when a queue is destroyed still completes.
//! Asks from below: queues and markers.
//!
//! `clFinish` waits and does not say that a command failed: its event does. OpenCL has no wait for a device. A queue that the program made is retained while a
//! [`SharedQueue`](crate::SharedQueue) over it lives; one that is only named, by `Device::adopt_stream`, until the backend's end.

use crate::connection::{Connection, as_number, handle, number, property};
use crate::events;
use crate::layouts::{
    CL_COMPLETE, CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES,
};
use crate::result_codes::{WAITED_FAILED, fault};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_device::{Fault, FaultReason, insist};

/// All queues of a backend.
#[derive(Default)]
pub struct Queues {
    table: Mutex<QueueTable>,
}

#[derive(Default)]
struct QueueTable {
    /// Ids given so far.
    ids: u64,
    /// By handle.
    live: HashMap<u64, KnownQueue>,
    /// Work of destroyed queues that may be in flight: copies, fills, and a marker behind all of each queue.
    unfinished: Vec<QueuedCommand>,
    /// The first of those that failed, until it is told.
    failed: Option<Fault>,
}

struct KnownQueue {
    id: u64,
    /// Whether the queue stays without holds: this crate made it, or a call named it that no hold foretold.
    kept: bool,
    /// Holds of [`Queues::hold`].
    holds: u64,
    /// Calls of [`Queues::id`] that holds foretell.
    foretold: u64,
    /// Copies and fills that may be in flight, the oldest first.
    commands: VecDeque<QueuedCommand>,
    /// The first that failed, until it is told.
    failed: Option<Fault>,
}

/// A command whose event the table holds.
#[derive(Clone, Copy)]
struct QueuedCommand {
    call: &'static str,
    event: u64,
}

impl Queues {
    /// The table is consistent between any two statements.
    fn table(&self) -> MutexGuard<'_, QueueTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a queue that keeps the order of its commands.
    pub fn create(&self, connection: &Connection) -> Result<u64, Fault> {
        let queue = connection.made("clCreateCommandQueue", |core, code| {
            // SAFETY: the connection's context and device; the out parameter lives through the call. The function is older than
            // 2.0's, which drivers of 1.2 lack, and every driver has it.
            unsafe { (core.clCreateCommandQueue)(connection.context(), connection.device(), 0, code) }
        })?;
        self.table().insert(number(queue), true);
        Ok(number(queue))
    }

    /// Destroys a queue of [`Self::create`].
    ///
    /// # Safety
    /// The queue must be live, and no later call may name it.
    pub unsafe fn destroy(&self, connection: &Connection, queue: u64) -> Result<(), Fault> {
        let mut table = self.table();
        table.sweep(connection);
        // SAFETY: the caller's promise.
        unsafe { table.let_go(connection, queue) }
    }

    /// The id of a queue.
    ///
    /// One that the program made is retained until the end, unless a hold foretold the call.
    ///
    /// # Errors
    /// [`FaultReason::BadHandle`] for a queue of another context or device; [`FaultReason::Unsupported`] for one that does not
    /// keep the order of its commands.
    ///
    /// # Safety
    /// The queue must be live.
    pub unsafe fn id(&self, connection: &Connection, queue: u64) -> Result<u64, Fault> {
        let mut table = self.table();
        // SAFETY: the caller's promise.
        let known = unsafe { table.known(connection, queue) }?;
        match known.foretold.checked_sub(1) {
            Some(left) => known.foretold = left,
            None => known.kept = true,
        }
        Ok(known.id)
    }

    /// Retains a queue that the program made until [`Self::let_go`]; foretells one call of [`Self::id`].
    ///
    /// # Errors
    /// As for [`Self::id`].
    ///
    /// # Safety
    /// The queue must be live.
    pub unsafe fn hold(&self, connection: &Connection, queue: u64) -> Result<(), Fault> {
        connection.check_process("clRetainCommandQueue")?;
        let mut table = self.table();
        // SAFETY: the caller's promise.
        let known = unsafe { table.known(connection, queue) }?;
        known.holds += 1;
        known.foretold += 1;
        Ok(())
    }

    /// Ends a hold.
    pub fn let_go(&self, connection: &Connection, queue: u64) {
        if connection.check_process("clReleaseCommandQueue").is_err() {
            return;
        }
        let mut table = self.table();
        table.sweep(connection);
        let Some(known) = table.live.get_mut(&queue) else { return };
        known.holds = known.holds.saturating_sub(1);
        if known.holds == 0 && !known.kept {
            // SAFETY: live, as the table has a reference; the last hold is gone. What is refused twice stays until the end.
            _ = insist(|| unsafe { table.let_go(connection, queue) });
        }
    }

    /// Keeps the event of a copy or fill until the command is known to be over.
    ///
    /// The event's reference is this table's from now on.
    pub fn track(&self, connection: &Connection, queue: u64, call: &'static str, event: u64) {
        let mut table = self.table();
        if let Some(known) = table.live.get_mut(&queue) {
            known.sweep(connection);
            known.commands.push_back(QueuedCommand { call, event });
        } else {
            // SAFETY: the caller's reference. The queue is none of this table's.
            _ = unsafe { events::release(connection, event) };
        }
    }

    /// Waits until all work on a queue is done.
    ///
    /// # Errors
    /// The driver's error; the first of the queue's copies and fills that failed, once.
    ///
    /// # Safety
    /// The queue must be live.
    pub unsafe fn finish(&self, connection: &Connection, queue: u64) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { finish(connection, queue) }?;
        self.table().live.get_mut(&queue).map_or(Ok(()), |known| known.outcome(connection))
    }

    /// Waits until all work of all queues is done.
    ///
    /// # Errors
    /// The driver's error; the first copy or fill that failed, once, also of destroyed queues.
    pub fn synchronize(&self, connection: &Connection) -> Result<(), Fault> {
        let table = self.table();
        // Each is retained, since another thread may destroy it meanwhile.
        // SAFETY: what the table has is live.
        let queues = table.live.keys().map(|&queue| unsafe { retain(connection, queue) }.map(|()| queue));
        let queues: Vec<_> = queues.collect();
        // SAFETY: as above.
        let retain = |event| unsafe { events::retain(connection, event) }.map(|()| event);
        let events = table.unfinished.iter().map(|command| retain(command.event));
        let events: Vec<_> = events.collect();
        drop(table);
        let mut done = Ok(());
        for queue in queues {
            done = done.and(queue.and_then(|queue| {
                // SAFETY: retained above.
                let finished = unsafe { finish(connection, queue) };
                // SAFETY: as above, once.
                finished.and(unsafe { release(connection, queue) })
            }));
        }
        for event in events {
            done = done.and(event.and_then(|event| {
                // SAFETY: retained above.
                let waited = unsafe { events::wait(connection, event) };
                // The sweep below tells what failed.
                let waited = waited.or_else(|fault| if fault.code == WAITED_FAILED { Ok(()) } else { Err(fault) });
                // SAFETY: as above, once.
                waited.and(unsafe { events::release(connection, event) })
            }));
        }
        let mut table = self.table();
        table.sweep(connection);
        for known in table.live.values_mut() {
            done = done.and(known.outcome(connection));
        }
        let failed = table.failed.take();
        done.and(failed.map_or(Ok(()), Err))
    }

    /// Lets go of all queues, which no call names any more.
    pub fn close(&mut self, connection: &Connection) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (queue, known) in table.live.drain() {
            table.unfinished.extend(known.commands);
            // SAFETY: the reference that the table had. A refusal is ignored: the driver frees everything at the process's end.
            _ = unsafe { release(connection, queue) };
        }
        for command in table.unfinished.drain(..) {
            // SAFETY: the reference that the table had.
            _ = unsafe { events::release(connection, command.event) };
        }
    }
}

impl QueueTable {
    fn insert(&mut self, queue: u64, kept: bool) {
        self.ids += 1;
        let (id, commands) = (self.ids, VecDeque::new());
        self.live.insert(queue, KnownQueue { id, kept, holds: 0, foretold: 0, commands, failed: None });
    }

    /// A queue of the table; one that is new is checked, and retained.
    ///
    /// # Safety
    /// The queue must be live.
    unsafe fn known(&mut self, connection: &Connection, queue: u64) -> Result<&mut KnownQueue, Fault> {
        const CALL: &str = "clGetCommandQueueInfo";
        if !self.live.contains_key(&queue) {
            // SAFETY: the caller's promise.
            let ask = |which| unsafe { queue_property(connection, queue, which) };
            let own = (number(connection.context()), number(connection.device()));
            if (ask(CL_QUEUE_CONTEXT)?, ask(CL_QUEUE_DEVICE)?) != own {
                return Err(Fault::of(CALL, FaultReason::BadHandle));
            }
            if ask(CL_QUEUE_PROPERTIES)? & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0 {
                return Err(Fault::of(CALL, FaultReason::Unsupported));
            }
            // SAFETY: the caller's promise.
            unsafe { retain(connection, queue) }?;
            self.insert(queue, false);
        }
        self.live.get_mut(&queue).ok_or(Fault::of(CALL, FaultReason::BadHandle))
    }

    /// Releases the table's reference to a queue, and remembers its work.
    ///
    /// # Safety
    /// The queue must be live, and no later call may name it.
    unsafe fn let_go(&mut self, connection: &Connection, queue: u64) -> Result<(), Fault> {
        // SAFETY: the caller promises a live queue.
        let event = unsafe { events::mark(connection, queue) }?;
        // SAFETY: as above, once.
        if let Err(fault) = unsafe { release(connection, queue) } {
            // SAFETY: made above, for this function alone.
            _ = unsafe { events::release(connection, event) };
            return Err(fault);
        }
        if let Some(known) = self.live.remove(&queue) {
            self.failed = self.failed.or(known.failed);
            self.unfinished.extend(known.commands);
        }
        self.unfinished.push(QueuedCommand { call: "clEnqueueMarkerWithWaitList", event });
        Ok(())
    }

    /// Lets go of work of destroyed queues that is over.
    fn sweep(&mut self, connection: &Connection) {
        let failed = &mut self.failed;
        self.unfinished.retain(|command| !command.end(connection, failed));
    }
}

impl KnownQueue {
    /// Lets go of commands that are over, which those at the front are first.
    fn sweep(&mut self, connection: &Connection) {
        while self.commands.front().is_some_and(|command| command.end(connection, &mut self.failed)) {
            self.commands.pop_front();
        }
    }

    /// What failed since the last call.
    fn outcome(&mut self, connection: &Connection) -> Result<(), Fault> {
        self.sweep(connection);
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl QueuedCommand {
    /// Whether the command is over; then its event is released, and a failure noted if it is the first.
    fn end(self, connection: &Connection, failed: &mut Option<Fault>) -> bool {
        // SAFETY: what the table has is live. A refused question is asked again at the next sweep.
        let status = unsafe { events::status(connection, self.event) };
        let Some(status) = status.ok().filter(|&status| status <= CL_COMPLETE) else { return false };
        if status < CL_COMPLETE {
            failed.get_or_insert(fault(self.call, status));
        }
        // SAFETY: the reference that the table had.
        _ = unsafe { events::release(connection, self.event) };
        true
    }
}

/// Waits until all work on a queue is done, whether or not it failed.
///
/// # Safety
/// The queue must be live.
unsafe fn finish(connection: &Connection, queue: u64) -> Result<(), Fault> {
    connection.call("clFinish", |core| {
        // SAFETY: the caller promises a live queue.
        unsafe { (core.clFinish)(handle(queue)) }
    })
}

/// Takes one more reference.
///
/// # Safety
/// The queue must be live.
unsafe fn retain(connection: &Connection, queue: u64) -> Result<(), Fault> {
    connection.call("clRetainCommandQueue", |core| {
        // SAFETY: the caller promises a live queue.
        unsafe { (core.clRetainCommandQueue)(handle(queue)) }
    })
}

/// Gives a reference back.
///
/// # Safety
/// The queue must be live, and the reference the caller's.
unsafe fn release(connection: &Connection, queue: u64) -> Result<(), Fault> {
    connection.call("clReleaseCommandQueue", |core| {
        // SAFETY: the caller promises a reference.
        unsafe { (core.clReleaseCommandQueue)(handle(queue)) }
    })
}

/// A property of a queue, as a number.
///
/// # Safety
/// The queue must be live.
unsafe fn queue_property(connection: &Connection, queue: u64, which: u32) -> Result<u64, Fault> {
    const CALL: &str = "clGetCommandQueueInfo";
    connection.check_process(CALL)?;
    let bytes = property(CALL, |room, into, size| {
        // SAFETY: the caller promises a live queue; `property` lends `room` bytes.
        unsafe { (connection.functions.core.clGetCommandQueueInfo)(handle(queue), which, room, into, size) }
    })?;
    Ok(as_number(&bytes))
}
