//! What an error says to people: each number and each name that it has.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::fmt::Display;
use terrace_tiers::Error;
use terrace_tiers::detect::TierKind;
use terrace_tiers::ledger::{Refusal, RefusalReason, Rejected, SetupError};

/// Texts that are different, and have these words.
fn say<E: Display>(errors: impl IntoIterator<Item = (E, &'static [&'static str])>) {
    let mut texts = BTreeSet::new();
    for (error, words) in errors {
        let text = error.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "{text}: {word} is missing"));
        assert!(texts.insert(text.clone()), "two errors say: {text}");
    }
}

#[test]
fn each_error_of_a_manager_says_its_numbers_and_names() {
    let no_room = Error::NoRoom { tier: 3 };
    let suspended = Error::Suspended { tier: 2, left: 3001, why: Box::new(no_room.clone()) };
    assert_eq!(suspended.source().map(ToString::to_string), Some(no_room.to_string()));
    assert!(Error::Leased.source().is_none());
    let named = |name: &str| format!("{name}_17");
    let errors: [(Error, &[&str]); 22] = [
        (suspended, &["tier 2", "3001 ms", "no room in tier 3"]),
        (no_room, &["tier 3", "raise its capacity"]),
        (Error::Memory(std::io::ErrorKind::OutOfMemory), &["out of memory", "lower `memory`"]),
        (Error::TooMany { buffers: 4002 }, &["4002 buffers", "raise `memory` or `chunk`"]),
        (Error::Freed, &["freed"]),
        (Error::OtherManager, &["another manager"]),
        (Error::Leased, &["give it back"]),
        (Error::OutOfBounds { offset: 5003, bytes: 604, of: 705 }, &["604 bytes", "from 5003", "705"]),
        (Error::PinnedCap { asked: 806, pinned: 907, cap: 1008 }, &["806 bytes", "907", "1008", "raise `pinned_cap`"]),
        (Error::NoTier("of files"), &["of files", "when the manager is built"]),
        (Error::Absent(TierKind::Nvme), &["no nvme here", "`terrace tiers`"]),
        (Error::Mapped, &["copy it into a buffer"]),
        (Error::Unnamed, &["allocate it by name"]),
        (Error::NameTaken(named("taken")), &["taken_17", "choose another name"]),
        (Error::Twice(named("twice")), &["twice_17", "two directories"]),
        (Error::Chunks { name: named("chunks"), bytes: 4096 }, &["chunks_17", "4096 bytes"]),
        (Error::BadBuffer(named("bad")), &["bad_17", "use another directory"]),
        (Error::NoSuchName(named("none")), &["none_17", "`list`"]),
        (Error::BadName { bytes: 0, most: 409 }, &["0 bytes", "409"]),
        (Error::Closed, &["closed"]),
        (Error::Panicked, &["report it"]),
        (Error::Forked, &["in the child"]),
    ];
    say(errors);
}

#[test]
fn each_error_of_a_ledger_says_its_numbers_and_what_to_do() {
    let refused = |reason| Refusal { reason, requested: 8001, largest: 702 };
    say::<Refusal>([
        (refused(RefusalReason::Empty), &["0 bytes"] as &[_]),
        (refused(RefusalReason::TooLarge), &["8001 bytes", "702 at most"]),
        (refused(RefusalReason::OverCap), &["8001 bytes", "cap", "702"]),
        (refused(RefusalReason::NoRoom), &["8001 bytes", "702 are free", "or wait"]),
        (refused(RefusalReason::Cancelled), &["8001 bytes", "cancelled"]),
    ]);
    say::<Rejected>([
        (Rejected::Stale, &["freed"] as &[_]),
        (Rejected::NoSuchTier, &["tier"]),
        (Rejected::NoSuchTenant, &["tenant"]),
        (Rejected::TicketInUse, &["another number"]),
        (Rejected::NoSuchTicket, &["ticket"]),
        (Rejected::Leased, &["give it back"]),
        (Rejected::Moving, &["wait"]),
        (Rejected::NotUnderWay, &["under way"]),
        (Rejected::Buffers, &["4294967295"]),
    ]);
    say::<SetupError>([
        (SetupError::NoTiers, &["name one"] as &[_]),
        (SetupError::TooManyTiers, &["8 tiers"]),
        (SetupError::Tenants, &["65535"]),
        (SetupError::Guaranteed { tier: 4, guaranteed: 9001, capacity: 8002 }, &["tier 4", "9001 bytes", "8002"]),
    ]);
}
