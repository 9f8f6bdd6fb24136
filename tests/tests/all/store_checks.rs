//! What the store refuses to believe, one at a time: damage made by hand, each found by one check that nothing else would
//! stand in for. (Chance rarely puts a good block at a wrong place.)
#![cfg(target_os = "linux")]

use std::sync::{Arc, OnceLock};
use terrace_file::{
    ALIGN, Change, Disk, DiskRequest, DiskResponse, FileFault, FileFaultReason, Piece, ResponseSender, Store,
    StoreError, StoreFile,
};
use terrace_tests::disk::hands::{
    BLOCKS, MARKS, RECORDS, SMALL as OPTIONS, block, close, first_byte, forge, fork, frames, keep, log, open,
    overwrite, try_open, world,
};
use terrace_tests::disk::{Fault, Planned, SimDisk, Target, World, every_cut};

/// Plans the same fault for this order and the next ones.
fn plan(world: &World, at: u64, faults: &[Fault], on: Target) {
    let planned = faults.iter().zip(at..).map(|(&fault, at)| Planned { at: world.disk.completed() + at, fault, on });
    world.disk.plan(planned.collect());
}

#[test]
fn a_good_block_at_another_place_is_not_taken() {
    let mut world = world(1, &frames());
    let store = open(&mut world);
    (1..=3).for_each(|object| keep(&mut world, &store, object, object as u8));
    close(&mut world, store);
    let file = log(&world);
    let last = block(&world, file, 3);
    overwrite(&mut world, file, 1, &last);
    assert_eq!(open(&mut world).objects(), [1, 2, 3], "the mirror has what was overwritten");
}

#[test]
fn a_good_block_of_another_log_is_not_taken() {
    let mut world = world(2, &frames());
    let store = open(&mut world);
    keep(&mut world, &store, 1, 1);
    let old = block(&world, log(&world), 1);
    close(&mut world, store);
    let store = open(&mut world);
    keep(&mut world, &store, 2, 2);
    close(&mut world, store);
    let file = log(&world);
    overwrite(&mut world, file, 1, &old);
    assert_eq!(open(&mut world).objects(), [1, 2], "the mirror has what was overwritten");
}

/// Two faults: one copy is bad, and the other cannot be read. What cannot be read may well be there.
#[test]
fn what_cannot_be_read_is_not_the_end_of_a_log() {
    for fault in [Fault::Error, Fault::Short] {
        let mut world = world(3, &frames());
        let store = open(&mut world);
        keep(&mut world, &store, 1, 1);
        keep(&mut world, &store, 2, 2);
        close(&mut world, store);
        let file = log(&world);
        overwrite(&mut world, file, 2, &[0xee; ALIGN]);
        let mut refused = 0;
        for at in 0..20 {
            let mut world = fork(&world);
            plan(&world, at, &[fault; 2], Target::Logs);
            match try_open(&mut world) {
                Ok(store) => assert_eq!(store.objects(), [1, 2], "{fault:?} at order {at}"),
                Err(StoreError::Fault(_)) => refused += 1,
                Err(other) => panic!("{fault:?} at order {at}: {other}"),
            }
            world.disk.plan(Vec::new());
            assert_eq!(open(&mut world).objects(), [1, 2], "{fault:?} at order {at}, and then none");
        }
        assert!(refused > 0, "{fault:?} never hit both reads of the good copy");
    }
}

/// A read that was short leaves the rest of the memory as it was: here, with blocks of a copy of the store that went on otherwise.
#[test]
fn what_was_not_read_is_not_believed() {
    let frames = frames();
    for (seed, at) in (0..8).flat_map(|seed| (0..12).map(move |at| (seed, at))) {
        let mut begun = world(seed, &frames);
        let store = open(&mut begun);
        close(&mut begun, store);
        let [mut ours, mut theirs] = [1, 2].map(|byte| {
            let mut world = fork(&begun);
            let store = open(&mut world);
            (1..=3).for_each(|object| keep(&mut world, &store, object, byte));
            close(&mut world, store);
            // The next log's file, all zeros: it would be read first, and leave them in the memory.
            world.ask(DiskRequest::Remove { file: StoreFile::Log(3) }).expect("answered").result.expect("removed");
            world
        });
        let store = open(&mut theirs);
        close(&mut theirs, store);
        plan(&ours, at, &[Fault::Short], Target::Logs);
        // Where it hit a write, it opens without it.
        let store = try_open(&mut ours).unwrap_or_else(|_| open(&mut ours));
        let found = [1, 2, 3].map(|object| first_byte(&store, object));
        assert_eq!(found, [Some(1); 3], "seed {seed}, order {at}");
        close(&mut ours, store);
    }
}

