//! The manager of tiers over the simulated driver: every byte is right on every kind of device; when calls are refused, a read is
//! right or an error; a lost device loses what was only there, and says so.

use super::transfers::{PERMANENT, TRANSIENT};
use super::{open, small};
use terrace_device::{Device, DeviceOptions};
use terrace_tests::Random;
use terrace_tests::simcuda::{Session, Simulator};
use terrace_tiers::detect::TierKind;
use terrace_tiers::manager::DeviceLease;
use terrace_tiers::{Buffer, Error, Manager};

const CHUNK: usize = 16 << 10;
const MIB: u64 = 1 << 20;

/// 1 MiB on the device, 1 MiB of memory, 16 MiB of files; where the memory is shared, 1 MiB in all.
fn manager(device: &Device, path: &std::path::Path) -> Manager {
    let builder = Manager::builder().memory(MIB).directory_of(path, 16 * MIB).chunk(CHUNK);
    let shared = device.description().capabilities.contains(terrace_device::Capabilities::INTEGRATED);
    let builder = if shared { builder.device(device) } else { builder.device_of(device, MIB) };
    builder.maintenance_interval(std::time::Duration::ZERO).build().expect("it is built")
}

/// The bytes of a lease, read on a stream that it is lent to.
fn at(device: &Device, lease: &DeviceLease<'_>) -> Vec<u8> {
    let stream = device.stream().expect("a stream");
    let mut read = vec![0; lease.bytes() as usize];
    // Refusals that a test has armed are not what is looked at here.
    while lease.lend(&stream).is_err() {}
    // SAFETY: the lease is held.
    let block = unsafe { device.wrap(&stream, lease.address(), lease.bytes(), None) }.expect("a block");
    while block.read(0, &mut read).is_err() {}
    read
}

/// Buffers beside vectors that should be the same.
struct Twins {
    manager: Manager,
    buffers: Vec<(Buffer, Vec<u8>)>,
    random: Random,
}

impl Twins {
    fn new(manager: Manager, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let buffer = |i| {
            let bytes = 1 + random.below(200_000);
            let buffer = manager.allocate_named(&format!("buffer {i}"), bytes).expect("room");
            (buffer, vec![0; bytes as usize])
        };
        let buffers = (0..24).map(buffer).collect();
        Self { manager, buffers, random }
    }

    /// One thing with one buffer. An error leaves the bytes as they were.
    fn step(&mut self, device: &Device) -> Result<(), Error> {
        let at_which = self.random.below(self.buffers.len() as u64) as usize;
        let (what, number) = (self.random.below(10), self.random.below(u64::MAX));
        let tiers = self.manager.tiers().len() as u64;
        let (buffer, model) = &mut self.buffers[at_which];
        let offset = (number % model.len() as u64) as usize;
        let len = (number >> 32) as usize % (model.len() - offset + 1);
        match what {
            0..=2 => {
                let part = vec![number as u8; len];
                buffer.write(offset as u64, &part)?;
                model[offset..offset + len].fill(number as u8);
            }
            3 | 4 => {
                let mut part = vec![0; len];
                buffer.read(offset as u64, &mut part)?;
                assert!(part == model[offset..offset + len], "other bytes");
            }
            5 => assert!(buffer.lease_best()?[..] == model[..], "other bytes in memory"),
            6 => {
                let lease = buffer.lease_device()?;
                assert!(at(device, &lease) == *model, "other bytes on the device");
            }
            7 => self.manager.promote(buffer, (number % tiers) as u8)?,
            8 if number.is_multiple_of(3) => drop(buffer.lease_device_mut()?),
            8 => self.manager.demote(buffer, (number % tiers) as u8)?,
            _ => self.manager.sync(buffer)?,
        }
        Ok(())
    }

    /// Reads all. How many could not be.
    fn read_all(&self) -> usize {
        let wrong = |(buffer, model): &&(Buffer, Vec<u8>)| {
            let mut read = vec![0; model.len()];
            match buffer.read(0, &mut read) {
                Ok(()) => assert!(read == *model, "other bytes"),
                Err(error) => assert!(matches!(error, Error::Device(_)), "{error}"),
            }
            read != *model
        };
        self.buffers.iter().filter(wrong).count()
    }
}

