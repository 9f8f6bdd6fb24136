//! A transfer as its caller sees it.
//!
//! Promises upward: the buffers come back, with success or with the error; a target that may be half written comes back as
//! [`Torn`] only.
//! Asks from below: a [`Job`], which ends.

use super::job::{End, Job, Report};
use crate::error::DeviceError;
use crate::fault::{Fault, Reason};
use crate::loss::Loss;
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
    pub report: Report,
}

/// A transfer that did not.
pub struct Undone<S, T> {
    /// Why not.
    pub error: DeviceError,
    /// The buffers. `None` where the driver could not say whether a copy is still under way: their memory is never used
    /// again then.
    pub buffers: Option<Box<(S, Torn<T>)>>,
}

impl<S, T> fmt::Display for Undone<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S, T> std::error::Error for Undone<S, T> {
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

impl<S, T> fmt::Debug for Undone<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let back = self.buffers.is_some();
        f.debug_struct("Undone").field("error", &self.error).field("buffers_are_back", &back).finish()
    }
}

impl<T> fmt::Debug for Torn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Torn").field("touched", &self.touched).finish_non_exhaustive()
    }
}

impl<S, T> From<Undone<S, T>> for DeviceError {
    fn from(undone: Undone<S, T>) -> Self {
        undone.error
    }
}

/// The target of a transfer that was not done: it may hold any part of the new bytes.
#[must_use = "the buffer is in here"]
pub struct Torn<T> {
    target: T,
    touched: bool,
}

impl<T> Torn<T> {
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

/// A transfer under way: a future, for any runtime, or [`Transfer::wait`]. It goes on whether it is polled or not.
///
/// Dropped, it is given up: what is not under way yet is not done, and the buffers go when nothing uses them any more.
/// Forgotten, it is done, and the buffers leak.
#[must_use = "dropping it gives the transfer up"]
pub struct Transfer<S, T> {
    /// `None` when the end was picked up.
    state: Option<State<S, T>>,
}

enum State<S, T> {
    Taken {
        job: Arc<Job>,
        loss: Arc<Loss>,
        note: Note<S, T>,
    },
    /// It was refused before the engine took it.
    Refused(Undone<S, T>),
}

/// Counts an end with the buffers that it concerns.
pub(super) type Note<S, T> = fn(&S, &T, &Result<Report, DeviceError>);

impl<S: Send + 'static, T: Send + 'static> Transfer<S, T> {
    pub(super) fn taken(job: Arc<Job>, loss: Arc<Loss>, note: Note<S, T>) -> Self {
        Self { state: Some(State::Taken { job, loss, note }) }
    }

    pub(super) fn refused(error: DeviceError, source: S, target: T) -> Self {
        let buffers = Some(Box::new((source, Torn { target, touched: false })));
        Self { state: Some(State::Refused(Undone { error, buffers })) }
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// [`Undone`], with the buffers: the driver's error, [`DeviceError::Cancelled`], what was wrong with the call.
    pub fn wait(mut self) -> Result<Done<S, T>, Undone<S, T>> {
        match self.state.take() {
            Some(State::Taken { job, loss, note }) => match forked(&loss) {
                Some(undone) => Err(undone),
                None => over(job.wait(), note),
            },
            Some(State::Refused(undone)) => Err(undone),
            None => Err(Undone { error: DeviceError::Cancelled, buffers: None }),
        }
    }

    /// Gives it up, and waits for what is under way. `Ok` when everything had arrived before.
    ///
    /// # Errors
    /// [`Undone`], with the buffers.
    pub fn cancel(self) -> Result<Done<S, T>, Undone<S, T>> {
        if let Some(State::Taken { job, loss, .. }) = &self.state
            && !loss.forked()
        {
            job.cancel();
        }
        self.wait()
    }
}

/// The lanes are not in this child: nothing will end here, and a lock may be held by one of them. The buffers are the
/// parent's.
fn forked<S, T>(loss: &Loss) -> Option<Undone<S, T>> {
    let fault = Fault::of("wait for a transfer", Reason::Forked);
    let error = DeviceError::Lost { device: "the parent's device".into(), fault, block: None };
    loss.forked().then_some(Undone { error, buffers: None })
}

/// What the caller gets of an end.
fn over<S: 'static, T: 'static>(end: End, note: Note<S, T>) -> Result<Done<S, T>, Undone<S, T>> {
    let End { result, keep, touched } = end;
    let buffers = keep.and_then(|keep| keep.downcast::<(S, T)>().ok()).map(|buffers| *buffers);
    if let Some((source, target)) = &buffers {
        note(source, target, &result);
    }
    match (result, buffers) {
        (Ok(report), Some((source, target))) => Ok(Done { source, target, report }),
        (result, buffers) => {
            let error = result.err().unwrap_or(DeviceError::Cancelled);
            let buffers = buffers.map(|(source, target)| Box::new((source, Torn { target, touched })));
            Err(Undone { error, buffers })
        }
    }
}

// Nothing in here is pinned: the buffers lie in the engine's box.
impl<S, T> Unpin for Transfer<S, T> {}

impl<S: Send + 'static, T: Send + 'static> Future for Transfer<S, T> {
    type Output = Result<Done<S, T>, Undone<S, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let over = match &self.state {
            Some(State::Taken { job, loss, note }) => match forked(loss) {
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
            Some(State::Taken { job, loss, .. }) if loss.forked() => std::mem::forget(job),
            Some(State::Taken { job, .. }) => job.let_go(),
            _ => {}
        }
    }
}

impl<S, T> fmt::Debug for Transfer<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}
