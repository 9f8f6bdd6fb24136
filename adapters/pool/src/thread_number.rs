//! Small numbers for threads: dense, unique among the threads that run, and used again.
//!
//! Promises upward: no two running threads have the same number; a thread that gets a number sees everything that the thread
//! which had it before did.
//! Asks from below: `thread_local` and a lock, which a thread takes at its first call and at its end.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers that no running thread has.
struct Numbers {
    /// Numbers below `next` that are free.
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { free: BinaryHeap::new(), next: 0 });

fn numbers() -> MutexGuard<'static, Numbers> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What stands for "no number yet".
const NONE: u32 = u32::MAX;
/// What stands for "given back": the thread ends.
const ENDED: u32 = u32::MAX - 1;

/// Gives the number of its thread back when the thread ends.
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        let number = NUMBER.replace(ENDED);
        numbers().free.push(Reverse(number));
    }
}

thread_local! {
    /// Has no destructor, so that a call finds it without asking for its state.
    static NUMBER: Cell<u32> = const { Cell::new(NONE) };
    static AT_END: AtEnd = const { AtEnd };
}

/// The number of the calling thread; `None` while the thread ends and has given it back.
#[inline(always)]
pub fn current() -> Option<u32> {
    match NUMBER.get() {
        NONE => first(),
        ENDED => None,
        number => Some(number),
    }
}

/// Gives the calling thread the smallest free number.
#[cold]
fn first() -> Option<u32> {
    // Fails in a thread whose thread-locals are gone, which must not have a number that it cannot give back.
    AT_END.try_with(|_| ()).ok()?;
    let mut numbers = numbers();
    let number = match numbers.free.pop() {
        Some(Reverse(number)) => number,
        None => {
            numbers.next += 1;
            numbers.next - 1
        }
    };
    NUMBER.set(number);
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::current;

    #[test]
    fn numbers_of_threads_that_ended_are_used_again() {
        let rounds = if cfg!(miri) { 5 } else { 1000 };
        let number = || std::thread::spawn(|| (current(), current())).join().unwrap();
        let most = (0..rounds).map(|_| {
            let (first, second) = number();
            assert_eq!(first, second);
            first.unwrap()
        });
        // Other tests have threads of their own beside these.
        assert!(most.max().unwrap() < 500);
    }
}