#[test]
fn buffers_are_the_same_on_every_kind_of_device() {
    for profile in ["discrete", "orin", "wsl2", "vgpu"] {
        let _session = Simulator::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        let (device, directory) = (open(0, small()).expect("a device"), tempfile::tempdir().expect("a directory"));
        let mut twins = Twins::new(manager(&device, directory.path()), 7);
        let tiers = twins.manager.tiers();
        assert_eq!(tiers.len(), if profile == "orin" { 2 } else { 3 }, "{profile}: {tiers:?}");
        for step in 0..600 {
            twins.step(&device).unwrap_or_else(|error| panic!("{profile}, step {step}: {error}"));
        }
        assert_eq!(twins.read_all(), 0);
        twins.manager.check().expect("sound");
        let moves = twins.manager.move_stats();
        assert!(moves.up > 20 && moves.down + moves.dropped > 20, "{profile}: {moves:?}");
        drop(twins);
        assert_eq!(device.stats().pool.in_use + device.stats().pinned.in_use, 0, "{profile}: all of it went back");
    }
}

/// Arms refusals of the calls that move bytes.
fn arm(session: &Session, random: &mut Random, calls: u64, permille: u64) {
    for name in ["cuMemcpyAsync", "cuMemcpyBatchAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemCreate"] {
        for nth in 1..=calls {
            match random.below(1000) {
                chance if chance < permille / 4 => session.fail(name, nth, PERMANENT),
                chance if chance < permille => session.fail(name, nth, TRANSIENT),
                _ => {}
            }
        }
    }
}

#[test]
fn when_the_driver_refuses_a_read_is_right_or_an_error_and_nothing_is_lost() {
    let mut refused = 0;
    for seed in 0..6 {
        let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
        let (device, directory) = (open(0, small()).expect("a device"), tempfile::tempdir().expect("a directory"));
        let mut twins = Twins::new(manager(&device, directory.path()), seed);
        arm(&session, &mut Random::new(seed), 4_000, 50);
        for now in 0..400 {
            match twins.step(&device) {
                Ok(()) => {}
                Err(Error::Device(_)) => refused += 1,
                // A tier into which a copy failed rests.
                Err(Error::NoRoom { .. } | Error::Suspended { .. } | Error::NoTier(_)) => {}
                Err(error) => panic!("seed {seed}, step {now}: {error:?}"),
            }
            twins.manager.tick(now * 1_000);
        }
        session.fail("*", 0, 0);
        (400..440).for_each(|now| twins.manager.tick(now * 60_000));
        assert_eq!(twins.read_all(), 0, "seed {seed}");
        twins.manager.check().expect("sound");
    }
    assert!(refused > 5, "{refused} refusals were seen");
}

#[test]
fn a_lost_device_takes_only_what_was_nowhere_else() {
    let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks(); // the driver takes nothing back from a lost context
    let (device, directory) = (open(0, small()).expect("a device"), tempfile::tempdir().expect("a directory"));
    let manager = manager(&device, directory.path());
    let allocate = |name| manager.allocate_named(name, 100_000).expect("room");
    let (synced, both, only) = (allocate("synced"), allocate("both"), allocate("only"));
    for (seed, buffer) in [&synced, &both, &only].into_iter().enumerate() {
        buffer.write(0, &vec![seed as u8 + 1; 100_000]).expect("written");
    }
    manager.sync(&synced).expect("durable");
    let device_tier = manager.tier(TierKind::Gpu).expect("a device");
    manager.promote(&synced, device_tier).expect("room");
    manager.promote(&both, device_tier).expect("room");
    // Written on the device: what memory has of it is old.
    drop(only.lease_device_mut().expect("room"));
    session.lose(0, 700);
    let read = |buffer: &Buffer| {
        let mut read = vec![0; 100_000];
        buffer.read(0, &mut read).map(|()| read)
    };
    assert_eq!(read(&synced), Ok(vec![1; 100_000]));
    assert_eq!(read(&both), Ok(vec![2; 100_000]));
    let error = read(&only).expect_err("it was on the device");
    assert!(matches!(error, Error::Device(_)) && error.to_string().contains("lost"), "{error}");
    assert!(matches!(manager.sync(&only), Err(Error::Device(_))));
    both.write(0, &[9; 10]).expect("memory is there");
    manager.sync(&both).expect("durable");
    drop((synced, both, only, manager));
    // Another manager, without the device.
    let manager = Manager::builder().memory(MIB).directory_of(directory.path(), 16 * MIB).build().expect("it is built");
    assert_eq!(read(&manager.open("synced").expect("there")), Ok(vec![1; 100_000]));
    assert_eq!(read(&manager.open("both").expect("there")).map(|read| (read[9], read[10])), Ok((9, 2)));
}

