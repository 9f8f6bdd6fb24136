//! Tasks: what goes on by itself, polled by whoever drives the disk.
//!
//! Promises upward: a task that was begun ends, whether or not anybody waits for it, unless that is asked for; its result, or
//! that it panicked, is told to who does; a task that becomes ready is polled soon, on a thread that calls [`Tasks::run`].
//! Asks from below: somebody who calls [`Tasks::run`] after a [`Driver::nudge`].
//!
//! Invariant: while `ready` is not empty, `driven` is true: somebody is in [`Tasks::run`], or was nudged.

use async_task::Runnable;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Runs tasks, and moves what they wait for.
pub trait Driver: Send + Sync {
    /// A task is ready and nobody runs tasks: has [`Tasks::run`] called, on another thread or later.
    fn nudge(&self);

    /// Its number, where threads that wait may do what tasks wait for.
    fn helped(&self) -> Option<usize> {
        None
    }

    /// Whether something waits for a thread.
    fn wants_help(&self) -> bool {
        false
    }

    /// Does one such thing on this thread, and tells what came of it. False: there is none.
    fn help(&self) -> bool {
        false
    }
}

thread_local! {
    /// The engine that this thread does requests of; 0 for none.
    static DRIVES: Cell<usize> = const { Cell::new(0) };
    /// Whether it polls a task.
    static POLLS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside of a task: who waits here for other tasks may wait for itself.
pub fn is_in_task() -> bool {
    POLLS.get()
}

/// Whether this thread will look for requests of that engine before it sleeps: nobody needs to be woken for them.
pub(crate) fn drives(engine: usize) -> bool {
    DRIVES.get() == engine
}

/// Says so while something is done.
pub(crate) fn driving<T>(engine: usize, work: impl FnOnce() -> T) -> T {
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            DRIVES.set(self.0);
        }
    }
    let _before = Before(DRIVES.replace(engine));
    work()
}

/// A queue of tasks. Clones are the same.
#[derive(Clone, Default)]
pub struct Tasks {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The first that is still there runs them.
    drivers: RwLock<Vec<Weak<dyn Driver>>>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Runnable>,
    driven: bool,
}

impl Tasks {
    /// No tasks, and nobody who runs them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says who runs them: of several the first, and when that one is gone the next. Tasks may outlive it, and do not keep it.
    pub fn driven_by(&self, driver: Weak<dyn Driver>) {
        let mut drivers = self.shared.drivers.write().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|driver| driver.strong_count() > 0);
        drivers.push(driver);
        drop(drivers);
        // What became ready before there was anybody.
        if !self.state().ready.is_empty() {
            self.nudge();
        }
    }

    /// Begins a task.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Join<T> {
        let queue = self.clone();
        let schedule = move |task| queue.push(task);
        let caught = futures_lite::FutureExt::catch_unwind(AssertUnwindSafe(future));
        let (runnable, task) = async_task::spawn(caught, schedule);
        runnable.schedule();
        Join { task: Some(task), cancels: false }
    }

    fn push(&self, task: Runnable) {
        let mut state = self.state();
        state.ready.push_back(task);
        let driven = std::mem::replace(&mut state.driven, true);
        drop(state);
        if !driven {
            self.nudge();
        }
    }

    fn nudge(&self) {
        if let Some(driver) = self.driver() {
            driver.nudge();
        }
    }

    fn driver(&self) -> Option<Arc<dyn Driver>> {
        self.shared.drivers.read().unwrap_or_else(PoisonError::into_inner).iter().find_map(Weak::upgrade)
    }

    /// Says that [`run`](Self::run) will be called soon: until then nobody is nudged.
    pub fn expect(&self) {
        self.state().driven = true;
    }

    /// Polls what is ready, until nothing is or `time` is over. Whether nothing is.
    pub fn run(&self, time: Duration) -> bool {
        let begun = Instant::now();
        while self.run_one(0) {
            if begun.elapsed() >= time {
                return false;
            }
        }
        true
    }

    /// Begins something and waits for its end on this thread, which helps meanwhile where the driver wants help: a thread
    /// that moves its own bytes wakes nobody.
    ///
    /// # Panics
    /// When the task did.
    pub fn block_on<T>(&self, begin: impl FnOnce() -> Join<T>) -> T {
        let driver = self.driver().and_then(|driver| driver.helped().zip(Some(driver)));
        let Some((engine, driver)) = driver else {
            return begin().wait();
        };
        self.expect();
        // Dropped also when a task's panic comes through here.
        let _leave = Leave { tasks: self, driver: &*driver };
        driving(engine, || {
            let mut join = std::pin::pin!(begin());
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            let mut context = Context::from_waker(&waker);
            loop {
                if let Poll::Ready(result) = join.as_mut().poll(&mut context) {
                    return result;
                }
                if !self.run_one(0) && !driver.help() {
                    std::thread::park();
                }
            }
        })
    }

    /// Polls one ready task: number `which` in the queue, counted round. False when none is ready. The order in which tasks
    /// are run is free: simulations choose it.
    pub fn run_one(&self, which: usize) -> bool {
        let mut state = self.state();
        let index = which % state.ready.len().max(1);
        let Some(task) = state.ready.remove(index) else {
            state.driven = false;
            return false;
        };
        drop(state);
        let before = POLLS.replace(true);
        task.run();
        POLLS.set(before);
        true
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.state().ready.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a thread's help: what others were not woken for, as it was there, is theirs now.
struct Leave<'a> {
    tasks: &'a Tasks,
    driver: &'a dyn Driver,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.tasks.state();
        state.driven = !state.ready.is_empty();
        let left = state.driven;
        drop(state);
        if left || self.driver.wants_help() {
            self.driver.nudge();
        }
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("ready", &self.ready()).finish_non_exhaustive()
    }
}

