//! Tasks: what goes on by itself, polled by whoever drives the disk.
//!
//! Promises upward: a task that was begun ends, whether or not anybody waits for it, unless that is asked for; its result, or
//! that it panicked, is told to who does; a task that becomes ready is polled soon, on a thread that calls [`Executor::run`].
//! Asks from below: somebody who calls [`Executor::run`] after a [`Driver::wake`].
//!
//! Invariants: while `ready` is not empty, `run_expected` is true: somebody is in [`Executor::run`], or was nudged. A thread has tasks of
//! its own (`LOCAL`) only in [`Executor::block_on`], and runs them before it does what blocks.

use crate::join::JoinHandle;
use crate::park::{WakeBatch, block_on};
use async_task::Runnable;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use terrace_guard::{Kept, calm};

/// Runs tasks, and moves what they wait for.
pub trait Driver: Send + Sync {
    /// A task is ready and nobody runs tasks: has [`Executor::run`] called, on another thread or later.
    fn wake(&self);

    /// Its number, where threads that wait may do what tasks wait for.
    fn engine_id(&self) -> Option<usize> {
        None
    }

    /// Does one such thing on this thread, its own first, and tells what came of it. False: there is none.
    fn perform_one(&self) -> bool {
        false
    }

    /// This thread helps no more: what it kept for itself is for others.
    fn stop_helping(&self) {}
}

thread_local! {
    /// The engine that this thread does requests of; 0 for none.
    static DRIVING: Cell<usize> = const { Cell::new(0) };
    /// Whether it polls a task.
    static POLLING: Cell<bool> = const { Cell::new(false) };
    /// The queue whose tasks it keeps for itself when they become ready here; 0 for none.
    static LOCAL_FOR: Cell<usize> = const { Cell::new(0) };
    /// Those tasks.
    static LOCAL: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// Whether this thread is inside of a task: who waits here for other tasks may wait for itself.
pub fn is_in_task() -> bool {
    POLLING.get() || LOCAL_FOR.get() != 0
}

/// Whether this thread will look for requests of that engine before it sleeps: nobody needs to be woken for them.
pub(crate) fn is_driving(engine: usize) -> bool {
    DRIVING.get() == engine
}

/// Says so while something is done.
pub(crate) fn while_driving<T>(engine: usize, work: impl FnOnce() -> T) -> T {
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            DRIVING.set(self.0);
        }
    }
    let _before = Before(DRIVING.replace(engine));
    work()
}

/// A queue of tasks. Clones are the same.
#[derive(Clone, Default)]
pub struct Executor {
    shared: Arc<ExecutorShared>,
}

#[derive(Default)]
struct ExecutorShared {
    /// What is ready in the parent is not touched in a forked child.
    state: Kept<Mutex<RunQueue>>,
    /// The first that is still there runs them.
    drivers: RwLock<Vec<Weak<dyn Driver>>>,
}

#[derive(Default)]
struct RunQueue {
    ready: VecDeque<Runnable>,
    run_expected: bool,
}

