//! The lease word beside a plain record of its state, in one thread; `loom_lease` has the interleavings.

use proptest::prelude::*;
use terrace_core::lease::{LeaseError, LeaseWord};

#[derive(Clone, Copy, Debug)]
enum Call {
    Share,
    Unshare,
    Exclude,
    Include,
    Brief { yields: bool },
    BriefExclude,
    BriefRelease,
    WantBrief,
    Count,
    Uncount,
    Close,
    Reopen,
    Visits,
}

const CALLS: [Call; 14] = [
    Call::Share,
    Call::Unshare,
    Call::Exclude,
    Call::Include,
    Call::Brief { yields: false },
    Call::Brief { yields: true },
    Call::BriefExclude,
    Call::BriefRelease,
    Call::WantBrief,
    Call::Count,
    Call::Uncount,
    Call::Close,
    Call::Reopen,
    Call::Visits,
];

/// The state that the word must have, as plain fields.
#[derive(Default)]
struct Record {
    shared: u32,
    exclusive: bool,
    /// Number of brief leases.
    briefs: u32,
    /// The only brief lease is exclusive.
    alone: bool,
    counted: bool,
    closed: bool,
    wanted: bool,
    visits: u8,
}

impl Record {
    /// A lease is held that is not brief.
    fn kept(&self) -> bool {
        self.shared > 0 || self.exclusive
    }

    fn held(&self) -> bool {
        self.kept() || self.briefs > 0
    }

    /// The error for a lease that excludes leases that are not brief (`kept`), and `brief` ones.
    fn refusal(&self, kept: bool, brief: bool) -> Result<(), LeaseError> {
        match () {
            () if self.closed => Err(LeaseError::Closed),
            () if kept => Err(LeaseError::Busy),
            () if brief => Err(LeaseError::Brief),
            () => Ok(()),
        }
    }

    fn counted(&self) -> Result<(), LeaseError> {
        if self.counted { Ok(()) } else { Err(LeaseError::Uncounted) }
    }

    fn visit(&mut self) {
        self.visits = (self.visits + 1).min(3);
    }
}

/// Makes one call on both; skips releases without a holder.
fn both(call: Call, lease: &LeaseWord, record: &mut Record) {
    match call {
        Call::Share => {
            let expected = record.refusal(record.exclusive, record.alone).and_then(|()| record.counted());
            assert_eq!(lease.acquire_shared(), expected);
            if expected.is_ok() {
                record.shared += 1;
                record.visit();
            }
        }
        Call::Unshare if record.shared > 0 => {
            record.shared -= 1;
            assert_eq!(lease.release_shared(), !record.held() && record.wanted);
        }
        Call::Exclude => {
            let expected = record.refusal(record.kept(), record.held()).and_then(|()| record.counted());
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
        Call::Brief { yields } => {
            let others = record.alone || yields && record.wanted && record.briefs > 0;
            let expected = record.refusal(record.exclusive, others);
            assert_eq!(lease.acquire_brief(yields), expected);
            if expected.is_ok() {
                record.briefs += 1;
                record.visit();
            }
        }
        Call::BriefExclude => {
            let expected = record.refusal(record.kept(), record.held());
            assert_eq!(lease.acquire_brief_exclusive(), expected);
            if expected.is_ok() {
                (record.briefs, record.alone) = (1, true);
                record.visit();
            }
        }
        Call::BriefRelease if record.briefs > 0 => {
            record.briefs -= 1;
            record.alone = false;
            let told = record.briefs == 0 && record.wanted;
            assert_eq!(lease.release_brief(), told);
            record.wanted &= !told;
        }
        Call::WantBrief => {
            assert_eq!(lease.want_brief(), record.briefs > 0);
            record.wanted |= record.briefs > 0;
        }
        Call::Unshare | Call::Include | Call::BriefRelease => {}
        Call::Count => {
            let expected = if record.closed { Err(LeaseError::Closed) } else { Ok(!record.counted) };
            assert_eq!(lease.set_counted(), expected);
            record.counted |= !record.closed;
        }
        Call::Uncount => {
            let expected = if record.kept() { Err(LeaseError::Busy) } else { Ok(record.counted) };
            assert_eq!(lease.clear_counted(), expected);
            record.counted &= record.kept();
        }
        Call::Close => close(lease, record),
        Call::Reopen => {
            lease.reopen();
            record.closed = false;
        }
        Call::Visits => assert_eq!(lease.take_visits(), std::mem::take(&mut record.visits)),
    }
    lease.check().expect("every invariant holds");
    let shared = record.shared > 0 || record.briefs > 0 && !record.alone;
    assert_eq!((lease.is_held(), lease.is_kept(), lease.is_shared()), (record.held(), record.kept(), shared));
    assert_eq!((lease.is_closed(), lease.is_counted()), (record.closed, record.counted));
}

fn close(lease: &LeaseWord, record: &mut Record) {
    let expected = match () {
        () if record.closed => Err(LeaseError::Closed),
        () if record.kept() => Err(LeaseError::Busy),
        () if record.held() => Err(LeaseError::Brief),
        () => Ok(record.counted),
    };
    assert_eq!(lease.close(), expected);
    match expected {
        Ok(_) => (record.closed, record.counted, record.wanted) = (true, false, false),
        Err(refused) => record.wanted |= refused != LeaseError::Closed,
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

#[test]
fn each_refusal_says_what_to_do() {
    for (refused, words) in [
        (LeaseError::Closed, "wait until they are, then try again"),
        (LeaseError::Busy, "another holder has a lease"),
        (LeaseError::Brief, "a call or a copy has a brief lease"),
        (LeaseError::Uncounted, "count them, then try again"),
        (LeaseError::TooMany, "there are 65535 shared leases"),
    ] {
        assert!(refused.to_string().contains(words), "{refused}");
    }
}
