//! A lock-free list of remote frees: any thread pushes an index, the owner drains all of them at once.
//!
//! Promises upward: every index pushed is drained exactly once; what its pusher wrote before is visible to the owner
//! after; pushing an index that is still queued is refused exactly. Push is lock-free (a lost race means that another
//! push won), drain is one exchange and then a walk over what it took, and never retries.
//! Asks from below: `sync`; the caller lends one `u32` link for each index, and two more.
//!
//! Why there is no ABA problem, though links are indices used again and again: the only compare-and-swap is a push's,
//! and it puts *its own* node on top of head `h`, whose link it wrote as `h`. If the head went away from `h` and came
//! back meanwhile, that link is still right: the node lies on whatever list now starts at `h`. Taking never compares:
//! one exchange takes the whole list.
//!
//! Invariants (zeroed links are an empty inbox):
//! - `links[i]` is 0 iff `i` is not queued; otherwise the next index + 1, or LAST
//! - the link behind the indices is the head: 0 when empty, otherwise the newest index + 1
//! - the link behind that counts what is queued, in bounded inboxes: never above the bound; it is raised before a push
//!   and lowered after its index is drained, so it is never below the length of the list

use crate::allocator::Owner;
use crate::error::{Violation, ensure};
use crate::sync::{AtomicU32, Ordering};
use core::fmt;

/// Link of the oldest entry. No index + 1 reaches it: there are at most `u32::MAX - 1` indices.
const LAST: u32 = u32::MAX;

/// What a push gives: everything its thread did before, to the owner that drains it.
#[cfg(not(terrace_seeded_bug = "inbox_push_relaxed"))]
const PUSH: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "inbox_push_relaxed")]
const PUSH: Ordering = Ordering::Relaxed;

/// What a drain asks: to see everything the pushers did.
#[cfg(not(terrace_seeded_bug = "inbox_drain_relaxed"))]
const DRAIN: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "inbox_drain_relaxed")]
const DRAIN: Ordering = Ordering::Relaxed;

/// A refused push. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The index is queued already: a double free.
    Queued(u32),
    /// The inbox has no such index.
    Foreign(u32),
    /// A bounded inbox is full: drain it first.
    Full,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued(index) => write!(f, "double free: {index} is in the inbox already"),
            Self::Foreign(index) => write!(f, "foreign block: the inbox has no index {index}"),
            Self::Full => write!(f, "the inbox is full; its owner must drain it"),
        }
    }
}

impl core::error::Error for PushError {}

/// The inbox of one owner. A view over lent links (`Copy`): views over the same links are one inbox.
///
/// # Example
/// ```
/// use terrace_core::{Inbox, Owner};
/// use terrace_core::sync::AtomicU32;
/// static LINKS: [AtomicU32; Inbox::links(8)] = [const { AtomicU32::new(0) }; Inbox::links(8)];
/// let inbox = Inbox::new(Owner(1), &LINKS);
/// std::thread::spawn(move || inbox.push(3)).join().expect("no panic")?;
/// inbox.push(5)?;
/// assert!(inbox.push(3).is_err(), "a double free is refused");
/// assert_eq!(inbox.drain().collect::<Vec<_>>(), [5, 3]); // newest first
/// # Ok::<(), terrace_core::inbox::PushError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'a> {
    /// One for each index, then the head, then the count.
    links: &'a [AtomicU32],
    /// Most indices queued at once.
    bound: u32,
    /// Whose inbox it is.
    owner: Owner,
}

impl<'a> Inbox<'a> {
    /// Links to lend for indices below `indices`.
    pub const fn links(indices: u32) -> usize {
        indices as usize + 2
    }

    /// An inbox for indices below `links.len() - 2` (none with fewer links), over zeroed links.
    pub const fn new(owner: Owner, links: &'a [AtomicU32]) -> Self {
        Self { links, bound: u32::MAX, owner }
    }

    /// The same inbox, refusing pushes while `bound` are queued.
    ///
    /// All views over the same links need the same bound.
    pub const fn bounded(self, bound: u32) -> Self {
        Self { bound, ..self }
    }

    /// Whose inbox it is.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Indices it can hold.
    fn indices(&self) -> u32 {
        self.links.len().saturating_sub(2).min(LAST as usize - 1) as u32
    }

