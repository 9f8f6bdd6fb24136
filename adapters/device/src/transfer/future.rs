//! [`Transfer`]: the future of a transfer, and its results.
//!
//! Promises upward: the buffers come back, with success or with the error; a target that may be partly written comes
//! back only as [`Incomplete`].
//! Asks from below: a [`Job`] that ends.

use super::job::{Job, JobEnd};
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::health::DeviceHealth;
use crate::meter::TransferReport;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A transfer that moved all of its bytes.
pub struct Done<S, T> {
    /// The buffer that the bytes were copied from.
    pub source: S,
    /// The buffer that the bytes were copied to.
    pub target: T,
    /// Bytes, pieces, retries and time of the transfer.
    pub report: TransferReport,
}

/// A transfer that failed or was cancelled.
pub struct TransferError<S, T> {
    /// Why the transfer did not complete.
    pub error: DeviceError,
    /// The buffers. `None` if the driver could not say whether a copy is still in flight: their memory is then never
    /// reused.
    pub buffers: Option<Box<(S, Incomplete<T>)>>,
}

impl<S, T> fmt::Display for TransferError<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S, T> std::error::Error for TransferError<S, T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

// Debug output omits the buffers, which may have gigabytes of elements.
impl<S, T> fmt::Debug for Done<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").field("report", &self.report).finish_non_exhaustive()
    }
}

impl<S, T> fmt::Debug for TransferError<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let back = self.buffers.is_some();
        f.debug_struct("TransferError").field("error", &self.error).field("buffers_are_back", &back).finish()
    }
}

impl<T> fmt::Debug for Incomplete<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incomplete").field("touched", &self.touched).finish_non_exhaustive()
    }
}

impl<S, T> From<TransferError<S, T>> for DeviceError {
    fn from(undone: TransferError<S, T>) -> Self {
        undone.error
    }
}

/// The target of a transfer that did not complete: any part of it may have been written.
#[must_use = "the buffer is in here"]
pub struct Incomplete<T> {
    target: T,
    touched: bool,
}

impl<T> Incomplete<T> {
    /// Whether nothing was written, so that the target has its old bytes.
    pub fn is_whole(&self) -> bool {
        !self.touched
    }

    /// The target, if nothing was written.
    ///
    /// # Errors
    /// `self`, if something may have been written.
    pub fn whole(self) -> Result<T, Self> {
        if self.touched { Err(self) } else { Ok(self.target) }
    }

    /// The target, whatever it holds: in the range of the transfer, any mixture of old and new bytes.
    pub fn into_inner(self) -> T {
        self.target
    }
}

/// A transfer in flight: a future for any runtime, or [`Transfer::wait`].
///
/// It proceeds whether it is polled or not.
///
/// Dropping it cancels the transfer: pieces not yet issued are not copied, and the buffers are dropped once no copy
/// uses them. Forgetting it (`mem::forget`) lets the transfer complete, and leaks the buffers.
#[must_use = "dropping it gives the transfer up"]
pub struct Transfer<S, T> {
    /// `None` once the result was taken.
    state: Option<TransferState<S, T>>,
}

enum TransferState<S, T> {
    Taken {
        job: Arc<Job>,
        health: Arc<DeviceHealth>,
        note: Note<S, T>,
    },
    /// The transfer was refused before the engine took it.
    Refused(TransferError<S, T>),
}

/// Counts a transfer's end in the meters of its buffers.
pub(super) type Note<S, T> = fn(&S, &T, &Result<TransferReport, DeviceError>);

impl<S: Send + 'static, T: Send + 'static> Transfer<S, T> {
    pub(super) fn taken(job: Arc<Job>, health: Arc<DeviceHealth>, note: Note<S, T>) -> Self {
        Self { state: Some(TransferState::Taken { job, health, note }) }
    }

    pub(super) fn refused(error: DeviceError, source: S, target: T) -> Self {
        let buffers = Some(Box::new((source, Incomplete { target, touched: false })));
        Self { state: Some(TransferState::Refused(TransferError { error, buffers })) }
    }

    /// Waits until the transfer has ended.
    ///
    /// # Errors
    /// [`TransferError`], with the buffers: the driver's error, [`DeviceError::Cancelled`], or the error of an invalid
    /// call.
    pub fn wait(mut self) -> Result<Done<S, T>, TransferError<S, T>> {
        match self.state.take() {
            Some(TransferState::Taken { job, health, note }) => match forked(&health) {
                Some(undone) => Err(undone),
                None => over(job.wait(), note),
            },
            Some(TransferState::Refused(undone)) => Err(undone),
            None => Err(TransferError { error: DeviceError::Cancelled, buffers: None }),
        }
    }

    /// Cancels the transfer, and waits for its pieces in flight. `Ok` if all pieces had been issued before.
    ///
    /// # Errors
    /// [`TransferError`], with the buffers.
    pub fn cancel(self) -> Result<Done<S, T>, TransferError<S, T>> {
        if let Some(TransferState::Taken { job, health, .. }) = &self.state
            && !health.forked()
        {
            job.cancel();
        }
        self.wait()
    }
}

/// The error of a transfer in a forked child, where no lane runs, so that no transfer ends, and a lane may hold a lock
/// for ever. The buffers belong to the parent process.
fn forked<S, T>(health: &DeviceHealth) -> Option<TransferError<S, T>> {
    let fault = Fault::of("wait for a transfer", FaultReason::Forked);
    let error = DeviceError::Lost { device: "the parent's device".into(), fault, block: None };
    health.forked().then_some(TransferError { error, buffers: None })
}

/// Converts a job's end to the result for the caller.
fn over<S: 'static, T: 'static>(end: JobEnd, note: Note<S, T>) -> Result<Done<S, T>, TransferError<S, T>> {
    let JobEnd { result, keep, touched } = end;
    let buffers = keep.and_then(|keep| keep.downcast::<(S, T)>().ok()).map(|buffers| *buffers);
    if let Some((source, target)) = &buffers {
        note(source, target, &result);
    }
    match (result, buffers) {
        (Ok(report), Some((source, target))) => Ok(Done { source, target, report }),
        (result, buffers) => {
            let error = result.err().unwrap_or(DeviceError::Cancelled);
            let buffers = buffers.map(|(source, target)| Box::new((source, Incomplete { target, touched })));
            Err(TransferError { error, buffers })
        }
    }
}

// No field is pinned: the buffers lie in a box that the engine owns.
impl<S, T> Unpin for Transfer<S, T> {}

impl<S: Send + 'static, T: Send + 'static> Future for Transfer<S, T> {
    type Output = Result<Done<S, T>, TransferError<S, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let over = match &self.state {
            Some(TransferState::Taken { job, health, note }) => match forked(health) {
                Some(undone) => Err(undone),
                None => match job.poll(context.waker()) {
                    Some(end) => over(end, *note),
                    None => return Poll::Pending,
                },
            },
            // Refused before it began, or polled after its end.
            _ => {
                let state = self.state.take();
                return Poll::Ready(Self { state }.wait());
            }
        };
        self.state = None;
        Poll::Ready(over)
    }
}

impl<S, T> Drop for Transfer<S, T> {
    fn drop(&mut self) {
        match self.state.take() {
            Some(TransferState::Taken { job, health, .. }) if health.forked() => std::mem::forget(job),
            Some(TransferState::Taken { job, .. }) => job.let_go(),
            _ => {}
        }
    }
}

impl<S, T> fmt::Debug for Transfer<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}
