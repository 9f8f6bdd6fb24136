//! Numbers at the ends of their types: each call says what is wrong with them, and nothing is lost.
#![cfg(target_os = "linux")]

use terrace_tiers::{Error, Manager};

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
