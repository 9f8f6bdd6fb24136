//! A directory is not trusted: files of another store, files that are missing or cut.
//! What was durable is read as it was last, or there is a typed error; a refused opening changes nothing.
#![cfg(target_os = "linux")]

use terrace_file::{ALIGN, Change, StoreError, StoreFile};
use terrace_tests::disk::hands::{
    BLOCKS, FLOORS, MARKS, PAGES, SMALL, block, changed, close, first_byte, fork, frames, keep, kept, log, open,
    overwrite, refusal, refused_unchanged, remove, seal, try_open, with, world,
};
use terrace_tests::disk::{Contents, World};

#[test]
fn a_log_of_another_store_is_refused_and_nothing_is_deleted() {
    let (ours, mut theirs) = (kept(1), kept(2));
    // Theirs was opened more often: its logs have later numbers.
    for _ in 0..3 {
        let store = open(&mut theirs);
        close(&mut theirs, store);
    }
    let file = log(&theirs);
    let foreign = theirs.disk.contents()[&file].clone();
    refused_unchanged(
        changed(&ours, |files| _ = files.insert(file, foreign.clone())),
        &StoreError::OtherStore { file },
    );
    // In place of ours, under its name and under a name that it never had.
    for file in [log(&ours), StoreFile::Log(77)] {
        let replaced = changed(&ours, |files| _ = files.insert(file, foreign.clone()));
        refused_unchanged(replaced, &StoreError::OtherStore { file });
    }
    let superblock = theirs.disk.contents()[&StoreFile::Superblock].clone();
    let other = changed(&ours, |files| _ = files.insert(StoreFile::Superblock, superblock));
    let file = log(&ours);
    refused_unchanged(other, &StoreError::OtherStore { file });
}

/// The same place in the same log, with the right checksum.
#[test]
fn a_block_of_another_store_is_not_taken() {
    let (mut ours, theirs) = (kept(3), kept(4));
    let file = log(&ours);
    assert_eq!(file, log(&theirs));
    let stray = block(&theirs, file, 2);
    overwrite(&mut ours, file, 2, &stray);
    let mut twice = fork(&ours);
    overwrite(&mut twice, file, 2 + BLOCKS, &stray);
    assert_eq!(refusal(&mut twice), Some(StoreError::Damaged { file }));
    assert_eq!(open(&mut ours).objects(), [1, 2, 3], "the mirror has what was overwritten");
}

#[test]
fn a_log_that_is_gone_is_not_the_beginning_of_a_store() {
    let world = kept(5);
    let file = log(&world);
    refused_unchanged(changed(&world, |files| _ = files.remove(&file)), &StoreError::Damaged { file });
    let without = changed(&world, |files| files.retain(|file, _| *file == StoreFile::Superblock));
    refused_unchanged(without, &StoreError::Damaged { file });
}

/// As a directory is left whose old logs could not be removed.
#[test]
fn an_older_log_is_never_read_in_place_of_the_last_one() {
    let mut world = kept(6);
    let (old, file) = (world.disk.contents(), log(&world));
    let store = open(&mut world);
    keep(&mut world, &store, 4, 4);
    close(&mut world, store);
    let last = log(&world);
    assert_ne!(file, last);
    let both = changed(&world, |files| _ = files.insert(file, old[&file].clone()));
    let gone = changed(&both, |files| _ = files.remove(&last));
    refused_unchanged(gone, &StoreError::Damaged { file: last });
    let half = old[&file].len() / 2;
    for bad in [0, half] {
        // One copy of the last log is zeros: nothing is lost.
        let mut one = changed(&both, |files| {
            files.entry(last).and_modify(|log| log[bad..bad + half].fill(0)).or_default().truncate(2 * half)
        });
        assert_eq!(open(&mut one).objects(), [1, 2, 3, 4], "{bad}");
    }
    refused_unchanged(
        changed(&both, |files| files.insert(last, vec![0; 2 * half]).into_iter().for_each(drop)),
        &StoreError::Damaged { file: last },
    );
}

