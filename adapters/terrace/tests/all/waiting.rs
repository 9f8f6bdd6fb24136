//! Wakers that use the pool, own what they wake, or panic: none finds the pool locked, and none keeps another from being
//! woken.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use terrace::engine::layer::Limit;
use terrace::engine::pool::{Buckets, SizeClasses};
use terrace::engine::shared::OwnedBlock;
use terrace::engine::waiting::{Allocation, WaitingPool};
use terrace::engine::{AllocError, Request};
use terrace_tests::waker::{Call, waker};

type Blocks = Limit<Buckets<'static, 2>>;
type Pool = WaitingPool<Blocks>;
type Block = OwnedBlock<Pool>;

/// A pool of `bytes` bytes in blocks of 64 and 128, all of them in one block that is held.
fn full_pool(bytes: u64) -> (Pool, Block) {
    let words: Vec<_> = (0..Buckets::words(&[4, 4])).map(|_| terrace::engine::sync::AtomicUsize::new(0)).collect();
    let steps = SizeClasses::new(64, 1).expect("valid");
    let buckets = Buckets::new(steps, [4, 4], 0, words.leak()).expect("enough words");
    let pool = WaitingPool::new(Limit::new(buckets, bytes));
    let held = pool.try_allocate(Request::new(bytes)).expect("room");
    (pool, held)
}

fn poll(future: &mut Allocation<Blocks>, waker: &Waker) -> Option<Result<Block, AllocError>> {
    match Pin::new(future).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// A future that waits for 64 bytes.
fn wait(pool: &Pool, waker: &Waker) -> Allocation<Blocks> {
    let mut future = pool.allocate(Request::new(64));
    assert!(poll(&mut future, waker).is_none(), "nothing is free");
    future
}

/// The block that a future was granted.
fn granted(future: &mut Allocation<Blocks>) -> Block {
    poll(future, Waker::noop()).expect("granted").expect("served")
}

fn assert_at_rest(pool: &Pool) {
    assert_eq!((pool.waiting(), pool.stats().live_blocks), (0, 0));
    drop(pool.try_allocate(Request::new(64)).expect("room, and no lock held"));
}

/// Calls something on another thread: a deadlock there fails the test instead of hanging it.
fn without_deadlock(test: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _done = sender;
        test();
    });
    let ended = receiver.recv_timeout(Duration::from_secs(60)) != Err(mpsc::RecvTimeoutError::Timeout);
    assert!(ended, "a lock is held for ever");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// What the panic of a call says.
fn panic_of(call: impl FnOnce()) -> &'static str {
    let caught = catch_unwind(AssertUnwindSafe(call)).expect_err("a waker panics");
    caught.downcast_ref::<&'static str>().expect("a waker's own words")
}

/// Counts what its wakers hear.
#[derive(Default)]
struct Heard([AtomicUsize; 3]);

impl Heard {
    fn note(&self, call: Call) {
        self.0[call as usize].fetch_add(1, Ordering::SeqCst);
    }

    fn of(&self, call: Call) -> usize {
        self.0[call as usize].load(Ordering::SeqCst)
    }
}

/// A waker that counts its calls, and panics the first time one of them is made.
fn panicking(call: Call) -> (Waker, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let noted = heard.clone();
    let waker = waker(move |now| {
        noted.note(now);
        if now == call && noted.of(call) == 1 {
            panic_any(["clone", "wake", "drop"][call as usize]);
        }
    });
    (waker, heard)
}

fn counting() -> (Waker, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let noted = heard.clone();
    (waker(move |call| noted.note(call)), heard)
}

#[test]
fn a_waker_may_use_the_pool_in_each_of_its_calls() {
    without_deadlock(|| {
        let (pool, held) = full_pool(64);
        let heard = Arc::new(Heard::default());
        let using = || {
            let (pool, heard) = (pool.clone(), heard.clone());
            waker(move |call| {
                heard.note(call);
                assert!(pool.stats().live_blocks <= 1);
                drop(pool.try_allocate(Request::new(64)));
                let mut future = pool.allocate(Request::new(64));
                drop(poll(&mut future, Waker::noop()));
            })
        };
        let (first, second) = (using(), using());
        let mut future = wait(&pool, &first);
        assert!(poll(&mut future, &second).is_none());
        assert_eq!((heard.of(Call::Clone), heard.of(Call::Drop)), (2, 1), "the second took the place of the first");
        drop(wait(&pool, &first));
        assert_eq!((heard.of(Call::Clone), heard.of(Call::Drop)), (3, 2));
        drop(held);
        assert_eq!(heard.of(Call::Wake), 1);
        drop(granted(&mut future));
        assert_at_rest(&pool);
    });
}

#[test]
fn a_block_that_comes_free_while_a_waker_is_cloned_is_not_missed() {
    without_deadlock(|| {
        let (pool, held) = full_pool(64);
        let held = Mutex::new(Some(held));
        let freeing = waker(move |call| {
            if call == Call::Clone {
                drop(held.lock().expect("whole").take());
            }
        });
        let mut future = pool.allocate(Request::new(64));
        drop(poll(&mut future, &freeing).expect("free since the clone").expect("served"));
        assert_at_rest(&pool);
    });
}

/// As a task is: what it still holds goes with its last waker.
struct Owns<T>(Mutex<Option<T>>);

impl<T: Send + 'static> Owns<T> {
    fn new(held: Option<T>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(held)))
    }
}

impl<T: Send + 'static> Wake for Owns<T> {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_owns_a_block_of_the_pool_gives_it_back_when_it_is_dropped() {
    without_deadlock(|| {
        let (pool, held) = full_pool(64);
        let owner = Waker::from(Owns::new(Some(held)));
        let future = wait(&pool, &owner);
        drop(owner);
        drop(future);
        assert_at_rest(&pool);
    });
}

