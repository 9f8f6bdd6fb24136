//! Command queues as streams.
//!
//! Promises upward: each queue that this crate puts work on is known, so that [`Queues::synchronize`] waits for all of it,
//! also for that of destroyed queues; a queue's id is never reused; a queue that does not keep the order of its commands is
//! refused. Work that is in flight when a queue is destroyed still completes.
//! Asks from below: queues, markers, and the loader's count of references.
//!
//! OpenCL has no wait for a device. A queue that the program made is retained from its adoption on, and let go at a later
//! call once no other reference to it is left.

use crate::connection::{Connection, as_number, handle, number, property};
use crate::events;
use crate::layouts::{
    CL_QUEUE_CONTEXT, CL_QUEUE_DEVICE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROPERTIES,
    CL_QUEUE_REFERENCE_COUNT,
};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_device::{Fault, FaultReason};

/// All queues of a backend.
#[derive(Default)]
pub struct Queues {
    table: Mutex<QueueTable>,
}

#[derive(Default)]
struct QueueTable {
    /// Ids given so far.
    ids: u64,
    /// By handle: id, and whether the program made the queue.
    live: HashMap<u64, (u64, bool)>,
    /// An event for each destroyed queue whose work may be in flight.
    unfinished: Vec<u64>,
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
        self.table().insert(number(queue), false);
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

    /// The id of a queue. One that the program made is retained at its first call.
    ///
    /// # Errors
    /// [`FaultReason::BadHandle`] for a queue of another context or device; [`FaultReason::Unsupported`] for one that does not
    /// keep the order of its commands.
    ///
    /// # Safety
    /// The queue must be live.
    pub unsafe fn id(&self, connection: &Connection, queue: u64) -> Result<u64, Fault> {
        const CALL: &str = "clGetCommandQueueInfo";
        let mut table = self.table();
        if let Some((id, _)) = table.live.get(&queue) {
            return Ok(*id);
        }
        // SAFETY: the caller's promise.
        let ask = |which| unsafe { queue_property(connection, queue, which) };
        let own = (number(connection.context()), number(connection.device()));
        if (ask(CL_QUEUE_CONTEXT)?, ask(CL_QUEUE_DEVICE)?) != own {
            return Err(Fault::of(CALL, FaultReason::BadHandle));
        }
        if ask(CL_QUEUE_PROPERTIES)? & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0 {
            return Err(Fault::of(CALL, FaultReason::Unsupported));
        }
        table.sweep(connection);
        // SAFETY: the caller's promise.
        unsafe { retain(connection, queue) }?;
        Ok(table.insert(queue, true))
    }

    /// Waits until all work of all queues is done.
    pub fn synchronize(&self, connection: &Connection) -> Result<(), Fault> {
        let table = self.table();
        // Each is retained, since another thread may destroy it meanwhile.
        // SAFETY: what the table has is live.
        let queues = table.live.keys().map(|&queue| unsafe { retain(connection, queue) }.map(|()| queue));
        let queues: Vec<_> = queues.collect();
        // SAFETY: as above.
        let events = table.unfinished.iter().map(|&event| unsafe { events::retain(connection, event) }.map(|()| event));
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
                // SAFETY: as above, once.
                waited.and(unsafe { events::release(connection, event) })
            }));
        }
        self.table().sweep(connection);
        done
    }

    /// Lets go of all queues, which no call names any more.
    pub fn close(&mut self, connection: &Connection) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (queue, _) in table.live.drain() {
            // SAFETY: the reference that the table had. A refusal is ignored: the driver frees everything at the process's end.
            _ = unsafe { release(connection, queue) };
        }
        for event in table.unfinished.drain(..) {
            // SAFETY: the reference that the table had.
            _ = unsafe { events::release(connection, event) };
        }
    }
}

impl QueueTable {
    fn insert(&mut self, queue: u64, adopted: bool) -> u64 {
        self.ids += 1;
        self.live.insert(queue, (self.ids, adopted));
        self.ids
    }

    /// Releases the table's reference to a queue, and remembers an event behind its work.
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
        self.live.remove(&queue);
        self.unfinished.push(event);
        Ok(())
    }

    /// Lets go of adopted queues that nothing else refers to, and of events that have completed.
    fn sweep(&mut self, connection: &Connection) {
        let adopted = self.live.iter().filter(|(_, (_, adopted))| *adopted).map(|(&queue, _)| queue);
        // SAFETY: what the table has is live.
        let count = |queue| unsafe { queue_property(connection, queue, CL_QUEUE_REFERENCE_COUNT) };
        let alone: Vec<u64> = adopted.filter(|&queue| count(queue) == Ok(1)).collect();
        for queue in alone {
            // SAFETY: nothing but the table refers to it, so no later call can name it.
            _ = unsafe { self.let_go(connection, queue) };
        }
        self.unfinished.retain(|&event| {
            // SAFETY: what the table has is live.
            let pending = unsafe { events::is_done(connection, event) } != Ok(true);
            if !pending {
                // SAFETY: the reference that the table had.
                _ = unsafe { events::release(connection, event) };
            }
            pending
        });
    }
}

/// Waits until all work on a queue is done.
///
/// # Safety
/// The queue must be live.
pub unsafe fn finish(connection: &Connection, queue: u64) -> Result<(), Fault> {
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
