//! The lease word beside a plain record of its state, in one thread; `loom_lease` has the interleavings.

use proptest::prelude::*;
use terrace_core::lease::{LeaseError, LeaseWord};

#[derive(Clone, Copy, Debug)]
enum Call {
    Share,
    Unshare,
    Exclude,
    Include,
    Count,
    Uncount,
    Close,
    Reopen,
    Unwant,
    Visits,
}

const CALLS: [Call; 10] = [
    Call::Share,
    Call::Unshare,
    Call::Exclude,
    Call::Include,
    Call::Count,
    Call::Uncount,
    Call::Close,
    Call::Reopen,
    Call::Unwant,
    Call::Visits,
];

/// The state that the word must have, as plain fields.
#[derive(Default)]
struct Record {
    shared: u32,
    exclusive: bool,
    counted: bool,
    closed: bool,
    wanted: bool,
    visits: u8,
}

impl Record {
    fn held(&self) -> bool {
        self.shared > 0 || self.exclusive
    }

    /// The error for a lease that excludes `others`.
    fn refusal(&self, others: bool) -> Result<(), LeaseError> {
        match () {
            () if self.closed => Err(LeaseError::Closed),
            () if others => Err(LeaseError::Busy),
            () if !self.counted => Err(LeaseError::Uncounted),
            () => Ok(()),
        }
    }

    fn visit(&mut self) {
        self.visits = (self.visits + 1).min(3);
    }
}

/// Makes one call on both; skips releases without a holder.
fn both(call: Call, lease: &LeaseWord, record: &mut Record) {
    match call {
        Call::Share => {
            let expected = record.refusal(record.exclusive);
            assert_eq!(lease.acquire_shared(), expected);
            if expected.is_ok() {
                record.shared += 1;
                record.visit();
            }
        }
        Call::Unshare if record.shared > 0 => {
            record.shared -= 1;
            assert_eq!(lease.release_shared(), record.shared == 0 && record.wanted);
        }
        Call::Exclude => {
            let expected = record.refusal(record.held());
            assert_eq!(lease.acquire_exclusive(), expected);
            if expected.is_ok() {
                record.exclusive = true;
                record.visit();
            }
        }
        Call::Include if record.exclusive => {
            record.exclusive = false;
            assert_eq!(lease.release_exclusive(), record.wanted);
        }
        Call::Unshare | Call::Include => {}
        Call::Count => {
            let expected = if record.closed { Err(LeaseError::Closed) } else { Ok(!record.counted) };
            assert_eq!(lease.set_counted(), expected);
            record.counted |= !record.closed;
        }
        Call::Uncount => {
            let expected = if record.held() { Err(LeaseError::Busy) } else { Ok(record.counted) };
            assert_eq!(lease.clear_counted(), expected);
            record.counted &= record.held();
        }
        Call::Close => close(lease, record),
        Call::Reopen => {
            lease.reopen();
            record.closed = false;
        }
        Call::Unwant => {
            lease.clear_wanted();
            record.wanted = false;
        }
        Call::Visits => assert_eq!(lease.take_visits(), std::mem::take(&mut record.visits)),
    }
    lease.check().expect("every invariant holds");
    assert_eq!(lease.is_held(), record.held());
}

fn close(lease: &LeaseWord, record: &mut Record) {
    let expected = match () {
        () if record.closed => Err(LeaseError::Closed),
        () if record.held() => Err(LeaseError::Busy),
        () => Ok(record.counted),
    };
    assert_eq!(lease.close(), expected);
    match expected {
        Ok(_) => (record.closed, record.counted, record.wanted) = (true, false, false),
        Err(refused) => record.wanted |= refused == LeaseError::Busy,
    }
}

proptest! {
    #[test]
    fn it_does_what_the_record_says(calls in proptest::collection::vec(0..CALLS.len(), 0..80), here in any::<bool>()) {
        let lease = if here { LeaseWord::open() } else { LeaseWord::closed() };
        let mut record = Record { closed: !here, ..Record::default() };
        for call in calls {
            both(CALLS[call], &lease, &mut record);
        }
    }
}