#[test]
fn a_waker_that_owns_a_block_of_the_pool_gives_it_back_when_another_takes_its_place() {
    without_deadlock(|| {
        let (pool, held) = full_pool(64);
        let owner = Waker::from(Owns::new(Some(held)));
        let mut future = wait(&pool, &owner);
        drop(owner);
        let (plain, heard) = counting();
        assert!(poll(&mut future, &plain).is_none(), "the block came free after the look");
        assert_eq!(heard.of(Call::Wake), 1, "and the new waker heard of it");
        drop(granted(&mut future));
        assert_at_rest(&pool);
    });
}

#[test]
fn a_waker_that_owns_the_future_it_wakes_hands_its_block_on() {
    without_deadlock(|| {
        let (pool, held) = full_pool(64);
        let task = Owns::new(None);
        let owner = Waker::from(task.clone());
        *task.0.lock().expect("whole") = Some(wait(&pool, &owner));
        drop((task, owner));
        let (plain, heard) = counting();
        let mut next = wait(&pool, &plain);
        // The pool has the task's last waker: once it is woken the future is dropped, and its block goes to the next.
        drop(held);
        assert_eq!(heard.of(Call::Wake), 1);
        drop(granted(&mut next));
        assert_at_rest(&pool);
    });
}

#[test]
fn a_waker_that_panics_when_woken_keeps_no_other_from_being_woken() {
    let (pool, held) = full_pool(128);
    let ((bad, bad_heard), (worse, worse_heard), (good, heard)) =
        (panicking(Call::Wake), panicking(Call::Wake), counting());
    let (mut first, mut second, mut third) = (wait(&pool, &bad), wait(&pool, &worse), wait(&pool, &good));
    // One block of 128 serves the first two; what the first hands on serves the third.
    assert_eq!(panic_of(|| drop(held)), "wake");
    assert_eq!((bad_heard.of(Call::Wake), worse_heard.of(Call::Wake), heard.of(Call::Wake)), (1, 1, 0));
    drop(granted(&mut first));
    assert_eq!(heard.of(Call::Wake), 1);
    drop((granted(&mut second), granted(&mut third)));
    assert_at_rest(&pool);
}

#[test]
fn a_waker_that_panics_when_woken_does_not_end_a_thread_that_is_panicking() {
    let (pool, held) = full_pool(128);
    let ((bad, _), (good, heard)) = (panicking(Call::Wake), counting());
    let (first, mut second) = (wait(&pool, &bad), wait(&pool, &good));
    let said = panic_of(|| {
        let _held = held;
        panic_any("the thread's own");
    });
    assert_eq!((said, heard.of(Call::Wake)), ("the thread's own", 1));
    drop((first, granted(&mut second)));
    assert_at_rest(&pool);
}

#[test]
fn a_waker_that_panics_when_cloned_leaves_the_queue_as_it_was() {
    let (pool, held) = full_pool(64);
    let ((bad, _), (good, heard)) = (panicking(Call::Clone), counting());
    let mut future = pool.allocate(Request::new(64));
    assert_eq!(panic_of(|| _ = poll(&mut future, &bad)), "clone");
    assert_eq!(pool.waiting(), 0, "it took no place");
    assert!(poll(&mut future, &good).is_none());
    let (worse, _) = panicking(Call::Clone);
    assert_eq!(panic_of(|| _ = poll(&mut future, &worse)), "clone");
    assert_eq!(pool.waiting(), 1, "it kept its place");
    drop(held);
    assert_eq!(heard.of(Call::Wake), 1, "and its waker");
    drop(granted(&mut future));
    assert_at_rest(&pool);
}

#[test]
fn a_waker_that_panics_when_its_place_is_taken_leaves_the_other_there() {
    let (pool, held) = full_pool(64);
    let ((bad, _), (good, heard)) = (panicking(Call::Drop), counting());
    let mut future = wait(&pool, &bad);
    assert_eq!(panic_of(|| _ = poll(&mut future, &good)), "drop");
    drop(held);
    assert_eq!(heard.of(Call::Wake), 1);
    drop(granted(&mut future));
    assert_at_rest(&pool);
}

#[test]
fn a_waker_that_panics_when_its_future_gives_up_keeps_no_other_from_being_woken() {
    let (pool, held) = full_pool(128);
    drop(held);
    let half = pool.try_allocate(Request::new(64)).expect("room");
    let ((bad, _), (good, heard)) = (panicking(Call::Drop), counting());
    let mut large = pool.allocate(Request::new(128));
    assert!(poll(&mut large, &bad).is_none());
    let mut small = wait(&pool, &good);
    assert_eq!(panic_of(|| drop(large)), "drop");
    assert_eq!(heard.of(Call::Wake), 1, "nothing holds up the small request any more");
    drop((granted(&mut small), half));
    assert_at_rest(&pool);
}

#[test]
fn a_block_that_is_granted_while_a_waker_panics_goes_back() {
    without_deadlock(|| {
        let (pool, held) = full_pool(64);
        let held = Mutex::new(Some(held));
        let (bad, _) = panicking(Call::Drop);
        let bad = waker(move |call| match call {
            Call::Clone => drop(held.lock().expect("whole").take()),
            // The panic of the other, once.
            Call::Drop => drop(bad.clone()),
            Call::Wake => {}
        });
        let mut future = pool.allocate(Request::new(64));
        assert_eq!(panic_of(|| _ = poll(&mut future, &bad)), "drop");
        drop(future);
        assert_at_rest(&pool);
    });
}
