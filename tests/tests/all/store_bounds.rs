//! Well-formed files that no store wrote, or none with this cap: a typed error, with memory and time bounded by the cap.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use terrace_file::{ALIGN, Change, Disk, FramePool, Store, StoreError, StoreFile, StoreOptions};
use terrace_tests::disk::hands::{
    PAGES, RECORDS, SMALL, block, changed, close, first_byte, forge, fork, frames, keep, kept, log, open, refusal,
    refused_unchanged, remove, seal, try_open, world,
};
use terrace_tests::disk::{Fault, Holes, Planned, Target, World};

#[test]
fn numbers_that_no_store_reaches_are_refused() {
    for file in [0xffff_ffff, 0xffff_fffe, 0xc000_0000, 0xbfff_ffff, 0x4000_0100]
        .into_iter()
        .flat_map(|number| [StoreFile::Slab(number), StoreFile::Log(number)])
    {
        let world = kept(14);
        let stray = changed(&world, |files| _ = files.insert(file, vec![0; PAGES * ALIGN]));
        refused_unchanged(stray, &StoreError::BadNumber { file });
    }
    let (mut world, _) = naming_slab(u32::MAX);
    let file = log(&world);
    assert_eq!(refusal(&mut world), Some(StoreError::Damaged { file }), "the next one would have no number");
    // The last number that there is: no slab comes after it.
    let (mut world, frames) = naming_slab((3 << 30) - 1);
    let store = open(&mut world);
    let frame = frames.take(ALIGN).expect("room");
    let refused = world.run(store.put(frame, ALIGN)).expect("it ends").result.map(drop);
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    close(&mut world, store);
    assert_eq!(open(&mut world).objects(), [4]);
}

/// A store with a piece that a record says to be in that slab.
fn naming_slab(slab: u32) -> (World, FramePool) {
    let frames = frames();
    let mut world = world(14, &frames);
    let store = open(&mut world);
    let piece = world.run(store.put(frames.take(ALIGN).expect("room"), ALIGN)).expect("it ends").result.expect("room");
    world.run(store.commit(vec![Change::Piece { object: 4, part: 0, piece }])).expect("it ends").expect("durable");
    close(&mut world, store);
    remove(&mut world, StoreFile::Slab(1));
    forge(&mut world, 1, |block| {
        assert_eq!(block[RECORDS..RECORDS + 9], [1, 4, 0, 0, 0, 0, 0, 0, 0], "the piece's record");
        block[RECORDS + 13..RECORDS + 17].copy_from_slice(&slab.to_le_bytes());
    });
    (world, frames)
}

#[test]
fn part_numbers_cost_no_tables() {
    let mut world = world(15, &frames());
    let store = open(&mut world);
    let frame = world.frames.take(ALIGN).expect("room");
    let piece = world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room");
    let last = |object| Change::Piece { object, part: (1 << 24) - 1, piece: Arc::clone(&piece) };
    world.run(store.commit((1..=100).map(last).collect())).expect("it ends").expect("durable");
    close(&mut world, store);
    let store = open(&mut world);
    for object in store.objects() {
        let parts = store.object(object).expect("it is there").parts;
        assert_eq!(
            parts.iter().map(|(part, _)| part).collect::<Vec<_>>(),
            [(1 << 24) - 1],
            "one part, in a table of one"
        );
    }
}

/// Records that are well-formed, and more than a store with this cap can have made durable.
#[test]
fn records_beyond_the_cap_are_refused_as_they_are_read() {
    let frames = frames();
    let mut world = world(16, &frames);
    let store = open(&mut world);
    (1..=30).for_each(|object| keep(&mut world, &store, object, 1));
    close(&mut world, store);
    let options = StoreOptions { log_bytes: 32 << 10, ..SMALL };
    let options = StoreOptions { cap: options.least_cap(), ..options };
    // In many groups, and then in one: the next log says everything anew.
    for groups in ["many", "one"] {
        let refused = try_open_with(&mut world, options);
        // As much memory as a block too many costs, not as all of them do.
        assert!(
            matches!(refused, Err(StoreError::CapTooSmall { needs, cap }) if needs > cap && needs < cap + (32 << 10)),
            "{groups}: {refused:?}"
        );
        let store = open(&mut world);
        assert_eq!(store.objects().len(), 30, "everything is still there");
        close(&mut world, store);
    }
}

