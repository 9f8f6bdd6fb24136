//! The simulated disk itself: what it keeps, what it may lose, and how it lies. A store is judged by it, so it is judged first.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use terrace_file::{Disk, DiskRequest, FileFaultReason, FramePool, StoreFile};
use terrace_tests::Random;
use terrace_tests::disk::{Fault, Kind, Planned, SimDisk, Target, World, every_cut};

const FILE: StoreFile = StoreFile::Slab(1);
const PAGE: usize = 4096;

/// A world with one file of four pages, whose name is durable.
fn world(seed: u64) -> World {
    let frames = FramePool::new(1 << 20).expect("a mapping");
    let mut world = World::new(SimDisk::new(1 << 20), frames, Random::new(seed));
    done(&mut world, DiskRequest::Create { file: FILE, bytes: 4 * PAGE as u64 });
    done(&mut world, DiskRequest::SyncDirectory);
    world
}

fn done(world: &mut World, order: DiskRequest) {
    world.ask(order).expect("answered").result.expect("done");
}

fn write(world: &World, page: u64, byte: u8) -> DiskRequest {
    let mut frame = world.frames.take(PAGE).expect("a frame");
    frame.fill(byte);
    DiskRequest::Write { file: FILE, offset: page * PAGE as u64, bytes: PAGE, frame }
}

fn read(world: &mut World, page: u64) -> Result<Vec<u8>, FileFaultReason> {
    let frame = world.frames.take(PAGE).expect("a frame");
    let order = DiskRequest::Read { file: FILE, offset: page * PAGE as u64, bytes: PAGE, frame };
    let answer = world.ask(order).expect("answered");
    let moved = answer.result.map_err(|fault| fault.reason)?;
    Ok(answer.frame.expect("the frame comes back")[..moved].to_vec())
}

/// From now on, one fault.
fn plan(world: &World, fault: Fault) {
    world.disk.plan(vec![Planned { at: world.disk.completed(), fault, on: Target::Any }]);
}

/// What pages may hold after a power cut now, sector by sector, in every combination that is met.
fn outcomes(world: &mut World, bound: u64) -> (BTreeSet<Vec<u8>>, bool) {
    let mut seen = BTreeSet::new();
    let cuts = every_cut(&world.disk, bound, &mut world.random, |disk| {
        seen.insert(disk.contents()[&FILE].chunks(512).map(|sector| sector[0]).collect());
    });
    (seen, cuts.complete)
}

/// Four pages of sectors, of which the first page holds this.
fn first_page(sectors: [u8; 8]) -> Vec<u8> {
    [&sectors[..], &[0; 24]].concat()
}

#[test]
fn what_is_written_is_read_and_without_a_sync_any_half_may_be_lost() {
    let mut world = world(1);
    let order = write(&world, 0, 7);
    done(&mut world, order);
    assert_eq!(read(&mut world, 0), Ok(vec![7; PAGE]));
    let (seen, complete) = outcomes(&mut world, 100);
    let wanted = [[0; 8], [7; 8], [7, 7, 7, 7, 0, 0, 0, 0], [0, 0, 0, 0, 7, 7, 7, 7]].map(first_page);
    assert_eq!((seen, complete), (wanted.into(), true));
    let random: BTreeSet<_> = (0..200).map(|_| world.disk.cut(&mut world.random).contents()[&FILE].clone()).collect();
    assert!(random.len() > 20, "and any sector: {} outcomes", random.len());
}

#[test]
fn what_was_synced_is_never_lost_and_what_is_under_way_may_be_there() {
    let mut world = world(2);
    let order = write(&world, 0, 7);
    done(&mut world, order);
    done(&mut world, DiskRequest::Sync { file: FILE });
    assert_eq!(outcomes(&mut world, 100).0, [first_page([7; 8])].into());
    let order = write(&world, 0, 8);
    let _answer = world.submit(order);
    let (seen, _) = outcomes(&mut world, 100);
    assert_eq!(seen.len(), 4);
    assert!(seen.contains(&first_page([8; 8])) && seen.contains(&first_page([7; 8])));
}

#[test]
fn a_sync_does_not_cover_a_write_that_was_not_answered_before_it() {
    let mut lost = 0;
    for seed in 0..50 {
        let mut world = world(seed);
        let order = write(&world, 0, 7);
        let (_written, sync) = (world.submit(order), DiskRequest::Sync { file: FILE });
        done(&mut world, sync);
        while world.step() {}
        lost += u32::from(outcomes(&mut world, 100).0.contains(&first_page([0; 8])));
    }
    assert_eq!(lost, 50, "the sync was given while the write was under way");
}

