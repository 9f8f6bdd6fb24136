//! What a tracker knows of the calling thread: its number, its tag, and the bounds of its stack.
//!
//! Promises upward: the number and the tag cost a load each; a number is used by one thread at a time, and a thread that
//! takes it over sees all that the earlier one wrote.
//! Asks from below: thread-local storage. A thread whose storage is gone has no number, and no tag.

use crate::frames;
use crate::tag::Tag;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The number of no thread: callers with it share counters.
pub(crate) const SHARED: u32 = 0;

/// Stands for the number of a thread before its first call to a tracker, which gives it one.
const UNSET: u32 = u32::MAX;

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(UNSET) };
    static TAG: Cell<Tag> = const { Cell::new(Tag::NONE) };
    static STATE: RefCell<ThreadState> = const { RefCell::new(ThreadState::new()) };
}

/// The part of a thread's state that its end gives back.
struct ThreadState {
    /// The open guards, each with its serial number and its tag.
    tags: Vec<(u64, Tag)>,
    serial: u64,
    /// The addresses of the thread's stack; asked for once.
    stack: Option<Range<usize>>,
}

impl ThreadState {
    const fn new() -> Self {
        Self { tags: Vec::new(), serial: 0, stack: None }
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        // What other destructors of this thread allocate and free goes to the shared counters.
        let number = NUMBER.replace(SHARED);
        TAG.set(Tag::NONE);
        if number != UNSET && number != SHARED {
            NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
        }
    }
}

/// Numbers of threads.
struct ThreadNumbers {
    /// Numbers of threads that have ended.
    free: Vec<u32>,
    /// The highest number that a thread has or had.
    last: u32,
}

static NUMBERS: Mutex<ThreadNumbers> = Mutex::new(ThreadNumbers { free: Vec::new(), last: 0 });

/// The number of the calling thread, from 1 on, or [`SHARED`].
#[inline]
pub(crate) fn number() -> u32 {
    let number = NUMBER.get();
    if number == UNSET { take_number() } else { number }
}

#[cold]
fn take_number() -> u32 {
    // Touching the state has its destructor run at the thread's end, which gives the number back.
    let number = STATE.try_with(|_| {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.free.pop().unwrap_or_else(|| {
            numbers.last += 1;
            numbers.last
        })
    });
    let number = number.unwrap_or(SHARED);
    NUMBER.set(number);
    number
}

/// The tag of what the calling thread allocates.
#[inline]
pub(crate) fn current_tag() -> Tag {
    TAG.get()
}

/// The addresses of the calling thread's stack; none where they are not known.
pub(crate) fn stack_bounds() -> Range<usize> {
    let stack = STATE.try_with(|state| {
        // Asking for the bounds may allocate, and come here again: the inner call goes without.
        let mut state = state.try_borrow_mut().ok()?;
        Some(state.stack.get_or_insert_with(|| frames::stack_bounds().unwrap_or(0..0)).clone())
    });
    stack.ok().flatten().unwrap_or(0..0)
}

/// Names what the calling thread allocates, until the guard is dropped.
///
/// Guards nest: the innermost that is open counts, in whichever order they are dropped.
///
/// # Example
/// ```
/// use terrace_track::{TrackMode, Tracker, tag};
///
/// let tracker = Tracker::new("arena", &["arena"]);
/// tracker.set_mode(TrackMode::Records);
/// let weights = tag("weights");
/// let first = tracker.allocated(0x1000, 64, 0);
/// drop(weights);
/// let second = tracker.allocated(0x2000, 64, 0);
/// let mut live = tracker.live();
/// live.sort_by_tag();
/// assert_eq!(live.blocks.iter().map(|block| &*block.tag).collect::<Vec<_>>(), ["", "weights"]);
/// # tracker.freed(first, 0x1000, 64);
/// # tracker.freed(second, 0x2000, 64);
/// ```
#[must_use = "the tag is unset when the guard is dropped"]
pub fn tag(name: &str) -> TagGuard {
    Tag::new(name).set()
}

/// Ends a thread's tag when it is dropped.
#[derive(Debug)]
pub struct TagGuard {
    serial: u64,
    /// Belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Tag {
    /// As [`tag`], for a tag that is known already.
    #[must_use = "the tag is unset when the guard is dropped"]
    pub fn set(self) -> TagGuard {
        let serial = STATE.try_with(|state| {
            let mut state = state.borrow_mut();
            state.serial += 1;
            let serial = state.serial;
            state.tags.push((serial, self));
            TAG.set(self);
            serial
        });
        TagGuard { serial: serial.unwrap_or(0), _thread: PhantomData }
    }

    /// The tag of what the calling thread allocates now.
    pub fn current() -> Self {
        current_tag()
    }
}

impl Drop for TagGuard {
    fn drop(&mut self) {
        // The state is gone at the thread's end, and with it the tag.
        let _ = STATE.try_with(|state| {
            let mut state = state.borrow_mut();
            if let Some(at) = state.tags.iter().rposition(|(serial, _)| *serial == self.serial) {
                state.tags.remove(at);
                TAG.set(state.tags.last().map_or(Tag::NONE, |(_, tag)| *tag));
            }
        });
    }
}