fn try_open_with(world: &mut World, options: StoreOptions) -> Result<(), StoreError> {
    let join = Store::open(Arc::clone(&world.disk) as Arc<dyn Disk>, &world.tasks, &world.frames, options);
    world.run(join).expect("it ends").map(drop)
}

#[test]
fn a_cap_that_is_too_small_changes_nothing() {
    let mut world = world(19, &frames());
    let store = open(&mut world);
    let slab = SMALL.slab_bytes as usize;
    for object in 1..=3 {
        let frame = world.frames.take(slab).expect("room");
        let piece = world.run(store.put(frame, slab)).expect("it ends").result.expect("room");
        let changes = vec![Change::Piece { object, part: 0, piece }];
        world.run(store.commit(changes)).expect("it ends").expect("durable");
    }
    close(&mut world, store);
    let before = world.disk.contents();
    let least = StoreOptions { cap: SMALL.least_cap(), ..SMALL };
    for slabs in 1..3 {
        let refused =
            try_open_with(&mut world, StoreOptions { cap: least.cap + (slabs - 1) * least.slab_bytes, ..least });
        let needs = least.cap + 2 * least.slab_bytes;
        assert!(matches!(refused, Err(StoreError::CapTooSmall { needs: told, .. }) if told == needs), "{refused:?}");
        assert!(world.disk.contents() == before, "{slabs}: something was changed");
    }
    try_open_with(&mut world, StoreOptions { cap: least.cap + 2 * least.slab_bytes, ..least }).expect("it fits");
}

/// What a group makes and removes again is more than the cap allows, and what is there after it is not: it opens again.
#[test]
fn what_a_group_makes_and_removes_again_is_not_read_as_too_much() {
    let mut world = world(27, &frames());
    let make = |object| Change::Meta { object, meta: vec![7; 100] };
    let store = open(&mut world);
    world.run(store.commit((1..=300).map(make).collect())).expect("it ends").expect("half of what the cap allows");
    close(&mut world, store);
    for more in (25..=600).step_by(25) {
        let store = open(&mut world);
        let objects = || 1000..1000 + more;
        let changes = objects().map(make).chain(objects().map(|object| Change::Remove { object })).collect();
        world.run(store.commit(changes)).expect("it ends").expect("in the end there is no more than before");
        close(&mut world, store);
        let store = open(&mut world);
        assert_eq!(store.objects(), (1..=300).collect::<Vec<_>>(), "after {more} more");
        close(&mut world, store);
    }
}

/// A group whose records a store with this cap cannot have written is not kept in memory until its last block is read.
#[test]
fn a_group_beyond_the_cap_is_refused_before_its_end_is_read() {
    let options = StoreOptions { cap: 4 << 20, ..SMALL };
    let (blocks, file) = (500_u32, StoreFile::Log(99));
    let world = kept(18);
    let mut block = block(&world, log(&world), 0);
    let mut copy = Vec::new();
    for at in 0..blocks {
        // Full of records that an object without meta data is there.
        block[12..16].copy_from_slice(&99u32.to_le_bytes());
        block[20..24].copy_from_slice(&u32::from(at + 1 == blocks).to_le_bytes());
        block[24..32].copy_from_slice(&u64::from(at).to_le_bytes());
        let records: Vec<u8> = (0..360).flat_map(|_| [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).collect();
        block[40..44].copy_from_slice(&(records.len() as u32).to_le_bytes());
        block[RECORDS..RECORDS + records.len()].copy_from_slice(&records);
        seal(file, &mut block);
        copy.extend_from_slice(&block);
    }
    let mut contents = world.disk.contents();
    contents.insert(file, copy.repeat(2));
    let disk = terrace_tests::disk::SimDisk::holding(16 << 20, contents);
    let mut world = World::new(disk, world.frames.clone(), world.random.clone());
    let refused = try_open_with(&mut world, options);
    assert!(matches!(refused, Err(StoreError::CapTooSmall { .. })), "{refused:?}");
    let reads = world.disk.log().lines().filter(|line| line.contains("Read log 99")).count();
    // The first block twice, and then 64 at once: as many as make a quarter of the cap.
    assert!(reads <= 2 + 5, "{reads} reads");
}

#[test]
fn what_is_larger_than_the_cap_and_no_log_is_not_read_to_its_end() {
    let world = kept(17);
    let hole = changed(&world, |files| _ = files.insert(StoreFile::Log(255), vec![0; SMALL.cap as usize + (2 << 20)]));
    let mut hole = World::new(
        terrace_tests::disk::SimDisk::holding(16 << 20, hole.disk.contents()),
        world.frames.clone(),
        world.random.clone(),
    );
    let store = open(&mut hole);
    assert_eq!(store.objects(), [1, 2, 3]);
    assert_eq!(first_byte(&store, 3), Some(3));
    // The file's first block has no sound copy, so that nothing behind it is read.
    let reads = hole.disk.log().lines().filter(|line| line.contains("Read log 255")).count();
    assert_eq!(reads, 4, "both copies of the first block, each twice");
    assert!(!hole.disk.contents().contains_key(&StoreFile::Log(255)), "it takes no room");
}

/// Opens the store of three objects, on a disk with holes besides.
fn open_among(
    seed: u64,
    holes: impl IntoIterator<Item = (StoreFile, u64)>,
) -> (Arc<Holes>, Result<Vec<u64>, StoreError>) {
    let mut world = kept(seed);
    let holes = Holes::new(&world.disk, holes);
    let join = Store::open(Arc::clone(&holes) as Arc<dyn Disk>, &world.tasks, &world.frames, SMALL);
    let opened = world.run(join).expect("it ends").map(|store| store.objects());
    (holes, opened)
}

/// KiB of memory that this process had at most.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok()).expect("a number")
}