#[test]
fn of_two_writes_to_a_place_either_may_win_until_a_sync() {
    let mut world = world(3);
    for byte in [1, 2] {
        let order = write(&world, 0, byte);
        done(&mut world, order);
    }
    let (seen, complete) = outcomes(&mut world, 100);
    assert!(complete && seen.contains(&first_page([1; 8])) && seen.contains(&first_page([1, 1, 1, 1, 2, 2, 2, 2])));
    done(&mut world, DiskRequest::Sync { file: FILE });
    assert_eq!(outcomes(&mut world, 100).0, [first_page([2; 8])].into());
}

#[test]
fn names_are_durable_after_a_sync_of_names_only() {
    let mut world = world(4);
    done(&mut world, DiskRequest::Create { file: StoreFile::Log(9), bytes: PAGE as u64 });
    done(&mut world, DiskRequest::Remove { file: FILE });
    let mut seen = BTreeSet::new();
    let names = |disk: SimDisk| disk.files().expect("a disk").iter().map(|&(file, _)| file).collect::<Vec<_>>();
    every_cut(&world.disk, 100, &mut Random::new(1), |disk| _ = seen.insert(names(disk)));
    assert_eq!(seen, [vec![], vec![FILE], vec![StoreFile::Log(9)], vec![FILE, StoreFile::Log(9)]].into());
    done(&mut world, DiskRequest::SyncDirectory);
    seen.clear();
    every_cut(&world.disk, 100, &mut Random::new(1), |disk| _ = seen.insert(names(disk)));
    assert_eq!(seen, [vec![StoreFile::Log(9)]].into());
}

#[test]
fn after_a_kill_all_that_was_answered_is_read_and_nothing_is_durable_that_was_not() {
    let (mut seen, mut sizes) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..200 {
        let mut world = world(seed);
        let (first, second) = (write(&world, 0, 7), write(&world, 1, 7));
        done(&mut world, first);
        // Under way: all of it, a part of it, nothing.
        let _answers = [second, DiskRequest::Create { file: StoreFile::Log(9), bytes: 4 * PAGE as u64 }]
            .map(|order| world.submit(order));
        let next = world.disk.kill(&mut world.random);
        assert_eq!((next.completed(), world.disk.waiting()), (0, 0));
        assert_eq!(next.contents()[&FILE][..PAGE], [7; PAGE], "seed {seed}");
        seen.insert(next.contents()[&FILE][PAGE..2 * PAGE].iter().filter(|&&byte| byte == 7).count() / 512);
        sizes.insert(next.contents().get(&StoreFile::Log(9)).map(Vec::len));
        assert_eq!(outcomes_of(&next, 100), [0, 7].into(), "still volatile");
        // A sync of the next process covers what the one before wrote.
        let mut world = World::new(next, world.frames, world.random);
        done(&mut world, DiskRequest::Sync { file: FILE });
        assert_eq!(outcomes_of(&world.disk, 100), [7].into(), "seed {seed}");
    }
    assert!(seen.len() > 5 && sizes.len() == 6, "{seen:?} {sizes:?}");
}

/// What the first byte of the file may be after a power cut now.
fn outcomes_of(disk: &SimDisk, bound: u64) -> BTreeSet<u8> {
    let mut seen = BTreeSet::new();
    every_cut(disk, bound, &mut Random::new(1), |disk| _ = seen.insert(disk.contents()[&FILE][0]));
    seen
}

#[test]
fn a_failed_sync_makes_a_liar_of_the_next() {
    let mut lost = 0;
    for seed in 0..60 {
        let mut world = world(seed);
        let order = write(&world, 0, 7);
        done(&mut world, order);
        plan(&world, Fault::SyncFails);
        let failed = world.ask(DiskRequest::Sync { file: FILE }).expect("answered");
        assert_eq!(failed.result.expect_err("it fails").reason, FileFaultReason::Device);
        done(&mut world, DiskRequest::Sync { file: FILE });
        let (seen, complete) = outcomes(&mut world, 10);
        assert!(complete && seen.len() == 1, "what was kept is durable, what was dropped gone");
        lost += u32::from(seen.contains(&first_page([0; 8])));
    }
    assert!((10..50).contains(&lost), "{lost} of 60");
}

#[test]
fn a_lost_sync_is_found_out_by_a_power_cut_and_the_disk_knows_which_sectors() {
    let mut world = world(5);
    let order = write(&world, 0, 7);
    done(&mut world, order);
    plan(&world, Fault::SyncLost);
    done(&mut world, DiskRequest::Sync { file: FILE });
    let mut betrayed = 0;
    every_cut(&world.disk, 10, &mut Random::new(1), |disk| {
        let there = disk.contents()[&FILE][..PAGE].iter().all(|&byte| byte == 7);
        assert_eq!(disk.is_sound(FILE, 0, PAGE), there);
        betrayed += u32::from(!there);
    });
    assert_eq!(betrayed, 3, "of whole, nothing and two halves");
}

