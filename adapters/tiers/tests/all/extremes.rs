//! Numbers at the ends of their types: each call says what is wrong with them, and nothing is lost.
#![cfg(target_os = "linux")]

use terrace_tiers::ledger::PlacementHint;
use terrace_tiers::{BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;

#[test]
fn extreme_arguments_are_refused_and_leave_everything_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(8 * MIB).directory_of(directory.path(), 64 * MIB);
    let manager = builder.build().expect("it is built");
    let buffer = manager.allocate_named("a", MIB).expect("room");
    buffer.write(0, &[7; 100]).expect("written");
    for bytes in [0, u64::MAX, 1 << 44, 1 << 43] {
        let refused = manager.allocate(bytes).map(drop);
        assert!(matches!(refused, Err(Error::Refused(_) | Error::Rejected(_))), "{bytes}: {refused:?}");
    }
    let outside = |told: Result<(), Error>| assert!(matches!(told, Err(Error::OutOfBounds { .. })), "{told:?}");
    outside(buffer.read(u64::MAX, &mut [0; 2]));
    outside(buffer.read(u64::MAX, &mut []));
    outside(buffer.write(MIB - 1, &[1, 2]));
    outside(buffer.read_async(1, usize::MAX).wait().map(drop));
    assert_eq!((buffer.read(MIB, &mut []), buffer.write(MIB, &[])), (Ok(()), Ok(())));
    for tier in [2, 9, 255] {
        assert!(manager.promote(&buffer, tier).is_err() && manager.demote(&buffer, tier).is_err());
        assert!(manager.resize(tier, 5).is_err() && buffer.lease_device_on(tier).is_err());
    }
    // Capacities and times at their ends, and back.
    for capacity in [u64::MAX, 0, 8 * MIB] {
        let resized = [0, 1].map(|tier| manager.resize(tier, if tier == 0 { capacity } else { u64::MAX }));
        assert_eq!(resized, [Ok(()), Ok(())], "{capacity}");
        // Files may take it, or not: what they cannot keep is refused when it is written.
        drop(manager.allocate(1 << 43));
        [u64::MAX, 0].into_iter().for_each(|now| manager.tick(now));
        manager.check().expect("sound");
        let leased = buffer.lease_best().map(|lease| lease[..100] == [7; 100]);
        assert!(leased == Ok(true) || capacity == 0, "{leased:?}");
    }
    assert_eq!(manager.sync(&buffer), Ok(()));
    assert_eq!((manager.list().len(), manager.tiers().len()), (1, 2));
    manager.check().expect("sound");
}

#[test]
fn errors_say_what_would_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = || Manager::builder().memory(8 * MIB).pinned_cap(MIB).directory_of(directory.path(), 64 * MIB);
    let manager = builder().build().expect("it is built");
    let told = |error: Error, parts: &[&str]| {
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
        text
    };
    // What is named as the most can be had.
    let Err(Error::Refused(refusal)) = manager.allocate(u64::MAX) else { panic!("no machine has as much") };
    let most = manager.allocate(refusal.largest).expect("it was offered");
    drop(most);
    told(Error::Refused(refusal), &[&format!("ask for {} at most", refusal.largest), "raise a capacity"]);
    let two = manager.allocate(2 * MIB).expect("room");
    told(two.lease_best().map(drop).expect_err("above the cap"), &["`pinned_cap`"]);
    let large = manager.allocate(16 * MIB).expect("files have room");
    told(
        large.lease_best().map(drop).expect_err("above memory"),
        &["large enough for the buffer", "raise its capacity"],
    );
    told(builder().build().map(drop).expect_err("it is open"), &["or by another store or manager of this one"]);
    let none = Manager::builder().memory(MIB).directory_of(directory.path().join("none"), 0).build();
    told(none.map(drop).expect_err("no file fits"), &["none: files need a cap of", "and may take 0", "raise the cap"]);
    let nowhere = Manager::builder().memory(MIB).directory_of("/proc/nowhere", 64 * MIB).build();
    told(nowhere.map(drop).expect_err("no directory can be made"), &["/proc/nowhere", "give a path"]);
    let memory = Manager::builder().memory(1 << 60).build();
    told(memory.map(drop).expect_err("no address space has it"), &["lower `memory`"]);
}

#[test]
fn files_are_full_of_chunks_whatever_the_cap() {
    for cap in [64, 96, 100, 130] {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = Manager::builder().memory(MIB).directory_of(directory.path(), cap * MIB);
        let manager = manager.build().expect("it is built");
        let held = manager.tiers()[1].view.capacity / (4 * MIB);
        assert!(held * 4 >= cap * 3 / 4, "{held} of {cap}");
        let hint = PlacementHint { tier: Some(1), keep: false };
        let one = || manager.allocate_with(4 * MIB, BufferOptions { hint, ..BufferOptions::default() });
        let buffers: Vec<_> = (0..held).map(|_| one().expect("room")).collect();
        for (at, buffer) in buffers.iter().enumerate() {
            assert_eq!(buffer.write(0, &vec![1; 4 << 20]), Ok(()), "{at} of {held}, {cap} MiB");
        }
    }
}