/// A slab's free room is known in memory: of slabs that no record names, one is kept, and many more are none the wiser.
#[test]
fn slabs_that_no_record_names_cost_no_memory_and_one_is_kept() {
    for (count, bytes, kept) in [(20, ALIGN as u64, 0), (4, SMALL.slab_bytes, 1), (100_000, ALIGN as u64, 0)] {
        let before = peak();
        let (holes, opened) = open_among(21, (100..100 + count).map(|slab| (StoreFile::Slab(slab), bytes)));
        assert_eq!(opened, Ok(vec![1, 2, 3]));
        assert_eq!(holes.left().len(), kept, "{count} slabs of {bytes} bytes");
        let more = peak() - before;
        assert!(more < 64 << 10, "{more} KiB of memory for {count} slabs of {bytes} bytes");
    }
}

/// Each by a commit of its own, with a walk over all objects, would take as long as their number squared.
#[test]
fn slabs_above_a_smaller_cap_are_emptied_together() {
    const SLABS: u64 = 120;
    let small = StoreOptions { slab_bytes: 2 * ALIGN as u64, cap: 2 << 20, ..SMALL };
    let mut world =
        World::new(terrace_tests::disk::SimDisk::new(2 * small.cap), frames(), terrace_tests::Random::new(24));
    let mut store = open_as(&mut world, small);
    for object in 0..2 * SLABS {
        let frame = world.frames.take(ALIGN).expect("room");
        let piece = world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room");
        let change = Change::Piece { object, part: 0, piece };
        world.run(store.commit(vec![change])).expect("it ends").expect("durable");
    }
    let gone = (0..SLABS).map(|slab| Change::Remove { object: 2 * slab }).collect();
    world.run(store.commit(gone)).expect("it ends").expect("durable");
    let taken = store.stats().disk;
    close(&mut world, store);
    let (smaller, from) = (StoreOptions { cap: taken - SLABS / 2 * small.slab_bytes, ..small }, world.disk.completed());
    store = open_as(&mut world, smaller);
    assert_eq!(store.objects().len() as u64, SLABS);
    assert!(store.stats().disk <= smaller.cap);
    // Of half of the slabs, a piece is read and written, and the file is removed.
    let orders = world.disk.completed() - from;
    assert!(orders < 2 * SLABS + 100, "{orders} orders");
}

fn open_as(world: &mut World, options: StoreOptions) -> Store {
    let join = Store::open(Arc::clone(&world.disk) as Arc<dyn Disk>, &world.tasks, &world.frames, options);
    world.run(join).expect("it ends").expect("it opens")
}

#[test]
fn sizes_whose_sum_no_number_holds_are_refused() {
    let largest = i64::MAX as u64;
    for count in 1..4 {
        let files = [StoreFile::Log(100), StoreFile::Log(101), StoreFile::Slab(100)].into_iter().take(count);
        let (holes, opened) = open_among(22, files.map(|file| (file, largest)));
        match opened {
            Ok(objects) => assert_eq!((count, objects), (1, vec![1, 2, 3])),
            Err(error) => assert_eq!(error, StoreError::CapTooSmall { needs: u64::MAX, cap: SMALL.cap }),
        }
        assert_eq!(holes.left().len(), if count == 1 { 0 } else { count }, "refused, nothing is removed");
    }
}