/// Two faults: a write of one copy is short or fails, and then the other copy goes bad.
#[test]
fn after_a_write_that_failed_a_log_has_two_good_copies_all_the_same() {
    for (seed, half) in (0..16).flat_map(|seed| [(seed, 0), (seed, BLOCKS)]) {
        for fault in [Fault::Short, Fault::Error] {
            let mut world = world(seed, &frames());
            let store = open(&mut world);
            keep(&mut world, &store, 1, 1);
            plan(&world, 0, &[fault], Target::Logs);
            keep(&mut world, &store, 2, 2);
            close(&mut world, store);
            let file = log(&world);
            (half..half + BLOCKS).for_each(|at| overwrite(&mut world, file, at, &[0xee; ALIGN]));
            let found = open(&mut world).objects();
            assert_eq!(found, [1, 2], "{fault:?}, seed {seed}: the half from block {half} on is bad");
        }
    }
}

/// A sync fails, and then the power: what was said to be durable by another try is.
#[test]
fn what_is_durable_after_a_failed_sync_survives_every_power_cut() {
    let (mut kept, mut cuts) = (0, 0);
    for at in 0..8 {
        let mut world = world(9, &frames());
        let store = open(&mut world);
        let mut frame = world.frames.take(ALIGN).expect("room");
        frame.fill(7);
        let piece = world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room");
        plan(&world, at, &[Fault::SyncFails], Target::Any);
        let change = Change::Piece { object: 1, part: 0, piece };
        if world.run(store.commit(vec![change])).expect("it ends").is_err() {
            continue;
        }
        kept += u32::from(!world.disk.fired(0).is_empty());
        world.disk.plan(Vec::new());
        let (mut left, mut random) = (Vec::new(), world.random.clone());
        every_cut(&world.disk, 64, &mut random, |disk| left.push(disk));
        for disk in left {
            let mut world = World::new(disk, world.frames.clone(), random.clone());
            let store = open(&mut world);
            let object = store.object(1).expect("it was durable");
            let part = object.parts.get(0).expect("a part");
            let read = world.run(store.get(part)).expect("it ends").expect("it is as it was put");
            assert!(read[..ALIGN].iter().all(|&byte| byte == 7), "order {at}");
            cuts += 1;
            drop((read, object));
            close(&mut world, store);
        }
    }
    assert!(kept > 0 && cuts > 8, "{kept} syncs failed, {cuts} power cuts");
}

/// A disk on which the place that is written first takes nothing, whoever writes there.
struct BadPlace {
    disk: Arc<SimDisk>,
    bad: OnceLock<(StoreFile, u64)>,
}

impl Disk for BadPlace {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        self.disk.files()
    }

    fn submit(&self, order: DiskRequest, reply: ResponseSender) {
        match order {
            DiskRequest::Write { file: file @ StoreFile::Slab(_), offset, frame, .. }
                if *self.bad.get_or_init(|| (file, offset)) == (file, offset) =>
            {
                let (call, file, reason) = ("write", file.to_string(), FileFaultReason::Device);
                let result = Err(FileFault { call, file, offset, code: 5, reason });
                let _ = reply.send(DiskResponse { result, frame: Some(frame) });
            }
            order => self.disk.submit(order, reply),
        }
    }
}

