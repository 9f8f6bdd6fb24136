//! [`Fences`] as the core's arena uses them: its trait [`Fence`].

use super::Fences;
use super::wait::may_wait;
use crate::backend::Backend;
use std::sync::atomic::Ordering;
use terrace_core::{Fence, FenceState, Owner};

impl<B: Backend> Fence for Fences<B> {
    fn record(&mut self, owner: Owner) -> u64 {
        if self.is_sole(owner) {
            self.0.dirty.store(true, Ordering::Relaxed);
            return 0;
        }
        self.table().next(owner.0)
    }

    fn peek(&mut self, owner: Owner, ticket: u64) -> FenceState {
        if self.0.health.check().is_err() {
            return FenceState::Failed;
        }
        if self.is_sole(owner) { FenceState::Ready } else { self.state(&self.table(), owner, ticket) }
    }

    fn poll(&mut self, owner: Owner, ticket: u64) -> FenceState {
        let known = self.peek(owner, ticket);
        if known == FenceState::Pending { self.reached(owner, ticket, false) } else { known }
    }

    fn wait(&mut self, owner: Owner, ticket: u64) -> FenceState {
        let known = self.peek(owner, ticket);
        if known == FenceState::Pending { self.reached(owner, ticket, may_wait()) } else { known }
    }
}