#[test]
fn logs_that_say_nothing_are_read_up_to_the_cap_and_not_each_of_them() {
    let (holes, opened) = open_among(23, (100..1100).map(|log| (StoreFile::Log(log), SMALL.cap)));
    assert_eq!(opened, Ok(vec![1, 2, 3]));
    // And the first block of each: once for its identity, once for its beginning.
    let first = 1000 * 2 * 4 * ALIGN as u64;
    assert!(holes.read() <= SMALL.cap + first, "{} bytes were read", holes.read());
}

/// The record of an object without meta data has 11 bytes; its entry in memory is ten times as large.
#[test]
fn objects_without_meta_data_count_as_the_memory_that_they_take() {
    const OBJECTS: u64 = 10_000;
    let options = StoreOptions { cap: 4 << 20, slab_bytes: 64 << 10, log_bytes: 32 << 10 };
    let disk = terrace_tests::disk::SimDisk::new(2 * options.cap);
    let mut world = World::new(disk, frames(), terrace_tests::Random::new(25));
    let store = open_as(&mut world, options);
    let objects = (0..OBJECTS).map(|object| Change::Meta { object, meta: Vec::new() });
    world.run(store.commit(objects.collect())).expect("it ends").expect("durable");
    close(&mut world, store);
    // Eight times the records, and no more, fit under it.
    let small = StoreOptions { cap: OBJECTS * 100, ..options };
    let refused = try_open_with(&mut world, small);
    assert!(
        matches!(refused, Err(StoreError::CapTooSmall { needs, cap }) if needs > cap && needs < cap + (48 << 10)),
        "as much as a block too many costs: {refused:?}"
    );
    assert_eq!(open_as(&mut world, options).objects().len() as u64, OBJECTS);
}

/// A record names a piece that is larger than any frame there will ever be, in a slab that no store made.
#[test]
fn a_piece_that_no_frame_can_hold_is_refused_and_not_waited_for() {
    let mut world = world(20, &frames());
    let store = open(&mut world);
    let frame = world.frames.take(ALIGN).expect("room");
    let piece = world.run(store.put(frame, ALIGN)).expect("it ends").result.expect("room");
    world.run(store.commit(vec![Change::Piece { object: 1, part: 0, piece }])).expect("it ends").expect("durable");
    close(&mut world, store);
    let bytes = world.frames.usage().1 as u32;
    forge(&mut world, 1, |block| {
        let place = [0, bytes].map(u32::to_le_bytes).concat();
        block[RECORDS + 17..RECORDS + 25].copy_from_slice(&place);
    });
    for (slab, lost) in [(SMALL.slab_bytes as usize, true), (bytes as usize, false)] {
        let files = changed(&world, |files| _ = files.insert(StoreFile::Slab(1), vec![0; slab])).disk.contents();
        let disk = terrace_tests::disk::SimDisk::holding(64 << 20, files);
        let mut world = World::new(disk, world.frames.clone(), world.random.clone());
        let options = StoreOptions { cap: 8 << 20, ..SMALL };
        let join = Store::open(Arc::clone(&world.disk) as Arc<dyn Disk>, &world.tasks, &world.frames, options);
        let store = world.run(join).expect("it ends").expect("it opens");
        let piece = Arc::clone(store.object(1).expect("it is there").parts.get(0).expect("a part"));
        let refused = world.run(store.get(&piece)).expect("it ends").map(drop);
        let too_large = matches!(refused, Err(StoreError::TooLarge { .. }));
        assert_eq!((refused.is_err(), too_large), (true, !lost), "{refused:?}");
    }
}

/// Six orders of an opening fail, from each on: a removal fails also when it is tried again. Files that were not removed count as
/// the store's.
#[test]
fn what_an_opening_could_not_remove_is_counted() {
    let kept = kept(21);
    for at in 0.. {
        let mut world = fork(&kept);
        world.disk.plan((at..at + 6).map(|at| Planned { at, fault: Fault::Error, on: Target::Any }).collect());
        let opened = try_open(&mut world);
        if world.disk.fired(0).is_empty() {
            assert!(at > 15, "{at} orders");
            return;
        }
        let Ok(store) = opened else { continue };
        let (counted, there) = (store.stats().disk, world.disk.used());
        assert!(counted >= there, "{counted} of {there} bytes are counted where {:?} failed", world.disk.fired(0));
        close(&mut world, store);
    }
}