/// A device that takes memory back may release what it wrapped before; the release may use the manager.
#[test]
fn a_release_that_drops_the_last_handle_of_a_buffer_runs_without_the_manager_s_lock() {
    for profile in ["discrete", "orin"] {
        let session = Simulator::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        let device = open(0, small()).expect("a device");
        let builder = Manager::builder().memory(4 * MIB).maintenance_interval(std::time::Duration::ZERO);
        let builder = if profile == "orin" { builder.device(&device) } else { builder.device_of(&device, 4 * MIB) };
        let manager = builder.build().expect("it is built");
        // More than the caches of streams keep, and than the frees after which the pool looks for what may be released.
        let buffers: Vec<_> = (0..200).map(|_| manager.allocate(16 << 10).expect("room")).collect();
        let last = manager.allocate(1000).expect("room");
        let (home, user) = (device.stream().expect("a stream"), device.stream().expect("another"));
        let [memory, mut work] = [&home, &user].map(|stream| device.allocate(stream, MIB).expect("a block"));
        let release = Box::new(move |_, _| drop(last));
        // SAFETY: the memory is a block's that outlives the wrapped one, and nothing is put on either.
        let wrapped = unsafe { device.wrap(&home, memory.address(), MIB, Some(release)) }.expect("wrapped");
        wrapped.used_on(&user).expect("the same device");
        session.hold();
        work.fill(0, MIB, 1).expect("queued");
        drop(wrapped);
        assert_eq!(manager.list().len(), 201, "{profile}: the other stream uses the memory");
        session.release();
        user.synchronize().expect("done");
        let (tell, hear) = std::sync::mpsc::channel();
        // Not joined when it hangs.
        std::thread::spawn(move || {
            drop(buffers);
            tell.send(())
        });
        assert!(
            hear.recv_timeout(std::time::Duration::from_secs(10)).is_ok(),
            "{profile}: the manager waits for itself"
        );
        assert_eq!(manager.list(), [], "{profile}: the release has dropped the last handle");
        drop((memory, work));
    }
}

#[test]
fn a_tier_has_no_more_than_the_device_may_take_and_evicts_when_that_is_full() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let capped = DeviceOptions { capacity: 6 * MIB, ..small() };
    let (device, directory) = (open(0, capped).expect("a device"), tempfile::tempdir().expect("a directory"));
    let builder = Manager::builder().device(&device).memory(8 * MIB).directory_of(directory.path(), 64 * MIB);
    let manager = builder.maintenance_interval(std::time::Duration::ZERO).build().expect("it is built");
    let capacity = || manager.tiers()[0].view.capacity;
    assert_eq!(capacity(), 3 * MIB, "half of what the device may take");
    let buffers: Vec<_> = (0..24).map(|_| manager.allocate(MIB / 2).expect("room")).collect();
    for (seed, buffer) in buffers.iter().enumerate() {
        buffer.write(0, &[seed as u8; 100]).expect("written");
        manager.promote(buffer, 0).expect("others are evicted");
        let device = manager.tiers()[0].view;
        assert!(device.used > 2 * MIB && device.suspended_until.is_none(), "{device:?}");
    }
    // Maintenance keeps it below what is left when others use the same device.
    let stream = device.stream().expect("a stream");
    let _others = device.allocate(&stream, 2 * MIB).expect("room beside the tier");
    (1..=40).for_each(|now| manager.tick(now * 250));
    assert_eq!(capacity(), 3 * MIB);
    for (seed, buffer) in buffers.iter().enumerate() {
        let mut read = [0; 100];
        buffer.read(0, &mut read).expect("read");
        assert_eq!(read, [seed as u8; 100]);
    }
    manager.check().expect("sound");
}
