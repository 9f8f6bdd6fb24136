//! A thousand kills at random moments, each way: the survivor reads whole bytes or a typed error, and nothing is left.

use crate::children::play;
use crate::common::{by, descriptors, left, name, refused, uid};
use std::thread::sleep;
use std::time::Duration;
use terrace_shm::{SharedBuffer, ShmError, Way};

const KILLS: u32 = 1000;

/// Bytes are whole when one number is in all words. Counts buffers that a writer left torn.
fn look(buffer: &SharedBuffer, torn: &mut u32) {
    match buffer.read::<u64>(..) {
        Ok(lease) => assert!(lease.iter().all(|number| *number == lease[0]), "half new"),
        Err(ShmError::Torn { .. }) => {
            *torn += 1;
            buffer.write_after_crash::<u64>(..).expect("a lease").fill(7);
            assert!(buffer.read::<u64>(..).expect("whole").iter().all(|number| *number == 7));
        }
        Err(error) => panic!("{error}"),
    }
}

/// Kills a writer of a buffer that this process holds.
fn kill_a_writer(buffer: &SharedBuffer, random: &mut fastrand::Rng, torn: &mut u32) {
    let mut writer = play("write", buffer.way(), buffer.name());
    if random.bool() {
        writer = writer.ready();
    }
    sleep(Duration::from_micros(random.u64(0..3000)));
    look(buffer, torn);
    writer.kill();
    look(buffer, torn);
    let holders = buffer.holders().expect("holders");
    assert!(holders.iter().all(|holder| holder.alive == (holder.pid == std::process::id())));
}

/// Kills a creator that writes, while this process opens its buffer.
fn kill_a_creator(way: Way, name: &str, random: &mut fastrand::Rng, torn: &mut u32) {
    let mut creator = play("create-and-write", way, name);
    if random.bool() {
        creator = creator.ready();
    }
    sleep(Duration::from_micros(random.u64(0..3000)));
    let before = SharedBuffer::open(name);
    creator.kill();
    match before {
        Ok(buffer) => look(&buffer, torn),
        Err(ShmError::NotFound { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    assert!(matches!(refused(SharedBuffer::open(name)), ShmError::NotFound { .. }));
}

fn survive(way: Way) {
    let mut random = fastrand::Rng::with_seed(way as u64 + 1);
    let mut torn = 0;
    let (held, created) = (name("killed"), name("creator-killed"));
    let buffer = by(way).create(&held, 1 << 16).unwrap();
    for kill in 0..KILLS {
        if kill % 2 == 0 {
            kill_a_writer(&buffer, &mut random, &mut torn);
        } else {
            kill_a_creator(way, &created, &mut random, &mut torn);
        }
    }
    drop(buffer);
    println!("{torn} of {KILLS} kills left a torn buffer");
    assert!(torn > 0 || way == Way::File, "no kill hit a write");
    for name in [&held, &created] {
        assert!(matches!(refused(SharedBuffer::open(name)), ShmError::NotFound { .. }));
        assert_eq!(left(&format!("{}{name}", if way == Way::Memfd { "" } else { "." })), [""; 0], "{}", uid());
        let open = descriptors().into_iter().filter(|to| to.contains(name.as_str())).collect::<Vec<_>>();
        assert_eq!(open, [""; 0]);
    }
}

#[test]
fn a_thousand_kills_leave_sealed_memory_whole_or_told_and_nothing_behind() {
    survive(Way::Memfd);
}

#[test]
fn a_thousand_kills_leave_a_file_whole_or_told_and_the_next_open_cleans_up() {
    survive(Way::File);
}
