//! Which of a stream's submissions are done.
//!
//! ```text
//!   begun      1  2  3  4  5     `begin` numbers submissions, in the order of the stream
//!   finished   ■  ■  ·  ■  ·     `finish`, from any thread, in any order
//!   reached    2                 the last that is done together with all before it
//! ```
//!
//! Promises upward: answers make no driver call; once work has failed, every answer is the fault.
//! Asks from below: that each submission is finished once, after its work touches no memory any more.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use terrace_device::{Fault, FaultReason};

/// The submissions of one stream.
pub struct Submissions {
    counts: Mutex<SubmissionCounts>,
    /// Held while a submission is encoded, so that numbers and places in the queue agree.
    order: Mutex<()>,
    /// The thread that holds `order`.
    encoder: Mutex<Option<ThreadId>>,
    /// Notified when `reached` grows.
    grown: Condvar,
    /// The first failure of any stream of the device.
    failure: Arc<OnceLock<Fault>>,
}

#[derive(Default)]
struct SubmissionCounts {
    /// The last number given.
    begun: u64,
    /// All numbers up to this one are finished.
    reached: u64,
    /// Finished numbers above `reached + 1`.
    ahead: BTreeSet<u64>,
}

impl Submissions {
    /// A stream without work. All streams of a device share `failure`.
    pub fn new(failure: Arc<OnceLock<Fault>>) -> Self {
        Self {
            counts: Mutex::default(),
            order: Mutex::default(),
            encoder: Mutex::default(),
            grown: Condvar::new(),
            failure,
        }
    }

    /// Waits until no other thread encodes a submission of the stream.
    ///
    /// # Errors
    /// [`FaultReason::Unsupported`] if this thread does: it would wait for itself.
    pub fn encode(&self) -> Result<Encoding<'_>, Fault> {
        let this = thread::current().id();
        if *lock(&self.encoder) == Some(this) {
            return Err(Fault::of("submit while submitting", FaultReason::Unsupported));
        }
        let order = lock(&self.order);
        *lock(&self.encoder) = Some(this);
        Ok(Encoding { submissions: self, _order: order })
    }

    /// Numbers a submission, from 1.
    fn begin(&self) -> u64 {
        let mut counts = self.counts();
        counts.begun += 1;
        counts.begun
    }

    /// The number of the last submission; 0 before the first.
    pub fn begun(&self) -> u64 {
        self.counts().begun
    }

    /// Notes that the work of a submission is done.
    pub fn finish(&self, number: u64) {
        let mut guard = self.counts();
        let counts = &mut *guard;
        counts.ahead.insert(number);
        while counts.ahead.remove(&(counts.reached + 1)) {
            counts.reached += 1;
        }
        drop(guard);
        self.grown.notify_all();
    }

    /// Notes that work of the device failed: every later answer of every stream is the first fault.
    ///
    /// Calls `signal`, which lets later work go on; never two at a time, so that what it compares and sets stays true.
    pub fn fail(&self, fault: Fault, signal: impl FnOnce()) {
        let _ = self.failure.set(fault);
        let counts = self.counts();
        signal();
        drop(counts);
    }

    /// Fails once work of the device has failed.
    pub fn check(&self) -> Result<(), Fault> {
        self.failure.get().map_or(Ok(()), |&fault| Err(fault))
    }

    /// Whether the submissions up to `number` are done.
    pub fn has_reached(&self, number: u64) -> Result<bool, Fault> {
        let reached = self.counts().reached >= number;
        self.check().map(|()| reached)
    }

    /// Waits until the submissions up to `number` are done.
    pub fn wait(&self, number: u64) -> Result<(), Fault> {
        let waited = self.grown.wait_while(self.counts(), |counts| counts.reached < number);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.check()
    }

    /// Whether all submissions so far are done.
    pub fn is_idle(&self) -> Result<bool, Fault> {
        self.has_reached(self.begun())
    }

    /// Waits until all submissions so far are done.
    pub fn settle(&self) -> Result<(), Fault> {
        self.wait(self.begun())
    }

    fn counts(&self) -> MutexGuard<'_, SubmissionCounts> {
        lock(&self.counts)
    }
}