/// A full log is followed by one whose snapshot has the last group; the full one could not be removed. Three pages are bad: the
/// floor that names the new log, and both copies of a block of the snapshot.
#[test]
fn a_floor_that_is_lost_does_not_bring_back_the_log_before() {
    let mut world = kept(20);
    let store = open(&mut world);
    let file = log(&world);
    let mut full = world.disk.contents();
    let mut byte = 4;
    keep(&mut world, &store, 4, byte);
    while log(&world) == file {
        (full, byte) = (world.disk.contents(), byte + 1);
        keep(&mut world, &store, 4, byte);
    }
    close(&mut world, store);
    let last = log(&world);
    let both = changed(&world, |files| _ = files.insert(file, full[&file].clone()));
    assert_eq!(first_byte(&open(&mut fork(&both)), 4), Some(byte));
    for floor in FLOORS {
        let mut lost = fork(&both);
        overwrite(&mut lost, StoreFile::Superblock, floor, &[0; ALIGN]);
        [0, BLOCKS].into_iter().for_each(|block| overwrite(&mut lost, last, block, &[0; ALIGN]));
        refused_unchanged(lost, &StoreError::Damaged { file: last });
    }
}

#[test]
fn a_log_that_was_cut_is_told_from_one_that_ended() {
    let world = kept(7);
    let (file, whole) = (log(&world), 2 * BLOCKS as usize * ALIGN);
    for left in (0..whole).step_by(ALIGN) {
        let cut = changed(&world, |files| files.get_mut(&file).expect("it is there").truncate(left));
        refused_unchanged(cut, &StoreError::Damaged { file });
    }
    // Cut and grown again: zeros where the mirror was, and in the end where the last group was.
    for left in (0..whole).step_by(ALIGN) {
        let mut cut = changed(&world, |files| files.get_mut(&file).expect("it is there")[left..].fill(0));
        match try_open(&mut cut) {
            Ok(store) => assert_eq!(store.objects(), [1, 2, 3], "{left:#x}"),
            Err(error) => assert_eq!(error, StoreError::Damaged { file }, "{left:#x}"),
        }
    }
}

#[test]
fn the_last_group_is_missed_when_both_copies_are_gone() {
    let world = kept(8);
    let file = log(&world);
    let last = |world: &mut World| [3, 3 + BLOCKS].iter().for_each(|at| overwrite(world, file, *at, &[0; ALIGN]));
    let mut lost = changed(&world, |_| ());
    last(&mut lost);
    assert_eq!(refusal(&mut lost), Some(StoreError::Damaged { file }));
    for mark in MARKS {
        let mut lost = changed(&world, |_| ());
        last(&mut lost);
        overwrite(&mut lost, StoreFile::Superblock, mark, &[0; ALIGN]);
        assert_eq!(refusal(&mut lost), Some(StoreError::Damaged { file }), "one mark is left");
    }
}

#[test]
fn one_bad_page_of_the_superblock_loses_nothing_and_all_of_them_everything_but_the_truth() {
    for at in FLOORS.into_iter().chain(MARKS) {
        for bytes in [[0; ALIGN], [0xee; ALIGN]] {
            let mut world = kept(9);
            overwrite(&mut world, StoreFile::Superblock, at, &bytes);
            for round in 0..3 {
                let store = open(&mut world);
                assert_eq!(store.objects(), [1, 2, 3], "page {at}, round {round}");
                close(&mut world, store);
            }
        }
    }
    let file = StoreFile::Superblock;
    let world = kept(10);
    refused_unchanged(changed(&world, |files| _ = files.remove(&file)), &StoreError::Damaged { file });
    refused_unchanged(
        changed(&world, |files| _ = files.insert(file, vec![0; PAGES * ALIGN])),
        &StoreError::Damaged { file },
    );
    for left in (0..PAGES * ALIGN).step_by(ALIGN) {
        let cut = changed(&world, |files| files.get_mut(&file).expect("it is there").truncate(left));
        refused_unchanged(cut, &StoreError::Damaged { file });
    }
    let foreign = changed(&world, |files| _ = files.insert(file, vec![b'x'; PAGES * ALIGN]));
    refused_unchanged(foreign, &StoreError::Foreign { file });
    let mixed = changed(&world, |files| {
        let other = kept(11).disk.contents()[&file].clone();
        files.get_mut(&file).expect("it is there")[..ALIGN].copy_from_slice(&other[..ALIGN]);
    });
    refused_unchanged(mixed, &StoreError::Damaged { file });
}

