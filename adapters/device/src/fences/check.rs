//! Checks the invariants of the fences. O(n log n); for tests.

use super::{EventTable, Fences, NO_STREAM};
use crate::backend::Backend;
use std::sync::atomic::Ordering;
use terrace_core::error::ensure;
use terrace_core::{Owner, Violation};

impl<B: Backend> Fences<B> {
    /// Checks every invariant.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let table = self.table();
        table.check(self.0.sole.load(Ordering::Relaxed))
    }

    /// Whether a free may have got this ticket. True for a stream that is not in the table: all of its tickets are
    /// done.
    pub(crate) fn is_issued(&self, owner: Owner, ticket: u64) -> bool {
        self.table().by_owner.get(&owner.0).is_none_or(|stream| ticket <= stream.next())
    }
}

impl EventTable {
    /// Checks the table; `sole` is the owner of the only stream, or [`NO_STREAM`].
    fn check(&self, sole: u32) -> Result<(), Violation> {
        self.by_owner.iter().try_for_each(|(&owner, stream)| stream.check(owner))?;
        let pending = self.by_owner.values().flat_map(|stream| stream.pending());
        let mut events: Vec<u64> = pending.chain(self.spare.iter().copied()).map(|event| event.0).collect();
        events.sort_unstable();
        let twice = events.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        ensure(twice.is_none(), "an event is pending on one stream or spare, once", twice.unwrap_or(0))?;
        let unknown = self.awaited.iter().map(|event| event.0).find(|event| events.binary_search(event).is_err());
        ensure(unknown.is_none(), "an event that a thread waits for is in the table", unknown.unwrap_or(0))?;
        if let Some((owner, ticket)) = self.bridge {
            let issued = self.by_owner.get(&owner).is_some_and(|stream| ticket <= stream.recorded);
            ensure(issued, "the bridge is an event that was recorded on a stream", u64::from(owner))?;
        }
        let alone = self.by_owner.len() == 1 && self.by_owner.get(&sole).is_some_and(|stream| !stream.is_closed());
        ensure(sole == NO_STREAM || alone, "the only stream is not closed, and there is no other", u64::from(sole))
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream_events::{StreamEvents, StreamState};
    use super::{EventTable, NO_STREAM};
    use crate::backend::{RawEvent, RawStream};
    use std::collections::BTreeMap;

    /// Stream 1 has one event done and two pending; stream 2 has one pending, which two threads wait for; two are
    /// spare.
    fn table() -> EventTable {
        let mut by_owner = BTreeMap::new();
        for (owner, events) in [(1, 1..4), (2, 4..5)] {
            let mut stream = StreamEvents::new(RawStream(owner.into()));
            events.for_each(|event| stream.push(RawEvent(event)));
            by_owner.insert(owner, stream);
        }
        let mut spare = by_owner.get_mut(&1).map_or(Vec::new(), |stream: &mut StreamEvents| stream.reached(1));
        spare.push(RawEvent(5));
        let awaited = vec![RawEvent(4); 2];
        EventTable { by_owner, spare, awaited, bridge: Some((1, 3)), recorded: 4 }
    }

    /// The clause that the check reports once stream 1 was changed, or "nothing".
    fn said_of_stream(change: impl FnOnce(&mut StreamEvents)) -> &'static str {
        said(|table| change(table.by_owner.get_mut(&1).expect("there")), NO_STREAM)
    }

    /// The clause that the check reports once the table was changed, or "nothing".
    fn said(change: impl FnOnce(&mut EventTable), sole: u32) -> &'static str {
        let mut table = table();
        change(&mut table);
        table.check(sole).map_or_else(|violation| violation.clause, |()| "nothing")
    }

    #[test]
    fn each_violation_of_a_stream_is_reported() {
        assert_eq!(said_of_stream(|_| ()), "nothing");
        assert_eq!(said_of_stream(|stream| stream.done = 4), "no event is done before it was recorded");
        let clause = "pending events have rising tickets above the last one done";
        assert_eq!(said_of_stream(|stream| stream.done = 2), clause);
        let again = |stream: &mut StreamEvents| {
            stream.recorded = 2;
            stream.push(RawEvent(6));
        };
        assert_eq!(said_of_stream(again), clause);
        let clause = "no pending event has a ticket that was never issued";
        assert_eq!(said_of_stream(|stream| stream.recorded = 2), clause);
    }

    #[test]
    fn each_violation_of_the_table_is_reported() {
        let clause = "an event is pending on one stream or spare, once";
        assert_eq!(said(|table| table.spare.push(RawEvent(5)), NO_STREAM), clause);
        assert_eq!(said(|table| table.spare.push(RawEvent(4)), NO_STREAM), clause);
        let clause = "an event that a thread waits for is in the table";
        assert_eq!(said(|table| table.awaited.push(RawEvent(6)), NO_STREAM), clause);
        let clause = "the bridge is an event that was recorded on a stream";
        assert_eq!(said(|table| table.bridge = Some((1, 4)), NO_STREAM), clause);
        assert_eq!(said(|table| table.bridge = Some((3, 0)), NO_STREAM), clause);
        let clause = "the only stream is not closed, and there is no other";
        assert_eq!(said(|_| (), 1), clause);
        // Leaves stream 1 as the only one, in state `standing`: removes stream 2 and the waits for its event.
        let alone = |table: &mut EventTable, standing| {
            table.by_owner.remove(&2);
            table.awaited.clear();
            table.by_owner.get_mut(&1).expect("there").standing = standing;
        };
        assert_eq!(said(|table| alone(table, StreamState::Open), 1), "nothing");
        assert_eq!(said(|table| alone(table, StreamState::Closed), 1), clause);
        assert_eq!(said(|table| alone(table, StreamState::Open), 2), clause);
    }
}