impl Executor {
    /// No tasks, and nobody who runs them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says who runs them: of several the first, and when that one is gone the next. Tasks may outlive it, and do not keep it.
    pub fn add_driver(&self, driver: Weak<dyn Driver>) {
        if !self.is_own() {
            return;
        }
        let mut drivers = self.shared.drivers.write().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|driver| driver.strong_count() > 0);
        drivers.push(driver);
        drop(drivers);
        // What became ready before there was anybody.
        if !self.state().ready.is_empty() {
            self.wake();
        }
    }

    /// Whether somebody runs them.
    pub fn has_driver(&self) -> bool {
        self.driver().is_some()
    }

    /// Whether this process made it. In a forked child nothing is begun, and nothing runs: see [`JoinHandle::in_child`].
    pub fn is_own(&self) -> bool {
        self.shared.state.is_own()
    }

    /// Begins a task.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let (end, join) = JoinHandle::new(self.shared.state.process());
        if !self.is_own() {
            return join;
        }
        let queue = self.clone();
        let schedule = move |task| queue.push(task);
        let work = async move {
            end.send(futures_lite::FutureExt::catch_unwind(AssertUnwindSafe(future)).await);
        };
        let (runnable, task) = async_task::spawn(work, schedule);
        runnable.schedule();
        join.with_task(task)
    }

    fn push(&self, task: Runnable) {
        if !self.is_own() {
            return std::mem::forget(task);
        }
        let task = match self.is_local() {
            true => push_local(task),
            false => Some(task),
        };
        let Some(task) = task else { return };
        let mut state = self.state();
        state.ready.push_back(task);
        let run_expected = std::mem::replace(&mut state.run_expected, true);
        drop(state);
        if !run_expected {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(driver) = self.driver() {
            driver.wake();
        }
    }

    fn driver(&self) -> Option<Arc<dyn Driver>> {
        self.shared.drivers.read().unwrap_or_else(PoisonError::into_inner).iter().find_map(Weak::upgrade)
    }

    /// Whether what becomes ready on this thread stays here.
    fn is_local(&self) -> bool {
        LOCAL_FOR.get() == self.id()
    }

    /// No other queue's while this one is there.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Says that [`run`](Self::run) will be called soon: until then nobody is nudged.
    pub fn expect_run(&self) {
        if self.is_own() && !self.is_local() {
            self.state().run_expected = true;
        }
    }

    /// Polls what is ready, until nothing is or `time` is over; then wakes the threads that wait for what ended. Whether
    /// nothing is ready.
    pub fn run(&self, time: Duration) -> bool {
        let (begun, _batch) = (Instant::now(), WakeBatch::begin());
        while self.run_one(0) {
            if begun.elapsed() >= time {
                return false;
            }
        }
        true
    }

    /// Waits on this thread for what `begin` makes. Where the driver is helped, this thread runs the tasks that it begins
    /// and moves their bytes: it wakes nobody. Inside of it, nothing may block for a task that was begun there, but by
    /// `block_on` of the same queue: nobody else runs those tasks before this returns.
    ///
    /// # Panics
    /// When the future does.
    pub fn block_on<F: Future>(&self, begin: impl FnOnce() -> F) -> F::Output {
        if !self.is_own() {
            return block_on(begin(), || false);
        }
        let kept = LOCAL_FOR.get();
        let driver = self.driver().and_then(|driver| driver.engine_id().zip(Some(driver)));
        // Who helps one driver already lets others work for themselves.
        let Some((engine, driver)) = driver.filter(|_| kept == 0 || self.is_local()) else {
            return block_on(begin(), || false);
        };
        LOCAL_FOR.set(self.id());
        // Dropped also when a panic comes through here.
        let _leave = (kept == 0).then(|| StopHelping { tasks: self, driver: &*driver });
        while_driving(engine, || block_on(begin(), || run_local() || driver.perform_one() || self.run_one(0)))
    }

    /// Polls one ready task: number `which` in the queue, counted round. False when none is ready. The order in which tasks
    /// are run is free: simulations choose it.
    pub fn run_one(&self, which: usize) -> bool {
        if !self.is_own() {
            return false;
        }
        let mut state = self.state();
        let index = which % state.ready.len().max(1);
        let Some(task) = state.ready.remove(index) else {
            state.run_expected = false;
            return false;
        };
        drop(state);
        poll(task);
        true
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        if self.is_own() { self.state().ready.len() } else { 0 }
    }

    fn state(&self) -> MutexGuard<'_, RunQueue> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn poll(task: Runnable) {
    let before = POLLING.replace(true);
    // What was polled, or a result that nobody takes, may panic when it is dropped.
    calm(|| _ = task.run());
    POLLING.set(before);
}

/// Keeps a task for this thread. `None`: it does. A thread that is about to end, and whose thread-locals are gone, keeps none.
fn push_local(task: Runnable) -> Option<Runnable> {
    let mut task = Some(task);
    let _ = LOCAL.try_with(|own| own.borrow_mut().extend(task.take()));
    task
}

/// Polls all tasks of this thread's own. False when there was none.
fn run_local() -> bool {
    let mut any = false;
    while let Ok(Some(task)) = LOCAL.try_with(|own| own.borrow_mut().pop_front()) {
        poll(task);
        any = true;
    }
    any
}