/// Power is cut while a floor is written, and the marks, which are not synced, are gone too: the other floor was not touched.
#[test]
fn a_floor_that_was_half_written_leaves_the_other_one() {
    for at in FLOORS {
        let mut world = world(14, &frames());
        let store = open(&mut world);
        // Each new log writes a floor that names it.
        let mut byte = 1;
        for _ in 0..2 {
            let file = log(&world);
            while log(&world) == file {
                byte += 1;
                keep(&mut world, &store, 4, byte);
            }
        }
        close(&mut world, store);
        [at].into_iter().chain(MARKS).for_each(|page| overwrite(&mut world, StoreFile::Superblock, page, &[0; ALIGN]));
        assert_eq!(first_byte(&open(&mut world), 4), Some(byte), "floor {at}");
    }
}

#[test]
fn other_versions_are_named_and_kept() {
    let world = kept(12);
    let file = log(&world);
    let of_version = |version: u32, from: &World, files: &[StoreFile]| {
        changed(from, |contents| {
            for file in files {
                for page in contents.get_mut(file).expect("it is there").chunks_mut(ALIGN) {
                    page[8..12].copy_from_slice(&version.to_le_bytes());
                    seal(*file, page);
                }
            }
        })
    };
    refused_unchanged(
        of_version(3, &world, &[StoreFile::Superblock]),
        &StoreError::Newer { file: StoreFile::Superblock, version: 3 },
    );
    refused_unchanged(of_version(1, &world, &[file]), &StoreError::Older { file, version: 1 });
    // As version 1 left its directories.
    let without = changed(&world, |files| _ = files.remove(&StoreFile::Superblock));
    refused_unchanged(of_version(1, &without, &[file]), &StoreError::Older { file, version: 1 });
}

#[test]
fn a_store_that_was_interrupted_before_anything_was_durable_begins_anew() {
    let begun = kept(13).disk.contents();
    for left in (0..=PAGES * ALIGN).step_by(ALIGN) {
        let superblock = |bytes: usize| Contents::from([(StoreFile::Superblock, vec![0; bytes])]);
        let mut world = with(&world(13, &frames()), superblock(left));
        let store = open(&mut world);
        keep(&mut world, &store, 1, 1);
        close(&mut world, store);
        assert_eq!(open(&mut world).objects(), [1]);
    }
    // The superblock of a store that never named a log, and the first log half made.
    let mut page = begun[&StoreFile::Superblock][..ALIGN].to_vec();
    page[40..64].fill(0);
    seal(StoreFile::Superblock, &mut page);
    page.resize(PAGES * ALIGN, 0);
    let half = Contents::from([(StoreFile::Superblock, page), (StoreFile::Log(1), vec![0; 8 * ALIGN])]);
    let mut world = with(&world(13, &frames()), half);
    let store = open(&mut world);
    assert_eq!(store.objects(), []);
    keep(&mut world, &store, 1, 1);
}

/// A slab is made after the first log is named: a superblock that names none is not the one beside which it was made.
#[test]
fn slabs_without_a_log_are_no_new_store() {
    let mut page = kept(13).disk.contents()[&StoreFile::Superblock].clone();
    page[..ALIGN][40..64].fill(0);
    seal(StoreFile::Superblock, &mut page[..ALIGN]);
    page[ALIGN..].fill(0);
    let file = StoreFile::Slab(1);
    let files = Contents::from([(StoreFile::Superblock, page), (file, vec![1; SMALL.slab_bytes as usize])]);
    refused_unchanged(with(&world(13, &frames()), files), &StoreError::Damaged { file });
}

#[test]
fn what_the_superblock_says_is_true_before_a_log_goes_that_it_may_name() {
    use terrace_tests::disk::{Fault, Planned, Target, every_cut};
    for at in 0..40 {
        for fault in [Fault::Error, Fault::SyncFails, Fault::Short] {
            let mut world = kept(18);
            let store = open(&mut world);
            let from = world.disk.completed();
            world.disk.plan(vec![Planned { at: from + at, fault, on: Target::Logs }]);
            // More than a log holds: some are refused.
            let told: Vec<bool> = (1..=12)
                .map(|round: u8| {
                    let change = Change::Meta { object: 4, meta: vec![round; 1000] };
                    world.run(store.commit(vec![change])).expect("it ends").is_ok()
                })
                .collect();
            let last = told.iter().rposition(|done| *done).expect("one fault") as u8 + 1;
            let (mut left, mut random) = (Vec::new(), world.random.clone());
            every_cut(&world.disk, 16, &mut random, |disk| left.push(disk));
            for disk in left {
                let mut world = World::new(disk, world.frames.clone(), random.clone());
                let store = open(&mut world);
                let found = first_byte(&store, 4).expect("durable");
                assert!(found >= last, "{fault:?} at {at}: {found} is older than {last}");
                close(&mut world, store);
            }
        }
    }
}

