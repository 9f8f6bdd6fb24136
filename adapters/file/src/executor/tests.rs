//! The executor as its drivers and its callers see it.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A driver that counts its wakes. Other threads may perform the requests of its engine, which has id 1.
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
fn a_task_ends_without_a_waiter_and_its_panic_reaches_the_handle() {
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
fn a_driver_is_woken_once_until_the_tasks_have_run() {
    let (tasks, wakes) = (Executor::new(), Arc::new(WakeCount::default()));
    tasks.add_driver(Arc::downgrade(&wakes) as Weak<dyn Driver>);
    let count = || wakes.0.load(Ordering::Relaxed);
    let (_a, _b) = (tasks.spawn(async {}), tasks.spawn(async {}));
    assert_eq!((count(), tasks.ready()), (1, 2));
    assert!(tasks.run(Duration::MAX));
    let _c = tasks.spawn(async {});
    assert_eq!(count(), 2);
    assert!(tasks.run(Duration::MAX));
    tasks.expect_run();
    let _d = tasks.spawn(async {});
    assert_eq!(count(), 2, "a run is expected anyway, so no driver is woken");
}

#[test]
fn the_next_driver_is_woken_after_the_first_is_dropped() {
    let (tasks, drivers) = (Executor::new(), [(); 3].map(|()| Arc::new(WakeCount::default())));
    let [first, second, _] = &drivers;
    let count = |driver: &Arc<WakeCount>| driver.0.load(Ordering::Relaxed);
    for driver in [first, second] {
        tasks.add_driver(Arc::downgrade(driver) as Weak<dyn Driver>);
    }
    let _a = tasks.spawn(async {});
    assert!(tasks.run(Duration::MAX));
    assert_eq!((count(first), count(second)), (1, 0));
    let [first, second, third] = drivers;
    drop(first);
    let _b = tasks.spawn(async {});
    assert!(tasks.run(Duration::MAX));
    assert_eq!(count(&second), 1);
    drop(second);
    tasks.add_driver(Arc::downgrade(&third) as Weak<dyn Driver>);
    let _c = tasks.spawn(async {});
    assert_eq!(count(&third), 1);
}

#[test]
fn a_thread_that_waits_runs_what_it_began_and_leaves_the_rest_to_others() {
    let (tasks, wakes) = (Executor::new(), Arc::new(WakeCount::default()));
    tasks.add_driver(Arc::downgrade(&wakes) as Weak<dyn Driver>);
    let count = || wakes.0.load(Ordering::Relaxed);
    let inner = tasks.clone();
    let begin = || async move { inner.spawn(async { 7 }).await + inner.block_on(|| inner.spawn(async { 1 })) };
    assert_eq!((tasks.block_on(begin), count(), tasks.ready()), (8, 0, 0));
    let left = tasks.block_on(|| std::future::ready(tasks.spawn(async { 9 })));
    assert_eq!((count(), tasks.ready()), (1, 1));
    assert!(tasks.run(Duration::MAX));
    assert_eq!(left.wait(), 9);
}