/// A submission that is encoded. Dropped without [`Self::begin`], also by a panic, it never was.
pub struct Encoding<'a> {
    submissions: &'a Submissions,
    _order: MutexGuard<'a, ()>,
}

impl Encoding<'_> {
    /// The number that the submission will have.
    pub fn number(&self) -> u64 {
        self.submissions.begun() + 1
    }

    /// Numbers the submission, which must be committed before this value is dropped.
    pub fn begin(&self) -> u64 {
        self.submissions.begin()
    }
}

impl Drop for Encoding<'_> {
    fn drop(&mut self) {
        *lock(&self.submissions.encoder) = None;
    }
}

/// What the locks protect is whole between any two statements, also after a panic.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::command_fault;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn fresh() -> Submissions {
        Submissions::new(Arc::default())
    }

    #[test]
    fn a_submission_is_done_only_with_all_before_it() {
        let stream = fresh();
        assert_eq!((stream.begun(), stream.has_reached(0)), (0, Ok(true)), "no work is done work");
        assert_eq!([(); 4].map(|()| stream.begin()), [1, 2, 3, 4]);
        assert_eq!((stream.begun(), stream.has_reached(1)), (4, Ok(false)));
        stream.finish(2);
        stream.finish(4);
        assert_eq!((stream.has_reached(1), stream.has_reached(2)), (Ok(false), Ok(false)));
        stream.finish(1);
        assert_eq!((stream.has_reached(2), stream.has_reached(3)), (Ok(true), Ok(false)));
        stream.finish(3);
        assert_eq!((stream.has_reached(4), stream.wait(4)), (Ok(true), Ok(())));
        assert_eq!((stream.is_idle(), stream.settle()), (Ok(true), Ok(())));
        stream.begin();
        assert_eq!(stream.is_idle(), Ok(false));
    }

    #[test]
    fn a_submission_that_panics_never_was() {
        let stream = fresh();
        let panics = || {
            let encoding = stream.encode().expect("no other encodes");
            assert_eq!(encoding.number(), 1);
            let inner = stream.encode().map(|_| ()).map_err(|fault| fault.reason);
            assert_eq!(inner, Err(FaultReason::Unsupported), "it would wait for itself");
            panic!("while it encodes");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!((stream.begun(), stream.is_idle()), (0, Ok(true)), "nothing waits for it");
        let encoding = stream.encode().expect("no other encodes");
        assert_eq!((encoding.number(), encoding.begin()), (1, 1));
    }

    #[test]
    fn one_thread_encodes_at_a_time() {
        let stream = fresh();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let encoding = stream.encode().expect("this thread encodes once at a time");
                        let number = encoding.number();
                        assert_eq!(encoding.begin(), number);
                    }
                });
            }
        });
        assert_eq!(stream.begun(), 4000);
    }

    #[test]
    fn a_wait_ends_when_the_work_does() {
        let (stream, done) = (fresh(), AtomicBool::new(false));
        let numbers = [stream.begin(), stream.begin()];
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| (stream.settle(), done.load(Ordering::SeqCst)));
            stream.finish(numbers[0]);
            std::thread::sleep(Duration::from_millis(20));
            done.store(true, Ordering::SeqCst);
            stream.finish(numbers[1]);
            assert_eq!(waiter.join().expect("no panic"), (Ok(()), true));
        });
    }

    #[test]
    fn a_failure_is_the_answer_of_every_stream_from_then_on() {
        let failure = Arc::default();
        let (first, second) = (Submissions::new(Arc::clone(&failure)), Submissions::new(failure));
        first.finish(first.begin());
        assert_eq!((first.wait(1), second.check()), (Ok(()), Ok(())));
        let signals = Cell::new(0);
        first.fail(command_fault(3), || signals.set(signals.get() + 1));
        second.fail(command_fault(8), || signals.set(signals.get() + 1));
        assert_eq!(signals.get(), 2, "what waits for the work goes on");
        let fault = command_fault(3);
        assert_eq!((first.wait(1), first.has_reached(1)), (Err(fault), Err(fault)));
        assert_eq!((second.wait(0), second.check()), (Err(fault), Err(fault)), "the first is kept");
    }
}