    /// The head, where there is one: it never stands without the count behind it.
    fn head(&self) -> Option<&'a AtomicU32> {
        if self.links.len() < 2 { None } else { self.links.get(self.indices() as usize) }
    }

    /// Queues an index for the owner. Any thread, also in interrupt handlers: it never waits.
    ///
    /// # Errors
    /// [`PushError`]; nothing is queued then.
    #[inline]
    pub fn push(&self, index: u32) -> Result<(), PushError> {
        let link = self.links.get(index as usize).filter(|_| index < self.indices());
        let (Some(link), Some(head)) = (link, self.head()) else { return Err(PushError::Foreign(index)) };
        // The claim: of several pushes of one index, one turns 0 into LAST. Acquire, so that what the owner did before
        // it cleared the link comes before what this push stands for.
        let claim = link.compare_exchange(0, LAST, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_err() {
            return Err(PushError::Queued(index));
        }
        if self.bound != u32::MAX && !self.count_up() {
            link.store(0, Ordering::Release);
            return Err(PushError::Full);
        }
        self.put(head, link, index);
        Ok(())
    }

    /// Puts a claimed index on top.
    #[inline]
    fn put(&self, head: &AtomicU32, link: &AtomicU32, index: u32) {
        let mut top = head.load(Ordering::Relaxed);
        loop {
            link.store(if top == 0 { LAST } else { top }, Ordering::Relaxed);
            match head.compare_exchange_weak(top, index + 1, PUSH, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Raises the count unless it is at the bound.
    fn count_up(&self) -> bool {
        let raise = |count| (count < self.bound).then_some(count + 1);
        self.count().fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise).is_ok()
    }

    /// The count. Only called when there is a head.
    fn count(&self) -> &'a AtomicU32 {
        &self.links[self.indices() as usize + 1]
    }

    /// Takes everything queued, newest first.
    ///
    /// For the owner; were two threads to drain at once, each index would still go to one of them. What is left when
    /// the iterator is dropped goes back into the inbox.
    #[inline]
    pub fn drain(&self) -> Drain<'a> {
        let next = self.head().map_or(0, |head| head.swap(0, DRAIN));
        Drain { inbox: *self, next }
    }

    /// Whether nothing is queued now. One load, no exchange: for owners that look at each allocation.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head().is_none_or(|head| head.load(Ordering::Relaxed) == 0)
    }

    /// Walks the list. For tests, at rest (no push or drain under way). O(queued).
    ///
    /// # Errors
    /// The clause that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        let Some(head) = self.head() else { return Ok(()) };
        let indices = &self.links[..self.indices() as usize];
        let queued = indices.iter().filter(|link| link.load(Ordering::Relaxed) != 0).count();
        let (mut at, mut length) = (head.load(Ordering::Relaxed), 0);
        while at != 0 && at != LAST && length <= queued {
            let link = indices.get(at as usize - 1).map_or(0, |link| link.load(Ordering::Relaxed));
            ensure(link != 0, "inbox: the link of a queued index is not 0", at - 1)?;
            (at, length) = (link, length + 1);
        }
        ensure(length == queued, "inbox: links[i] is 0 iff i is not queued", length)?;
        let count = self.count().load(Ordering::Relaxed) as usize;
        let counted = self.bound == u32::MAX || (count == queued && count <= self.bound as usize);
        ensure(counted, "inbox: the count of a bounded inbox is what is queued, at most the bound", count)
    }
}

/// What one drain took. See [`Inbox::drain`].
#[derive(Debug)]
pub struct Drain<'a> {
    inbox: Inbox<'a>,
    /// Next index + 1; 0 or LAST at the end.
    next: u32,
}

impl Iterator for Drain<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.next == 0 || self.next == LAST {
            return None;
        }
        let index = self.next - 1;
        let link = &self.inbox.links[index as usize];
        self.next = link.load(Ordering::Relaxed);
        // From here on the index may be pushed again: Release pairs with the claim of that push.
        link.store(0, Ordering::Release);
        if self.inbox.bound != u32::MAX {
            self.inbox.count().fetch_sub(1, Ordering::Relaxed);
        }
        Some(index)
    }
}

impl Drop for Drain<'_> {
    /// Puts the rest back, one by one, still claimed and counted. O(rest).
    fn drop(&mut self) {
        let Some(head) = self.inbox.head() else { return };
        while self.next != 0 && self.next != LAST {
            let index = self.next - 1;
            let link = &self.inbox.links[index as usize];
            self.next = link.load(Ordering::Relaxed);
            self.inbox.put(head, link, index);
        }
    }
}
