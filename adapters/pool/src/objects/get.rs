//! The future of an object.

use super::error::ObjectError;
use super::guard::PooledObject;
use super::inner::{ObjectPoolState, Out};
use super::slot_allocator::SlotAllocator;
use crate::barrier;
use crate::pool_ref::PoolRef;
use crate::waiting::Allocation;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use terrace_core::Request;

/// The future of a [`PooledObject`]; dropping it leaves the queue.
#[must_use = "futures do nothing unless polled"]
pub struct ObjectFuture<'a, T> {
    home: PoolRef<'a, ObjectPoolState<T>>,
    /// The place in the queue, from the first poll that found no object.
    place: Option<Allocation<SlotAllocator>>,
}

impl<'a, T> ObjectFuture<'a, T> {
    pub(super) fn new(home: PoolRef<'a, ObjectPoolState<T>>) -> Self {
        Self { home, place: None }
    }

    fn own(&self, object: Out<T>) -> PooledObject<'a, T> {
        PooledObject::new(self.home.clone(), object)
    }
}

impl<T> fmt::Debug for ObjectFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectFuture").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<'a, T> Future for ObjectFuture<'a, T> {
    type Output = Result<PooledObject<'a, T>, ObjectError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.place.is_none() {
            let own = self.home.take_own();
            match own.map_or_else(|| self.home.take_uncounted(), Ok) {
                Err(ObjectError::Exhausted { .. }) => {}
                taken => return Poll::Ready(taken.map(|object| self.own(object))),
            }
            self.place = Some(self.home.waiters.allocate(Request::new(1)));
        }
        let Some(place) = self.place.as_mut() else { return Poll::Pending };
        let granted = match Pin::new(place).poll(context) {
            Poll::Ready(granted) => granted,
            Poll::Pending => {
                // A slot may have become available before this call was in the queue. Serving wakes the tasks that it serves.
                let _ = barrier::heavy();
                self.home.settle();
                return Poll::Pending;
            }
        };
        self.place = None;
        let taken = match granted {
            Ok(block) => self.home.granted(&block.into_block()),
            Err(_) => Err(ObjectError::Closed),
        };
        Poll::Ready(taken.map(|object| self.own(object)))
    }
}
