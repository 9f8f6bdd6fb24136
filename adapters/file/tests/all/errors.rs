//! What an error says to people: each number and each name that it has.

use std::collections::BTreeSet;
use terrace_file::{FileFault, FileFaultReason, StoreError, StoreFile};

#[test]
fn each_error_of_a_store_says_its_numbers_its_file_and_nothing_that_another_says() {
    let file = StoreFile::Log(0x417);
    let name = &*file.to_string();
    assert!(name.contains("417"), "{name}");
    let fault =
        FileFault { call: "fallocate", file: name.into(), offset: 8192, code: 28, reason: FileFaultReason::Full };
    let says: [(StoreError, &[&str]); 14] = [
        (StoreError::Full { asked: 1001, largest: 902, cap: 5003 }, &["1001 bytes", "902", "5003", "raise the cap"]),
        (StoreError::Fault(fault), &["fallocate", name, "28"]),
        (StoreError::Damaged { file }, &[name, "restore it"]),
        (StoreError::Foreign { file }, &[name, "another directory", "nothing was changed"]),
        (StoreError::Older { file, version: 31 }, &[name, "31", "earlier version", "nothing was changed"]),
        (StoreError::Newer { file, version: 32 }, &[name, "32", "later version", "nothing was changed"]),
        (StoreError::OtherStore { file }, &[name, "move it away", "nothing was changed"]),
        (StoreError::LogGone { file }, &[name, "copy what you need"]),
        (StoreError::BadNumber { file }, &[name, "move it away"]),
        (StoreError::CapTooSmall { needs: 6004, cap: 5003 }, &["6004 bytes", "5003", "raise the cap"]),
        (StoreError::BadOptions("slabs of 3 bytes"), &["slabs of 3 bytes"]),
        (StoreError::OtherPiece, &["into this one"]),
        (StoreError::MetaTooLong { bytes: 705, most: 406 }, &["705 bytes", "406"]),
        (StoreError::TooLarge { asked: 807, most: 508 }, &["807 bytes", "508"]),
    ];
    let mut texts = BTreeSet::new();
    for (error, words) in says {
        let text = error.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "{error:?} does not say {word}: {text}"));
        assert!(texts.insert(text), "{error:?} says what another does");
    }
}
