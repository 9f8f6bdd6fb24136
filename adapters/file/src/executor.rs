//! An executor: spawned tasks, polled by the threads that drive the disk.
//!
//! Promises upward: a spawned task runs to its end, whether or not a handle waits for it, unless it is cancelled; its handle gets
//! its result or its panic; a task that becomes ready is polled soon, by a thread in [`Executor::run`].
//! Asks from below: a [`Driver`] that arranges a call of [`Executor::run`] after [`Driver::wake`].
//!
//! Invariants: while `ready` is not empty, `run_expected` is true: a thread is in [`Executor::run`], or a driver was woken.
//! `LOCAL` of a thread holds tasks only during [`Executor::block_on`]; the thread polls them before it blocks.

use crate::join::JoinHandle;
use crate::park::{WakeBatch, block_on};
use crate::thread::is_worker_thread;
use async_task::Runnable;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use terrace_guard::{ProcessOwned, catch_panic};

/// Arranges that an executor's tasks are polled, and performs the I/O that they wait for.
pub trait Driver: Send + Sync {
    /// Called when a task is ready and no thread polls tasks.
    ///
    /// Must arrange that [`Executor::run`] is called, later or on another thread.
    fn wake(&self);

    /// The engine's id, if threads in [`Executor::block_on`] may perform its requests.
    ///
    /// Unique while the engine lives.
    fn engine_id(&self) -> Option<usize> {
        None
    }

    /// Performs one request on this thread, preferably one that it kept, and delivers the completion.
    ///
    /// Returns false if there is no request to perform.
    fn perform_one(&self) -> bool {
        false
    }

    /// Called when this thread stops performing requests.
    ///
    /// Must hand the request that the thread kept, if any, over to other threads.
    fn stop_helping(&self) {}
}