/// The floor of a new log is told as failed, and stands all the same; the page that takes it back is lost on its way, which nothing
/// tells. The log goes, and no log follows: there is no room. It must not be missed.
#[test]
fn a_log_that_went_is_not_missed_though_a_write_was_lost() {
    log_went(None);
}

/// The same, and the marks that repeat that page cannot be written at first.
#[test]
fn a_log_that_went_is_not_missed_though_the_marks_were_refused_too() {
    log_went(Some(terrace_tests::disk::Fault::Error));
}

/// With a fault of the order after the sync of the page that takes the floor back.
fn log_went(marks: Option<terrace_tests::disk::Fault>) {
    use terrace_tests::disk::{Fault, Planned, Target, every_cut};
    let mut reached = 0;
    let rounds = (18..26).flat_map(|seed| (0..40).flat_map(move |at| (1..6).map(move |more| (seed, at, more))));
    for (seed, at, more) in rounds {
        let mut world = kept(seed);
        let store = open(&mut world);
        let from = world.disk.completed() + at;
        let planned = |at, fault| Planned { at, fault, on: Target::Logs };
        let plan = [(0, Fault::Short), (more, Fault::WriteLost), (more, Fault::Full)].into_iter();
        let plan = plan.chain(marks.map(|fault| (more + 2, fault)));
        world.disk.plan(plan.map(|(after, fault)| planned(from + after, fault)).collect());
        let (mut last, mut refused) = (0, 0);
        for round in 1..=12 {
            let change = Change::Meta { object: 4, meta: vec![round; 1000] };
            match world.run(store.commit(vec![change])).expect("it ends") {
                Ok(()) => last = round,
                Err(_) => refused += 1,
            }
            if refused == 2 {
                break;
            }
        }
        let hit = |fault| {
            world
                .disk
                .fired(0)
                .iter()
                .any(|fired| fired.fault == fault && fired.line.file == Some(StoreFile::Superblock))
        };
        let full = world.disk.fired(0).iter().any(|fired| fired.fault == Fault::Full);
        let hit = hit(Fault::Short) && hit(Fault::WriteLost) && marks.is_none_or(hit);
        if refused < 2 || last == 0 || !full || !hit {
            continue;
        }
        reached += 1;
        let (mut left, mut random) = (Vec::new(), world.random.clone());
        every_cut(&world.disk, 16, &mut random, |disk| left.push(disk));
        for disk in left {
            let mut world = World::new(disk, world.frames.clone(), random.clone());
            let store = open(&mut world);
            assert!(first_byte(&store, 4) >= Some(last), "{more} orders after order {at}");
            close(&mut world, store);
        }
    }
    assert!(reached > 0, "no such faults hit the superblock");
}

#[test]
fn a_file_that_is_not_there_any_more_is_no_sync() {
    let mut world = kept(19);
    let store = open(&mut world);
    let file = log(&world);
    remove(&mut world, file);
    let change = || Change::Meta { object: 4, meta: vec![4] };
    let before = world.disk.contents();
    for _ in 0..3 {
        let refused = world.run(store.commit(vec![change()])).expect("it ends");
        assert_eq!(refused, Err(StoreError::LogGone { file }));
    }
    assert!(world.disk.contents() == before, "nothing was made or removed");
    assert_eq!(store.objects(), [1, 2, 3]);
}

/// Another program is at work in the directory: its files may have the store's names.
#[test]
fn nothing_is_removed_by_name_after_the_log_is_gone() {
    use terrace_tests::disk::{Fault, Planned, Target};
    let mut world = kept(21);
    let store = open(&mut world);
    let file = log(&world);
    remove(&mut world, file);
    let change = Change::Meta { object: 4, meta: vec![4] };
    assert_eq!(world.run(store.commit(vec![change])).expect("it ends"), Err(StoreError::LogGone { file }));
    // What may be left of a slab that cannot be made.
    world.disk.plan(vec![Planned { at: 0, fault: Fault::Error, on: Target::Slabs }]);
    let frame = world.frames.take(ALIGN).expect("room");
    world.run(store.put(frame, ALIGN)).expect("it ends").result.expect_err("no slab can be made");
    let _ = world.run(store.compact()).expect("it ends");
    let orders = world.disk.log();
    assert!(orders.contains("Create slab") && !orders.contains("Remove slab"), "{orders}");
    store.check().expect("sound");
}