/// The end of a thread's help: what it kept for itself is for others.
struct StopHelping<'a> {
    tasks: &'a Executor,
    driver: &'a dyn Driver,
}

impl Drop for StopHelping<'_> {
    fn drop(&mut self) {
        LOCAL_FOR.set(0);
        let left = LOCAL.try_with(RefCell::take).unwrap_or_default();
        left.into_iter().for_each(|task| self.tasks.push(task));
        self.driver.stop_helping();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("ready", &self.ready()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Nudges; helped, as engine number 1.
    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Driver for WakeCount {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn engine_id(&self) -> Option<usize> {
            Some(1)
        }
    }

    #[test]
    fn a_task_ends_though_nobody_waits_and_its_panic_is_told_to_who_does() {
        let (tasks, ran) = (Executor::new(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&ran);
        drop(tasks.spawn(async move { count.fetch_add(1, Ordering::Relaxed) }));
        let panics = tasks.spawn(async { panic!("on purpose") });
        let seven = tasks.spawn(async { 7 });
        assert!(tasks.run(Duration::MAX));
        assert_eq!((ran.load(Ordering::Relaxed), seven.wait()), (1, 7));
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| panics.wait()));
        assert!(caught.is_err());
    }

    #[test]
    fn whoever_runs_tasks_is_nudged_once_until_it_has_run_them() {
        let (tasks, wakes) = (Executor::new(), Arc::new(WakeCount::default()));
        tasks.add_driver(Arc::downgrade(&wakes) as Weak<dyn Driver>);
        let told = || wakes.0.load(Ordering::Relaxed);
        let (_a, _b) = (tasks.spawn(async {}), tasks.spawn(async {}));
        assert_eq!((told(), tasks.ready()), (1, 2));
        assert!(tasks.run(Duration::MAX));
        let _c = tasks.spawn(async {});
        assert_eq!(told(), 2);
        assert!(tasks.run(Duration::MAX));
        tasks.expect_run();
        let _d = tasks.spawn(async {});
        assert_eq!(told(), 2, "who is expected anyway is not nudged");
    }

    #[test]
    fn when_who_runs_tasks_is_gone_the_next_one_does() {
        let (tasks, drivers) = (Executor::new(), [(); 3].map(|()| Arc::new(WakeCount::default())));
        let [first, second, _] = &drivers;
        let told = |driver: &Arc<WakeCount>| driver.0.load(Ordering::Relaxed);
        for driver in [first, second] {
            tasks.add_driver(Arc::downgrade(driver) as Weak<dyn Driver>);
        }
        let _a = tasks.spawn(async {});
        assert!(tasks.run(Duration::MAX));
        assert_eq!((told(first), told(second)), (1, 0));
        let [first, second, third] = drivers;
        drop(first);
        let _b = tasks.spawn(async {});
        assert!(tasks.run(Duration::MAX));
        assert_eq!(told(&second), 1);
        drop(second);
        tasks.add_driver(Arc::downgrade(&third) as Weak<dyn Driver>);
        let _c = tasks.spawn(async {});
        assert_eq!(told(&third), 1);
    }

    #[test]
    fn a_thread_that_waits_runs_what_it_began_and_leaves_the_rest_to_others() {
        let (tasks, wakes) = (Executor::new(), Arc::new(WakeCount::default()));
        tasks.add_driver(Arc::downgrade(&wakes) as Weak<dyn Driver>);
        let told = || wakes.0.load(Ordering::Relaxed);
        let inner = tasks.clone();
        let begin = || async move { inner.spawn(async { 7 }).await + inner.block_on(|| inner.spawn(async { 1 })) };
        assert_eq!((tasks.block_on(begin), told(), tasks.ready()), (8, 0, 0));
        let left = tasks.block_on(|| std::future::ready(tasks.spawn(async { 9 })));
        assert_eq!((told(), tasks.ready()), (1, 1));
        assert!(tasks.run(Duration::MAX));
        assert_eq!(left.wait(), 9);
    }
}
