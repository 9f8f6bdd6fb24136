//! Events: the driver's, which are made anew by each record, and terrace's, which are recorded again and again.
//!
//! Promises upward: an event that was never recorded is done. A recorded one completes without another call, and other queues
//! can wait for it, since its queue is flushed. An event that is said to be done is a synchronisation point: what its work wrote is
//! there for the host and for later commands of any queue. A marker that is known to be done is let go, since it keeps its queue.
//! Asks from below: markers, behind all commands that a queue has.

use crate::connection::{Connection, handle, number};
use crate::layouts::{CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, ClCode};
use crate::result_codes::fault;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
use terrace_device::Fault;

/// An event of terrace's: the marker of its last record, 0 before the first.
#[derive(Default)]
pub struct ReusedEvent {
    marker: Mutex<u64>,
}

impl ReusedEvent {
    /// Runs a call with the marker, under its lock.
    fn with<T>(&self, call: impl FnOnce(&mut u64) -> T) -> T {
        call(&mut self.marker.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records all work that a queue has.
    ///
    /// # Safety
    /// The queue must be live.
    pub unsafe fn record(&self, connection: &Connection, queue: u64) -> Result<(), Fault> {
        self.with(|marker| {
            // SAFETY: the caller promises a live queue.
            let new = unsafe { mark(connection, queue) }?;
            let old = std::mem::replace(marker, new);
            if old != 0 {
                // SAFETY: the reference that this event had. Refused, it is the driver's until the end.
                _ = unsafe { release(connection, old) };
            }
            Ok(())
        })
    }

    pub fn is_done(&self, connection: &Connection) -> Result<bool, Fault> {
        self.with(|marker| {
            if *marker == 0 {
                return Ok(true);
            }
            // SAFETY: the event's own, while the lock is held.
            let done = unsafe { is_done(connection, *marker) }?;
            if done {
                // SAFETY: the reference that this event had.
                _ = unsafe { release(connection, std::mem::take(marker)) };
            }
            Ok(done)
        })
    }

    /// Waits, without the lock; a record meanwhile changes nothing of it.
    pub fn wait(&self, connection: &Connection) -> Result<(), Fault> {
        let retained = self.with(|marker| match *marker {
            0 => Ok(0),
            // SAFETY: the event's own, while the lock is held.
            marker => unsafe { retain(connection, marker) }.map(|()| marker),
        })?;
        if retained == 0 {
            return Ok(());
        }
        // SAFETY: retained above.
        let waited = unsafe { wait(connection, retained) };
        if waited.is_ok() {
            // While the reference is held, no other marker has this handle.
            self.with(|marker| {
                if *marker == retained {
                    // SAFETY: the reference that this event had.
                    _ = unsafe { release(connection, std::mem::take(marker)) };
                }
            });
        }
        // SAFETY: retained above, once.
        _ = unsafe { release(connection, retained) };
        waited
    }

    /// Makes later commands of a queue begin after the recorded work.
    ///
    /// # Safety
    /// The queue must be live.
    pub unsafe fn order(&self, connection: &Connection, queue: u64) -> Result<(), Fault> {
        self.with(|marker| {
            if *marker == 0 {
                return Ok(());
            }
            let waited: *mut c_void = handle(*marker);
            connection.call("clEnqueueBarrierWithWaitList", |core| {
                // SAFETY: the caller promises a live queue; the marker is the event's own, while the lock is held.
                unsafe { (core.clEnqueueBarrierWithWaitList)(handle(queue), 1, &raw const waited, null_mut()) }
            })
        })
    }

    /// Releases the marker.
    pub fn close(&self, connection: &Connection) -> Result<(), Fault> {
        self.with(|marker| {
            if *marker != 0 {
                // SAFETY: the reference that this event had.
                unsafe { release(connection, *marker) }?;
                *marker = 0;
            }
            Ok(())
        })
    }
}

/// A marker behind all work that a queue has, which is flushed.
///
/// # Safety
/// The queue must be live.
pub unsafe fn mark(connection: &Connection, queue: u64) -> Result<u64, Fault> {
    let mut event = null_mut();
    connection.call("clEnqueueMarkerWithWaitList", |core| {
        // SAFETY: the caller promises a live queue; the out parameter lives through the call.
        unsafe { (core.clEnqueueMarkerWithWaitList)(handle(queue), 0, std::ptr::null(), &raw mut event) }
    })?;
    let flushed = connection.call("clFlush", |core| {
        // SAFETY: as above.
        unsafe { (core.clFlush)(handle(queue)) }
    });
    if let Err(fault) = flushed {
        // SAFETY: made above, for this function alone.
        _ = unsafe { release(connection, number(event)) };
        return Err(fault);
    }
    Ok(number(event))
}

/// Takes one more reference.
///
/// # Safety
/// The event must be live.
pub unsafe fn retain(connection: &Connection, event: u64) -> Result<(), Fault> {
    connection.call("clRetainEvent", |core| {
        // SAFETY: the caller promises a live event.
        unsafe { (core.clRetainEvent)(handle(event)) }
    })
}

/// Gives a reference back.
///
/// # Safety
/// The event must be live, and the reference the caller's.
pub unsafe fn release(connection: &Connection, event: u64) -> Result<(), Fault> {
    connection.call("clReleaseEvent", |core| {
        // SAFETY: the caller promises a reference.
        unsafe { (core.clReleaseEvent)(handle(event)) }
    })
}

/// Waits until an event has completed.
///
/// # Safety
/// The event must be live.
pub unsafe fn wait(connection: &Connection, event: u64) -> Result<(), Fault> {
    let waited: *mut c_void = handle(event);
    connection.call("clWaitForEvents", |core| {
        // SAFETY: the caller promises a live event.
        unsafe { (core.clWaitForEvents)(1, &raw const waited) }
    })
}

/// Whether an event has completed, which then orders its work before what this thread does next.
///
/// # Errors
/// The driver's error; that of the work, if it failed.
///
/// # Safety
/// The event must be live.
pub unsafe fn is_done(connection: &Connection, event: u64) -> Result<bool, Fault> {
    // SAFETY: the caller's promise.
    match unsafe { status(connection, event) }? {
        // The answer alone is no synchronisation point of OpenCL's; this wait, which ends at once, is one.
        // SAFETY: as above.
        CL_COMPLETE => unsafe { wait(connection, event) }.map(|()| true),
        status if status < CL_COMPLETE => Err(fault(INFO, status)),
        _ => Ok(false),
    }
}

const INFO: &str = "clGetEventInfo";

/// The status of an event's work: above [`CL_COMPLETE`] before its end, below it an error.
///
/// # Safety
/// The event must be live.
pub unsafe fn status(connection: &Connection, event: u64) -> Result<ClCode, Fault> {
    let mut status: ClCode = 0;
    connection.call(INFO, |core| {
        let (which, room, into) = (CL_EVENT_COMMAND_EXECUTION_STATUS, size_of::<ClCode>(), (&raw mut status).cast());
        // SAFETY: the caller promises a live event; the out parameter has `room` bytes and lives through the call.
        unsafe { (core.clGetEventInfo)(handle(event), which, room, into, null_mut()) }
    })?;
    Ok(status)
}