/// The end of a task. Dropped, the task goes on.
#[must_use = "the task goes on, but nobody learns what came of it"]
pub struct Join<T> {
    task: Option<async_task::Task<std::thread::Result<T>>>,
    /// Whether the task does not go on.
    cancels: bool,
}

impl<T> Join<T> {
    /// Waits on this thread.
    ///
    /// # Panics
    /// When the task did. On a thread that runs tasks it may wait for itself: there, `await` it.
    pub fn wait(self) -> T {
        futures_lite::future::block_on(self)
    }

    /// Dropped, the task is not polled again: what it holds is dropped, where tasks are run.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels = true;
        self
    }
}

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let task = self.task.as_mut().expect("a task is not polled after its end");
        let result = std::task::ready!(Pin::new(task).poll(context));
        self.task = None;
        match result {
            Ok(value) => Poll::Ready(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<T> Drop for Join<T> {
    fn drop(&mut self) {
        match self.task.take() {
            Some(task) if self.cancels => drop(task),
            Some(task) => task.detach(),
            None => {}
        }
    }
}

impl<T> fmt::Debug for Join<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Driver for Counts {
        fn nudge(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_ends_though_nobody_waits_and_its_panic_is_told_to_who_does() {
        let (tasks, ran) = (Tasks::new(), Arc::new(AtomicUsize::new(0)));
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
        let (tasks, nudges) = (Tasks::new(), Arc::new(Counts::default()));
        tasks.driven_by(Arc::downgrade(&nudges) as Weak<dyn Driver>);
        let told = || nudges.0.load(Ordering::Relaxed);
        let (_a, _b) = (tasks.spawn(async {}), tasks.spawn(async {}));
        assert_eq!((told(), tasks.ready()), (1, 2));
        assert!(tasks.run(Duration::MAX));
        let _c = tasks.spawn(async {});
        assert_eq!(told(), 2);
        assert!(tasks.run(Duration::MAX));
        tasks.expect();
        let _d = tasks.spawn(async {});
        assert_eq!(told(), 2, "who is expected anyway is not nudged");
    }

    #[test]
    fn when_who_runs_tasks_is_gone_the_next_one_does() {
        let (tasks, drivers) = (Tasks::new(), [(); 3].map(|()| Arc::new(Counts::default())));
        let [first, second, _] = &drivers;
        let told = |driver: &Arc<Counts>| driver.0.load(Ordering::Relaxed);
        for driver in [first, second] {
            tasks.driven_by(Arc::downgrade(driver) as Weak<dyn Driver>);
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
        tasks.driven_by(Arc::downgrade(&third) as Weak<dyn Driver>);
        let _c = tasks.spawn(async {});
        assert_eq!(told(&third), 1);
    }
}
