//! A lock-free list of remote frees: any thread pushes an index, the owner drains all of them at once.
//!
//! Promises upward: every index pushed is drained exactly once, and the owner then sees the writes of the thread that
//! pushed it; pushing an index that is still queued is always refused. Push is lock-free (its exchange fails only
//! spuriously or because another push or a drain succeeded); drain is one exchange and a walk over the list that it
//! took, and never retries.
//! Asks from below: `sync`; the caller lends one `u32` link for each index, and two more links.
//!
//! There is no ABA problem, although links are indices that are reused: the only compare-and-swap of the head is that of a
//! push, which replaces head `h` by its own node, whose link is `h`. If the head changed from `h` and back meanwhile, that
//! link is still right: it leads to the list that starts at `h` now. A drain compares nothing: one exchange takes the
//! whole list.
//!
//! Invariants (zeroed links are an empty inbox):
//! - `links[i]` is 0 iff `i` is not queued; otherwise the next index + 1, or LAST
//! - the link after those of the indices is the head: 0 when empty, otherwise the newest index + 1
//! - the last link is the number of queued indices, in bounded inboxes: never above the bound; incremented before a push
//!   and decremented after the index is drained, so never below the length of the list

use crate::allocator::Owner;
use crate::error::{Violation, ensure};
use crate::sync::{AtomicU32, Ordering, seeded};
use core::fmt;

/// Link of the oldest entry. No index + 1 reaches it: there are at most `u32::MAX - 1` indices.
const LAST: u32 = u32::MAX;

/// Release: publishes all writes of the pushing thread to the owner, which drains the index.
#[inline(always)]
fn push_order() -> Ordering {
    if seeded("inbox_push_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// Acquire: the owner sees all writes that the pushing threads made before they pushed.
#[inline(always)]
fn drain_order() -> Ordering {
    if seeded("inbox_drain_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Why a push was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The index is queued already: a double free.
    Queued(u32),
    /// The inbox has no link for the index.
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

/// The inbox of one owner: a `Copy` view over lent links. All views over the same links are one inbox.
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
    /// One link for each index, then the head of the list, then the number of queued indices.
    links: &'a [AtomicU32],
    /// Maximum number of indices queued at once; `u32::MAX` for no bound.
    bound: u32,
    /// The owner that drains the inbox.
    owner: Owner,
}

impl<'a> Inbox<'a> {
    /// Number of links to lend for indices below `indices`.
    pub const fn links(indices: u32) -> usize {
        indices as usize + 2
    }

    /// An inbox for indices below `links.len() - 2` (none with fewer links), over zeroed links.
    pub const fn new(owner: Owner, links: &'a [AtomicU32]) -> Self {
        Self { links, bound: u32::MAX, owner }
    }

    /// The same inbox, which refuses pushes while `bound` indices are queued.
    ///
    /// All views over the same links need the same bound.
    pub const fn bounded(self, bound: u32) -> Self {
        Self { bound, ..self }
    }

    /// The owner that drains the inbox.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Number of indices that have a link: the maximum that can be queued.
    fn indices(&self) -> u32 {
        self.links.len().saturating_sub(2).min(LAST as usize - 1) as u32
    }

    /// The link that is the head of the list; `None` with fewer than two links.
    fn head(&self) -> Option<&'a AtomicU32> {
        if self.links.len() < 2 { None } else { self.links.get(self.indices() as usize) }
    }

    /// Queues an index for the owner. Never waits: any thread and any interrupt handler may call it.
    ///
    /// # Errors
    /// [`PushError`]; the call then queues nothing.
    #[inline]
    pub fn push(&self, index: u32) -> Result<(), PushError> {
        let link = self.links.get(index as usize).filter(|_| index < self.indices());
        let (Some(link), Some(head)) = (link, self.head()) else { return Err(PushError::Foreign(index)) };
        // The claim: of concurrent pushes of one index, exactly one replaces 0 by LAST. Acquire pairs with the Release by
        // which the owner cleared the link: the owner's earlier writes happen before this push.
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

    /// Makes a claimed index the head of the list.
    #[inline]
    fn put(&self, head: &AtomicU32, link: &AtomicU32, index: u32) {
        let mut top = head.load(Ordering::Relaxed);
        loop {
            link.store(if top == 0 { LAST } else { top }, Ordering::Relaxed);
            match head.compare_exchange_weak(top, index + 1, push_order(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Increments the count of queued indices unless it is at the bound; returns whether it did.
    fn count_up(&self) -> bool {
        let raise = |count| (count < self.bound).then_some(count + 1);
        self.count().fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise).is_ok()
    }

    /// The link that counts queued indices. Caller must have found a head, which means that this link exists too.
    fn count(&self) -> &'a AtomicU32 {
        &self.links[self.indices() as usize + 1]
    }

    /// Takes all queued indices, newest first.
    ///
    /// For the owner, but safe to call concurrently: each index goes to one of the calls. Indices that are left when
    /// the iterator is dropped are queued again.
    #[inline]
    pub fn drain(&self) -> Drain<'a> {
        let next = self.head().map_or(0, |head| head.swap(0, drain_order()));
        Drain { inbox: *self, next }
    }

    /// Whether no index is queued. One load: cheap enough for each allocation.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head().is_none_or(|head| head.load(Ordering::Relaxed) == 0)
    }

    /// Checks the list and the count. For tests, at rest (no push or drain under way). O(queued).
    ///
    /// # Errors
    /// The invariant that is broken.
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

/// Iterator over the indices that one drain took; see [`Inbox::drain`].
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
        // Other threads can push the index again from here on: Release pairs with the claim of that push.
        link.store(0, Ordering::Release);
        if self.inbox.bound != u32::MAX {
            self.inbox.count().fetch_sub(1, Ordering::Relaxed);
        }
        Some(index)
    }
}

impl Drop for Drain<'_> {
    /// Queues the remaining indices again, one by one: they are still claimed and counted. O(remaining).
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
