//! A stream: a command queue whose command buffers run one after another.
//!
//! ```text
//!   command buffer n:  wait for n-1 │ work │ signal n    by the stream's shared event
//!                                                  │
//!   its completion handler, on Metal's thread:     └──►  Submissions::finish(n)
//! ```
//!
//! Metal does not track memory here, and would let two command buffers of a queue overlap. The event keeps them apart, and other streams
//! wait for its values. A command buffer that fails may never signal, so its handler does.
//!
//! Promises upward: work is done in the order of [`MetalStream::submit`], whatever thread calls; [`Submissions`] tells a failure, and no
//! stream waits for failed work for ever.
//! Asks from below: that Metal calls the completion handler of each command buffer that is committed.

use crate::rules::command_fault;
use crate::submissions::Submissions;
use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandQueue, MTLDevice, MTLEvent, MTLSharedEvent};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use terrace_device::{Fault, FaultReason};

/// A command buffer as Metal's calls take it.
pub type MetalCommands = ProtocolObject<dyn MTLCommandBuffer>;

/// A stream.
pub struct MetalStream {
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// Its value is the number of the last submission that is done.
    event: Retained<ProtocolObject<dyn MTLSharedEvent>>,
    submissions: Arc<Submissions>,
}

impl MetalStream {
    /// A stream over a queue; all streams of a device share `failure`.
    pub fn new(
        queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
        failure: &Arc<OnceLock<Fault>>,
    ) -> Result<Self, Fault> {
        let made = autoreleasepool(|_| queue.device().newSharedEvent());
        let event = made.ok_or(Fault::of("newSharedEvent", FaultReason::Other))?;
        Ok(Self { queue, event, submissions: Arc::new(Submissions::new(Arc::clone(failure))) })
    }

    /// The submissions so far.
    pub fn submissions(&self) -> &Submissions {
        &self.submissions
    }

    /// Puts on the stream what `encode` encodes. If that fails or panics, nothing of it runs.
    ///
    /// Blocks while another thread encodes for the stream, and while as many command buffers are in flight as the queue can have (64, unless
    /// its maker chose another number).
    ///
    /// # Errors
    /// [`FaultReason::Unsupported`] inside another `encode` of the stream; [`FaultReason::Other`] if `encode` committed the command buffer.
    pub fn submit(&self, encode: impl FnOnce(&MetalCommands) -> Result<(), Fault>) -> Result<(), Fault> {
        self.submissions.check()?;
        autoreleasepool(|_| {
            let encoding = self.submissions.encode()?;
            let commands = self.queue.commandBuffer().ok_or(Fault::of("commandBuffer", FaultReason::Other))?;
            let number = encoding.number();
            commands.encodeWaitForEvent_value(event(&self.event), number - 1);
            // Until the commit the command buffer has no place in the queue: left alone, nothing waits for it.
            encode(&commands)?;
            let status = commands.status();
            if status != MTLCommandBufferStatus::NotEnqueued && status != MTLCommandBufferStatus::Enqueued {
                return Err(Fault::of("commit", FaultReason::Other));
            }
            commands.encodeSignalEvent_value(event(&self.event), number);
            self.tell_end(&commands, number);
            encoding.begin();
            commands.commit();
            Ok(())
        })
    }

    /// Makes later work of this stream wait, on the device, for submission `number` of another.
    pub fn wait_for(&self, other: &Self, number: u64) -> Result<(), Fault> {
        self.submit(|commands| {
            commands.encodeWaitForEvent_value(event(&other.event), number);
            Ok(())
        })
    }

    /// Has the end of a command buffer told to the submissions.
    fn tell_end(&self, commands: &MetalCommands, number: u64) {
        let (submissions, event) = (Arc::clone(&self.submissions), self.event.clone());
        let done = RcBlock::new(move |commands: NonNull<MetalCommands>| {
            // SAFETY: Metal passes the command buffer, which lives until the handler returns.
            let commands = unsafe { commands.as_ref() };
            if commands.status() == MTLCommandBufferStatus::Error {
                let code = commands.error().map_or(0, |error| error.code());
                submissions.fail(command_fault(i32::try_from(code).unwrap_or(0)), || {
                    if event.signaledValue() < number {
                        event.setSignaledValue(number);
                    }
                });
            }
            submissions.finish(number);
        });
        // SAFETY: the block is valid, and Metal keeps a copy, which a thread of Metal's runs once: it captures counts and a shared event,
        // both `Sync`, and a number, and does not unwind.
        unsafe { commands.addCompletedHandler(RcBlock::as_ptr(&done)) };
    }
}

/// A shared event as the event that it is.
fn event(shared: &ProtocolObject<dyn MTLSharedEvent>) -> &ProtocolObject<dyn MTLEvent> {
    ProtocolObject::from_ref(shared)
}