#[test]
fn writes_that_lie_are_known_to_the_disk() {
    for fault in [Fault::WriteLost, Fault::Misdirected, Fault::FlipDisk] {
        let mut world = world(6);
        plan(&world, fault);
        let order = write(&world, 0, 7);
        done(&mut world, order);
        assert_ne!(read(&mut world, 0), Ok(vec![7; PAGE]), "{fault:?}");
        assert!(!world.disk.is_sound(FILE, 0, PAGE), "{fault:?}");
        assert_eq!(world.disk.marks().damaged_slab_reads, 1, "{fault:?}");
        done(&mut world, DiskRequest::Sync { file: FILE });
        assert!(!world.disk.cut(&mut Random::new(1)).is_sound(FILE, 0, PAGE), "{fault:?} lasts");
        let order = write(&world, 0, 7);
        done(&mut world, order);
        assert_eq!(read(&mut world, 0), Ok(vec![7; PAGE]), "{fault:?} is over");
        assert!(world.disk.is_sound(FILE, 0, PAGE), "{fault:?}");
    }
}

#[test]
fn errors_and_short_transfers_are_told() {
    let mut world = world(7);
    plan(&world, Fault::FlipRead);
    assert_ne!(read(&mut world, 0), Ok(vec![0; PAGE]));
    assert_eq!(read(&mut world, 0), Ok(vec![0; PAGE]), "once");
    plan(&world, Fault::Short);
    assert!(read(&mut world, 0).expect("some").len() < PAGE);
    plan(&world, Fault::Error);
    assert_eq!(read(&mut world, 0), Err(FileFaultReason::Device));
    plan(&world, Fault::Full);
    let create = |bytes| DiskRequest::Create { file: StoreFile::Slab(2), bytes };
    let full =
        |world: &mut World, bytes| world.ask(create(bytes)).expect("answered").result.map_err(|fault| fault.reason);
    assert_eq!(full(&mut world, PAGE as u64), Err(FileFaultReason::Full));
    assert_eq!(full(&mut world, 1 << 20), Err(FileFaultReason::Full), "more than the disk has");
    assert_eq!(full(&mut world, PAGE as u64), Ok(0));
    plan(&world, Fault::Gone);
    assert_eq!(read(&mut world, 0), Err(FileFaultReason::Device));
    assert!((0..50).any(|_| read(&mut world, 0).is_ok()), "it comes back");
    assert_eq!(world.disk.fired(0).len() as u64, world.disk.marks().fired as u64);
    assert_eq!(world.disk.broken(), [""; 0]);
}

#[test]
fn a_slow_order_is_answered_after_others() {
    let mut waited = 0;
    for seed in 0..20 {
        let mut world = world(seed);
        plan(&world, Fault::Slow);
        let order = write(&world, 0, 1);
        let mut slow = world.submit(order);
        while world.disk.fired(0).is_empty() {
            world.step();
        }
        (0..4).for_each(|_| done(&mut world, DiskRequest::Sync { file: FILE }));
        let late = matches!(slow.try_recv(), Ok(None));
        waited += u32::from(late);
        while world.step() {}
        assert_eq!(late, matches!(slow.try_recv(), Ok(Some(_))), "it is answered, once");
        assert_eq!(read(&mut world, 0), Ok(vec![1; PAGE]));
    }
    assert!(waited > 10, "{waited} of 20 were answered after four others");
}

#[test]
fn orders_complete_in_any_order_and_the_same_seed_gives_the_same() {
    let order_of = |seed| {
        let mut world = world(seed);
        let orders: Vec<DiskRequest> = (0..4).map(|page| write(&world, page, page as u8)).collect();
        let _answers: Vec<_> = orders.into_iter().map(|order| world.submit(order)).collect();
        while world.step() {}
        world.disk.log()
    };
    let seen: BTreeSet<String> = (0..30).map(order_of).collect();
    assert!(seen.len() > 10, "{} orders", seen.len());
    assert_eq!(order_of(3), order_of(3));
}

#[test]
fn what_no_store_may_do_is_told() {
    let mut world = world(9);
    world.disk.bound(5 * PAGE as u64);
    let past = write(&world, 4, 1);
    let _ = world.ask(past);
    let _ = world.ask(DiskRequest::Sync { file: StoreFile::Log(3) });
    let _ = world.ask(DiskRequest::Create { file: StoreFile::Log(4), bytes: 2 * PAGE as u64 });
    let broken = world.disk.broken();
    assert_eq!(broken.len(), 3, "{broken:?}");
    assert!(broken[0].contains("past the end") && broken[1].contains("no such file") && broken[2].contains("allowed"));
}

#[test]
fn each_fault_fits_some_order_and_none_fits_where_it_has_no_meaning() {
    let kinds = [Kind::Create, Kind::Remove, Kind::SyncDirectory, Kind::Read, Kind::Write, Kind::Sync];
    for fault in Fault::ALL {
        assert!(kinds.iter().any(|&kind| fault.fits(kind)), "{fault:?}");
    }
    assert!(!Fault::Full.fits(Kind::Write) && !Fault::SyncLost.fits(Kind::Read));
}
