//! Ticket to id: an open hash table in lent records.
//!
//! Promises upward: insert, remove O(1) on average while a quarter is free; no tombstones, so it does not wear out.
//! Asks from below: nothing. Tickets never come twice, so no insert replaces.
//!
//! Invariants: a record is in use iff `id_plus_one != 0`; between the home of a ticket and its place every record is in
//! use (linear probing; a removal closes the gap it makes).

use crate::error::{Violation, ensure};

/// One live block of a traced allocator. 16 bytes; opaque to callers, which only lend room for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdRecord {
    ticket: u64,
    id_plus_one: u64,
}

#[derive(Debug)]
pub(super) struct Ids<T> {
    table: T,
    /// Records in use.
    len: usize,
}

/// 2^64 divided by the golden ratio: neighbouring tickets land far apart.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where a ticket would like to be: the high half of the product, scaled to the table.
fn home(ticket: u64, records: usize) -> usize {
    let spread = ticket.wrapping_mul(GOLDEN) >> 32;
    // Below records: a 32-bit fraction times the length (which is below 2^32 in any table worth having).
    ((u128::from(spread) * records as u128) >> 32) as usize
}

impl<T: AsRef<[IdRecord]> + AsMut<[IdRecord]>> Ids<T> {
    pub(super) fn new(mut table: T) -> Self {
        table.as_mut().fill(IdRecord::default());
        Self { table, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= self.table.as_ref().len()
    }

    /// Adds a ticket that is not there. Nothing happens in a full table (callers ask first).
    pub(super) fn insert(&mut self, ticket: u64, id: u64) {
        if self.is_full() {
            return;
        }
        let table = self.table.as_mut();
        let mut at = home(ticket, table.len());
        while table[at].id_plus_one != 0 {
            at = (at + 1) % table.len();
        }
        table[at] = IdRecord { ticket, id_plus_one: id + 1 };
        self.len += 1;
    }

    /// Takes a ticket out.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<u64> {
        let table = self.table.as_mut();
        let mut at = table.len().checked_sub(1).map(|_| home(ticket, table.len()))?;
        for _ in 0..table.len() {
            let record = table[at];
            if record.id_plus_one == 0 {
                return None;
            }
            if record.ticket == ticket {
                close_gap(table, at);
                self.len -= 1;
                return Some(record.id_plus_one - 1);
            }
            at = (at + 1) % table.len();
        }
        None
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let table = self.table.as_ref();
        let mut used = 0;
        for (place, record) in table.iter().enumerate().filter(|(_, record)| record.id_plus_one != 0) {
            used += 1;
            let mut at = home(record.ticket, table.len());
            while at != place {
                ensure(table[at].id_plus_one != 0, "ids: no gap between a ticket's home and its place", place)?;
                at = (at + 1) % table.len();
            }
        }
        ensure(used == self.len, "ids: len = records in use", used)
    }
}

/// Empties a record and moves up those behind it that would rather be there.
fn close_gap(table: &mut [IdRecord], mut gap: usize) {
    let records = table.len();
    let mut at = gap;
    for _ in 1..records {
        at = (at + 1) % records;
        if table[at].id_plus_one == 0 {
            break;
        }
        // May move iff its home is not strictly between the gap and its place, going round.
        let from_home = (at + records - home(table[at].ticket, records)) % records;
        let from_gap = (at + records - gap) % records;
        if from_home >= from_gap {
            table[gap] = table[at];
            gap = at;
        }
    }
    table[gap] = IdRecord::default();
}
