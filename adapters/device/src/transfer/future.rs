//! A transfer as its caller sees it.
//!
//! Promises upward: the buffers come back, with success or with the error; a target that may be half written comes back as
//! [`Incomplete`] only.
//! Asks from below: a [`Job`], which ends.

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

/// A transfer that moved all its bytes.
pub struct Done<S, T> {
    /// Where the bytes came from.
    pub source: S,
    /// Where they are now.
    pub target: T,
    /// How it went.
    pub report: TransferReport,
}

/// A transfer that failed or was cancelled.
pub struct TransferError<S, T> {
    /// Why not.
    pub error: DeviceError,
    /// The buffers. `None` where the driver could not say whether a copy is still in flight: their memory is never used
    /// again then.
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

// Not the buffers: they may have gigabytes of elements.
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

/// The target of a transfer that was not done: it may hold any part of the new bytes.
#[must_use = "the buffer is in here"]
pub struct Incomplete<T> {
    target: T,
    touched: bool,
}

impl<T> Incomplete<T> {
    /// Whether nothing was written: the bytes are the old ones.
    pub fn is_whole(&self) -> bool {
        !self.touched
    }

    /// The target when nothing was written.
    ///
    /// # Errors
    /// Itself, when something may have been.
    pub fn whole(self) -> Result<T, Self> {
        if self.touched { Err(self) } else { Ok(self.target) }
    }

    /// The target, whatever it holds: where the transfer was to write, any mixture of old and new bytes.
    pub fn into_inner(self) -> T {
        self.target
    }
}

/// A transfer in flight: a future for any runtime, or [`Transfer::wait`].
///
/// It proceeds whether it is polled or not.
///
/// Dropped, it is given up: what is not under way yet is not done, and the buffers go when nothing uses them any more.
/// Forgotten, it is done, and the buffers leak.
#[must_use = "dropping it gives the transfer up"]
pub struct Transfer<S, T> {
    /// `None` when the end was picked up.
    state: Option<TransferState<S, T>>,
}

enum TransferState<S, T> {
    Taken {
        job: Arc<Job>,
        health: Arc<DeviceHealth>,
        note: Note<S, T>,
    },
    /// It was refused before the engine took it.
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

    /// Waits until it is over.
    ///
    /// # Errors
    /// [`TransferError`], with the buffers: the driver's error, [`DeviceError::Cancelled`], what was wrong with the call.
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

    /// Gives it up, and waits for what is in flight. `Ok` when everything had arrived before.
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

/// The lanes are not in this child: nothing will end here, and a lock may be held by one of them. The buffers are the
/// parent's.
fn forked<S, T>(health: &DeviceHealth) -> Option<TransferError<S, T>> {
    let fault = Fault::of("wait for a transfer", FaultReason::Forked);
    let error = DeviceError::Lost { device: "the parent's device".into(), fault, block: None };
    health.forked().then_some(TransferError { error, buffers: None })
}

/// What the caller gets of an end.
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

// Nothing in here is pinned: the buffers lie in the engine's box.
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
            // Refused, or polled after its end.
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