#[test]
fn where_a_write_failed_nothing_is_written_again() {
    let mut world = world(4, &frames());
    let disk = Arc::new(BadPlace { disk: Arc::clone(&world.disk), bad: OnceLock::new() });
    let join = Store::open(Arc::clone(&disk) as Arc<dyn Disk>, &world.tasks, &world.frames, OPTIONS);
    let store = world.run(join).expect("it ends").expect("it opens");
    for _ in 0..4 {
        let frame = world.frames.take(ALIGN).expect("room");
        let put = world.run(store.put(frame, ALIGN)).expect("it ends");
        put.result.expect("the second try goes elsewhere, and so does the next put");
    }
    assert!(disk.bad.get().is_some());
}

#[test]
fn what_a_frame_held_before_does_not_reach_the_disk() {
    let mut world = world(5, &frames());
    let store = open(&mut world);
    let mut frame = world.frames.take(ALIGN).expect("room");
    frame.fill(0xee);
    let piece = world.run(store.put(frame, 10)).expect("it ends").result.expect("room");
    let slab = &world.disk.contents()[&StoreFile::Slab(1)];
    assert_eq!(slab.iter().filter(|&&byte| byte == 0xee).count(), piece.bytes());
}

#[test]
fn a_read_that_stays_short_says_so() {
    let mut world = world(6, &frames());
    let store = open(&mut world);
    let mut frame = world.frames.take(4 * ALIGN).expect("room");
    frame.fill(7);
    let piece = world.run(store.put(frame, 4 * ALIGN)).expect("it ends").result.expect("room");
    // So that what was not read does not happen to be there.
    let mut other = world.frames.take(4 * ALIGN).expect("room");
    other.fill(8);
    drop(other);
    plan(&world, 0, &[Fault::Short; 2], Target::Slabs);
    let refused = world.run(store.get(&piece)).expect("it ends").map(drop);
    assert!(
        matches!(&refused, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::UnexpectedEnd),
        "{refused:?}"
    );
    world.run(store.get(&piece)).expect("it ends").expect("two reads were short, not three");
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_is_written() {
    let mut world = world(7, &frames());
    let store = open(&mut world);
    for bytes in [0, OPTIONS.slab_bytes as usize + 1] {
        let frame = world.frames.take(2 * OPTIONS.slab_bytes as usize).expect("room");
        let put = world.run(store.put(frame, bytes)).expect("it ends");
        assert!(matches!(put.result, Err(StoreError::TooLarge { asked, .. }) if asked == bytes), "{bytes}");
        assert!(put.frame.is_some());
    }
    let frame = world.frames.take(ALIGN).expect("room");
    let piece = world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room");
    let long = Change::Meta { object: 1, meta: vec![0; terrace_file::store::MAX_META_BYTES + 1] };
    let far = Change::Piece { object: 1, part: 1 << 24, piece };
    let before = world.disk.completed();
    for change in [long, far] {
        let refused = world.run(store.commit(vec![change])).expect("it ends");
        assert!(matches!(refused, Err(StoreError::MetaTooLong { .. } | StoreError::BadOptions(_))), "{refused:?}");
    }
    assert_eq!((world.disk.completed(), store.objects()), (before, vec![]));
}

#[test]
fn a_log_that_lost_what_was_durable_is_damaged_and_never_ends_there() {
    for lost in 0..3 {
        let mut world = world(10, &frames());
        let store = open(&mut world);
        (1..=3).for_each(|object| keep(&mut world, &store, object, 1));
        close(&mut world, store);
        let file = log(&world);
        [lost, lost + BLOCKS].iter().for_each(|at| overwrite(&mut world, file, *at, &[0xee; ALIGN]));
        // What follows it says that it was durable, whether or not the superblock does.
        MARKS.iter().for_each(|at| overwrite(&mut world, StoreFile::Superblock, *at, &[0; ALIGN]));
        assert_eq!(try_open(&mut world).map(drop).err(), Some(StoreError::Damaged { file }), "block {lost}");
    }
}

#[test]
fn a_log_grows_with_what_it_must_say() {
    let mut world = world(11, &frames());
    let store = open(&mut world);
    (1..=20).for_each(|object| keep(&mut world, &store, object, 1));
    close(&mut world, store);
    let bytes = world.disk.contents()[&log(&world)].len() as u64;
    assert!(bytes > OPTIONS.log_bytes, "20 objects take more than {bytes} bytes of log");
    let store = open(&mut world);
    assert_eq!(store.objects(), (1..=20).collect::<Vec<_>>());
    let all = (1..=20).map(|object| Change::Remove { object }).collect();
    world.run(store.commit(all)).expect("it ends").expect("durable");
    (1..=40).for_each(|_| keep(&mut world, &store, 1, 2));
    assert_eq!(world.disk.contents()[&log(&world)].len() as u64, OPTIONS.log_bytes, "and is small again");
    assert_eq!(world.disk.broken(), [""; 0]);
}

/// Puts pieces until there is no room, and keeps them.
fn fill(world: &mut World, store: &Store) -> Vec<Arc<Piece>> {
    let mut held = Vec::new();
    loop {
        let frame = world.frames.take(4 * ALIGN).expect("room");
        match world.run(store.put(frame, 4 * ALIGN)).expect("it ends").result {
            Ok(piece) => held.push(piece),
            Err(StoreError::Full { .. }) => return held,
            // Planned: it fails once.
            Err(StoreError::Fault(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_log_that_has_no_room_to_grow_is_refused() {
    let mut world = world(12, &frames());
    let store = open(&mut world);
    world.disk.bound(OPTIONS.cap);
    let _held = fill(&mut world, &store);
    let meta = |object| vec![Change::Meta { object, meta: vec![1; 1000] }];
    let refused = (1..1000).find_map(|object| world.run(store.commit(meta(object))).expect("it ends").err());
    assert!(matches!(refused, Some(StoreError::Full { cap, .. }) if cap == OPTIONS.cap), "{refused:?}");
    assert_eq!(world.disk.broken(), [""; 0]);
}

#[test]
fn files_never_take_more_than_the_cap_whatever_fails() {
    let loud = [Fault::Full, Fault::Error, Fault::Short, Fault::SyncFails, Fault::Gone];
    let cases = loud.into_iter().flat_map(|fault| (0..60).map(move |at| (fault, at)));
    for ((fault, at), times) in cases.flat_map(|case| [(case, 1), (case, 2)]) {
        let mut world = world(at, &frames());
        let store = open(&mut world);
        world.disk.bound(OPTIONS.cap);
        let _held = fill(&mut world, &store);
        plan(&world, at, &[fault; 2][..times], Target::Any);
        for object in 0..20 {
            let change = Change::Meta { object: object % 3, meta: vec![1; 1000] };
            // Refused or not: files are counted all the same.
            let _ = world.run(store.commit(vec![change])).expect("it ends");
        }
        assert_eq!(world.disk.broken(), [""; 0], "{fault:?} at order {at}");
        world.disk.plan(Vec::new());
        // The disk may be gone for some orders more.
        let mut attempts =
            (0..100).map(|_| world.run(store.commit(vec![Change::Remove { object: 0 }])).expect("it ends"));
        assert!(attempts.any(|done| done.is_ok()), "{fault:?} at order {at}: nothing fails any more");
        world.run(store.compact()).expect("it ends").expect("nothing fails any more");
        assert_eq!(world.disk.used(), store.stats().disk, "{fault:?} at order {at}");
    }
}

#[test]
fn what_may_be_left_of_a_file_that_could_not_be_made_is_counted_and_removed() {
    for at in 0..60 {
        let mut world = world(at, &frames());
        let store = open(&mut world);
        world.disk.bound(OPTIONS.cap);
        // One file is not made, or only a part of it, and what there is of it is not removed at once.
        plan(&world, at, &[Fault::Error; 2], Target::Any);
        let _held = fill(&mut world, &store);
        assert_eq!(world.disk.broken(), [""; 0], "at order {at}");
        world.disk.plan(Vec::new());
        let _more = fill(&mut world, &store);
        assert_eq!(world.disk.used(), OPTIONS.cap, "at order {at}: a put finds the room again");
        for _ in 0..2 {
            world.run(store.compact()).expect("it ends").expect("nothing fails any more");
        }
        assert_eq!(world.disk.used(), store.stats().disk, "at order {at}");
    }
}

#[test]
fn a_put_finds_the_room_of_a_slab_that_is_being_removed() {
    for seed in 0..40 {
        let mut world = world(seed, &frames());
        let store = open(&mut world);
        drop(fill(&mut world, &store));
        let tidied = store.compact();
        let slab = OPTIONS.slab_bytes as usize;
        let puts: Vec<_> = (0..6).map(|_| store.put(world.frames.take(slab).expect("room"), slab)).collect();
        for put in puts {
            world.run(put).expect("it ends").result.expect("all slabs are empty");
        }
        world.run(tidied).expect("it ends").expect("nothing fails");
    }
}

/// A store that has no file laid by for its next log.
fn open_without_spare(seed: u64) -> (World, Store) {
    let tried = (0..20).find_map(|at| {
        let mut world = world(seed, &frames());
        // It is tried twice.
        plan(&world, at, &[Fault::Full; 2], Target::Any);
        let store = try_open(&mut world).ok()?;
        let logs = world.disk.contents().keys().filter(|file| matches!(file, StoreFile::Log(_))).count();
        (logs == 1).then_some((world, store))
    });
    tried.expect("one of the creates is that of the next log")
}

/// Two faults: a group reached the log, of which nobody knows, and no other log can be begun. Then the power goes.
#[test]
fn what_a_failed_commit_named_keeps_its_room_while_a_power_cut_may_bring_it_back() {
    let mut back = 0;
    for seed in 0..16 {
        let (mut world, store) = open_without_spare(seed);
        let put = |world: &mut World, byte| {
            let mut frame = world.frames.take(ALIGN).expect("room");
            frame.fill(byte);
            world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room")
        };
        let piece = put(&mut world, 7);
        let at = world.disk.completed();
        let fails = Planned { at, fault: Fault::SyncFails, on: Target::Logs };
        world.disk.plan(vec![fails, Planned { at, fault: Fault::Full, on: Target::Any }]);
        let commit = store.commit(vec![Change::Piece { object: 1, part: 0, piece }]);
        world.run(commit).expect("it ends").expect_err("there is no other log");
        // As many as a slab has room for.
        let _others: Vec<_> = (0..16).map(|_| put(&mut world, 8)).collect();
        world.ask(DiskRequest::Sync { file: StoreFile::Slab(1) }).expect("answered").result.expect("done");
        let (mut left, mut random) = (Vec::new(), world.random.clone());
        every_cut(&world.disk, 64, &mut random, |disk| left.push(disk));
        for disk in left {
            let mut world = World::new(disk, world.frames.clone(), random.clone());
            let store = open(&mut world);
            if let Some(object) = store.object(1) {
                let part = object.parts.get(0).expect("a part");
                let read = world.run(store.get(part)).expect("it ends").expect("it is as it was put");
                assert!(read[..ALIGN].iter().all(|&byte| byte == 7), "seed {seed}");
                back += 1;
            }
            close(&mut world, store);
        }
    }
    assert!(back > 0, "no power cut brought it back");
}

#[test]
fn records_that_make_no_sense_are_told() {
    let mut world = world(8, &frames());
    let store = open(&mut world);
    let frame = world.frames.take(ALIGN).expect("room");
    let piece = world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room");
    for record in [Change::Piece { object: 1, part: 0, piece }, Change::Remove { object: 1 }] {
        world.run(store.commit(vec![record])).expect("it ends").expect("durable");
    }
    close(&mut world, store);
    let file = log(&world);
    // The number of a part stands behind the tag and the object.
    let part = |block: &mut [u8]| block[RECORDS + 9..RECORDS + 13].copy_from_slice(&(1u32 << 24).to_le_bytes());
    let empty = |block: &mut [u8]| block[RECORDS + 21..RECORDS + 25].fill(0);
    let tag = |block: &mut [u8]| block[RECORDS] = 99;
    for (at, change) in [(1, &part as &dyn Fn(&mut [u8])), (1, &empty), (2, &tag)] {
        let mut world = fork(&world);
        forge(&mut world, at, change);
        assert_eq!(try_open(&mut world).map(drop).err(), Some(StoreError::Damaged { file }), "block {at}");
    }
}
