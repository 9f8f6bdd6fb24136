//! Last accesses of every byte.
//!
//! Upward: [`Ledger::touch`] finds, in O(log n) plus the spans it covers, the first access that a new one races with.
//! From below: clocks that callers bring.
//!
//! Of accesses that are ordered only the latest is kept: what is ordered after the later one is ordered after the
//! earlier too. So a span has one write, and reads of which no two are ordered.

use super::{Clock, Conflict, Lane, Touch};
use std::collections::BTreeMap;

/// An access: operation number `count` of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The stream.
    pub lane: Lane,
    /// The operation's number in it.
    pub count: u64,
    /// What it was.
    pub operation: &'static str,
}

impl Mark {
    /// Whether this was done before anything that knows `clock`.
    fn before(&self, clock: &Clock) -> bool {
        clock.of(self.lane) >= self.count
    }
}

/// Bytes with the same last accesses.
#[derive(Clone, Debug)]
struct Span {
    /// Past the last byte: more than the key, at most the next span's.
    end: u64,
    write: Option<Mark>,
    /// Reads since the write.
    reads: Vec<Mark>,
}

impl Span {
    /// The access that a new one of this kind is not ordered after.
    fn unordered(&self, writes: bool, clock: &Clock) -> Option<(Mark, bool)> {
        let write = self.write.filter(|mark| !mark.before(clock)).map(|mark| (mark, true));
        let read = || self.reads.iter().find(|mark| writes && !mark.before(clock)).map(|mark| (*mark, false));
        write.or_else(read)
    }
}

/// Spans by their first byte. They do not overlap, and bytes in none were never touched.
#[derive(Default)]
pub struct Ledger {
    spans: BTreeMap<u64, Span>,
}

impl Ledger {
    /// Enters an access; gives the first earlier one it is not ordered after.
    pub fn touch(&mut self, touch: Touch, mark: Mark, clock: &Clock) -> Option<Conflict> {
        let end = touch.start.saturating_add(touch.bytes);
        if end == touch.start {
            return None;
        }
        let conflict = self.unordered(touch, clock);
        if touch.writes {
            self.forget(touch.start, touch.bytes);
            self.spans.insert(touch.start, Span { end, write: Some(mark), reads: Vec::new() });
        } else {
            self.read(touch.start, end, mark, clock);
        }
        conflict
    }

    /// The first access that this one would not be ordered after.
    pub fn unordered(&self, touch: Touch, clock: &Clock) -> Option<Conflict> {
        let (start, end) = (touch.start, touch.start.saturating_add(touch.bytes));
        self.over(start, end).find_map(|(from, span)| {
            let (mark, wrote) = span.unordered(touch.writes, clock)?;
            Some(Conflict { mark, wrote, start: from.max(start), end: span.end.min(end) })
        })
    }

    /// Forgets all accesses of a range: it is memory that nobody has yet.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        self.cut(start);
        self.cut(end);
        let covered: Vec<u64> = self.spans.range(start..end).map(|(from, _)| *from).collect();
        covered.iter().for_each(|from| drop(self.spans.remove(from)));
    }

    /// How many spans there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Spans that have bytes in the range, in order.
    fn over(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Span)> {
        let first = self.spans.range(..start).next_back().filter(|(_, span)| span.end > start && end > start);
        let rest = if end > start { Some(self.spans.range(start..end)) } else { None };
        first.into_iter().chain(rest.into_iter().flatten()).map(|(from, span)| (*from, span))
    }

    /// Makes `at` the border of a span where it lies inside one.
    fn cut(&mut self, at: u64) {
        let Some((_, span)) = self.spans.range_mut(..at).next_back().filter(|(_, span)| span.end > at) else {
            return;
        };
        let upper = span.clone();
        span.end = at;
        self.spans.insert(at, upper);
    }

    fn read(&mut self, start: u64, end: u64, mark: Mark, clock: &Clock) {
        self.cut(start);
        self.cut(end);
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, span) in self.spans.range_mut(start..end) {
            if at < *from {
                gaps.push((at, *from));
            }
            span.reads.retain(|read| !read.before(clock) && read.lane != mark.lane);
            span.reads.push(mark);
            at = span.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (from, end) in gaps {
            self.spans.insert(from, Span { end, write: None, reads: vec![mark] });
        }
    }
}
