//! The thread that polls a pool's streams while requests wait for memory.
//!
//! Promises upward: there is a thread only while something waits; it refers to the pool only while it looks, so that the pool ends with its
//! user's last handle; a keeper that it drops may end requests or begin some.
//! Asks from below: a look at the streams, which says what is left to do, and when to look again.

use super::DeferredActions;
use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

thread_local! {
    /// The [`Follower`] whose state this thread has locked, which is that one's; null without one.
    static LOOKS: Cell<*const Follower> = const { Cell::new(ptr::null()) };
}

/// What is left to do after a look at the streams, and the time until the next, if anything waits.
pub(super) type Look = (DeferredActions, Option<Duration>);

/// The thread that polls streams while requests wait: its state, which outlives the pool.
#[derive(Default)]
pub(super) struct Follower {
    state: Mutex<FollowerState>,
    changed: Condvar,
}

#[derive(Default)]
struct FollowerState {
    /// Whether requests wait.
    wanted: bool,
    /// Whether there is a thread.
    running: bool,
}

impl Follower {
    fn state(&self) -> MutexGuard<'_, FollowerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, which calls `look`, or ends it, as the queue wants it now.
    pub(super) fn update<L: FnMut() -> Option<Look> + Send + 'static>(
        self: &Arc<Self>,
        wanted: impl FnOnce() -> bool,
        look: impl FnOnce() -> L,
    ) {
        if ptr::eq(LOOKS.get(), &**self) {
            // A keeper, which that thread drops: it has the state locked, and sees what the keeper did to the queue.
            return;
        }
        let mut state = self.state();
        state.wanted = wanted();
        if state.wanted && !state.running {
            let (follower, look) = (Arc::clone(self), look());
            let thread = thread::Builder::new().name("terrace-waiting".into());
            state.running = thread.spawn(move || follower.follow(look)).is_ok();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Looks until nothing waits. `look` refers to the pool, and is called with the state locked only.
    fn follow(&self, mut look: impl FnMut() -> Option<Look>) {
        let ends = FollowerEnds(self);
        let mut state = self.state();
        while state.wanted {
            LOOKS.set(self);
            let looked = look();
            LOOKS.set(ptr::null());
            let Some((left, pause)) = looked else { break };
            state.wanted &= pause.is_some();
            drop(state);
            left.act();
            state = self.state();
            let Some(pause) = pause.filter(|_| state.wanted) else { continue };
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        // Under the lock that saw it end: a request that comes next starts another.
        (state.wanted, state.running) = (false, false);
        std::mem::forget(ends);
    }
}

/// Notes that the thread ends by a panic: the next request starts another.
struct FollowerEnds<'a>(&'a Follower);

impl Drop for FollowerEnds<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.wanted, state.running) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::DeferredActions;
    use super::Follower;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    /// The thread that looks drops the last reference to a stream, whose keeper ends a request.
    #[test]
    fn what_a_look_does_to_the_queue_is_seen_without_the_lock() {
        let follower = Arc::new(Follower::default());
        follower.state().wanted = true;
        let looks = Cell::new(0);
        follower.follow(|| {
            looks.set(looks.get() + 1);
            follower.update(|| unreachable!("it has the state locked"), || || None);
            Some((DeferredActions::default(), None))
        });
        assert_eq!(looks.get(), 1);
        follower.update(|| false, || || None);
    }

    /// A keeper of one device may ask another for memory: that one's thread is started.
    #[test]
    fn another_pool_s_thread_is_started_in_a_look() {
        let [one, other] = [(); 2].map(|()| Arc::new(Follower::default()));
        one.state().wanted = true;
        let (told, started) = std::sync::mpsc::channel();
        one.follow(|| {
            let told = told.clone();
            let look = move || {
                told.send(()).expect("the test waits");
                None
            };
            other.update(|| true, || look);
            Some((DeferredActions::default(), None))
        });
        started.recv_timeout(Duration::from_secs(10)).expect("the other's thread looks");
        assert!(!one.state().running);
    }
}