thread_local! {
    /// The id of the engine whose requests this thread performs; 0 if it performs none.
    static DRIVING: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is polling a task.
    static POLLING: Cell<bool> = const { Cell::new(false) };
    /// The id of the executor whose tasks stay on this thread when they become ready here; 0 if there is none.
    static LOCAL_FOR: Cell<usize> = const { Cell::new(0) };
    /// The ready tasks that stay on this thread; no other thread polls them.
    static LOCAL: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// Whether this thread polls tasks: if it blocks until another task has ended, it may wait for itself.
pub fn is_in_task() -> bool {
    POLLING.get() || LOCAL_FOR.get() != 0
}

/// Whether this thread will perform requests of the engine with this id before it blocks, so that no other thread need
/// be woken for them.
pub(crate) fn is_driving(engine: usize) -> bool {
    DRIVING.get() == engine
}

/// Runs `work` with this thread marked as one that performs requests of the engine with this id.
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

/// An executor: a queue of ready tasks, and the drivers that poll them. Clones share both.
#[derive(Clone, Default)]
pub struct Executor {
    shared: Arc<ExecutorShared>,
}

#[derive(Default)]
struct ExecutorShared {
    /// A forked child leaves the parent's tasks untouched.
    state: ProcessOwned<Mutex<RunQueue>>,
    /// Of these, the first one that is still alive is woken when a task becomes ready.
    drivers: RwLock<Vec<Weak<dyn Driver>>>,
}

#[derive(Default)]
struct RunQueue {
    ready: VecDeque<Runnable>,
    run_expected: bool,
}

impl Executor {
    /// An executor without tasks or drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a driver; it is woken for ready tasks once all drivers added earlier are dropped.
    ///
    /// The executor does not keep drivers alive.
    pub fn add_driver(&self, driver: Weak<dyn Driver>) {
        if !self.is_own() {
            return;
        }
        let mut drivers = self.shared.drivers.write().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|driver| driver.strong_count() > 0);
        drivers.push(driver);
        drop(drivers);
        // Wake the driver for tasks that became ready before there was one.
        if !self.state().ready.is_empty() {
            self.wake();
        }
    }

    /// Whether a driver is alive.
    pub fn has_driver(&self) -> bool {
        self.driver().is_some()
    }

    /// Whether this process created the executor: false in a forked child.
    ///
    /// In a forked child [`spawn`](Self::spawn) begins nothing and no task is polled: see [`JoinHandle::in_child`].
    pub fn is_own(&self) -> bool {
        self.shared.state.is_own()
    }

    /// Spawns a task, and returns its handle.
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

    /// As [`spawn`](Self::spawn), but first polls the future once on this thread.
    ///
    /// No task is needed if the future is ready then. The caller must hold no lock that the future takes.
    pub fn begin<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        if !self.is_own() {
            return self.spawn(future);
        }
        let mut future = Box::pin(futures_lite::FutureExt::catch_unwind(AssertUnwindSafe(future)));
        // No wake is lost: the task is polled again as soon as it is spawned.
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => JoinHandle::ready(outcome),
            Poll::Pending => self.spawn(async { future.await.unwrap_or_else(|panic| resume_unwind(panic)) }),
        }
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

    /// Whether tasks that become ready on this thread stay on it.
    fn is_local(&self) -> bool {
        LOCAL_FOR.get() == self.id()
    }

    /// The executor's id: an address, unique while the executor lives.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Announces that the caller will call [`run`](Self::run): until then no driver is woken.
    pub fn expect_run(&self) {
        if self.is_own() && !self.is_local() {
            self.state().run_expected = true;
        }
    }

    /// Polls ready tasks until none is left (true) or `time` has passed (false).
    ///
    /// Then unparks the threads that wait for their results.
    pub fn run(&self, time: Duration) -> bool {
        let (begun, _batch) = (Instant::now(), WakeBatch::begin());
        while self.run_one(0) {
            if begun.elapsed() >= time {
                return false;
            }
        }
        true
    }

    /// Blocks this thread on the future that `begin` makes.
    ///
    /// If the driver has an [`engine_id`](Driver::engine_id), this thread itself polls the tasks that it spawns during
    /// the call, and performs their requests, without waking other threads. The caller must not block inside `begin` or
    /// the future on such a task, except by `block_on` of the same executor: no other thread polls those tasks before
    /// this call returns.
    ///
    /// # Panics
    /// When the future does.
    pub fn block_on<F: Future>(&self, begin: impl FnOnce() -> F) -> F::Output {
        if !self.is_own() {
            return block_on(begin(), || false);
        }
        let owner = LOCAL_FOR.get();
        let driver = self.driver().and_then(|driver| driver.engine_id().zip(Some(driver)));
        // A thread performs requests for one executor at a time: inside `block_on` of another one it only blocks.
        let Some((engine, driver)) = driver.filter(|_| owner == 0 || self.is_local()) else {
            return block_on(begin(), || false);
        };
        LOCAL_FOR.set(self.id());
        // A guard that hands the tasks kept on this thread over to other threads; it is dropped also when the future
        // panics.
        let _leave = (owner == 0).then(|| StopHelping { tasks: self, driver: &*driver });
        while_driving(engine, || block_on(begin(), || run_local() || driver.perform_one() || self.run_one(0)))
    }

    /// Blocks this thread on the future that `begin` makes, and leaves all tasks to the driver's threads.
    ///
    /// For a future that spawns many tasks: several threads of the driver then poll them at the same time. On a thread that those
    /// tasks may need, such as one of the driver's, this is [`block_on`](Self::block_on).
    pub fn block_apart<F: Future>(&self, begin: impl FnOnce() -> F) -> F::Output {
        match is_in_task() || is_worker_thread() {
            true => self.block_on(begin),
            false => block_on(begin(), || false),
        }
    }

    /// Polls the ready task at index `which` modulo their number; returns false if none is ready.
    ///
    /// Tasks may be polled in any order; simulations choose the order by `which`.
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

    /// The number of ready tasks.
    pub fn ready(&self) -> usize {
        if self.is_own() { self.state().ready.len() } else { 0 }
    }

    fn state(&self) -> MutexGuard<'_, RunQueue> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn poll(task: Runnable) {
    let before = POLLING.replace(true);
    // `run` drops the finished future, and a result that no handle waits for: either drop may panic.
    catch_panic(|| _ = task.run());
    POLLING.set(before);
}

/// Keeps a task on this thread. Returns it if the thread is ending and its thread-locals are destroyed.
fn push_local(task: Runnable) -> Option<Runnable> {
    let mut task = Some(task);
    let _ = LOCAL.try_with(|own| own.borrow_mut().extend(task.take()));
    task
}

/// Polls the ready tasks that stay on this thread until none is left; returns false if there was none.
fn run_local() -> bool {
    let mut any = false;
    while let Ok(Some(task)) = LOCAL.try_with(|own| own.borrow_mut().pop_front()) {
        poll(task);
        any = true;
    }
    any
}

/// Dropped at the end of a thread's [`Executor::block_on`]: hands the tasks and the request that the thread kept over
/// to other threads.
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
mod tests;
