//! `memory` bounds what the process takes: buffers of all sizes, and their metadata.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use terrace_tests::Random;
use terrace_tiers::ledger::PlacementHint;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

/// One test at a time: they measure the memory of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux says");
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

/// What a manager may take: a twentieth more than configured, and 16 MiB: staging memory, the log's, and its threads'.
fn allowed(memory: u64) -> u64 {
    memory + memory / 20 + (16 << 20)
}

#[test]
fn small_buffers_share_pages_and_what_describes_them_counts() {
    const MEMORY: u64 = 16 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = resident();
    let manager = Manager::builder().memory(MEMORY).build().expect("it is built");
    let mut buffers: Vec<Buffer> = Vec::new();
    let full = loop {
        match manager.allocate(100) {
            Ok(buffer) => {
                buffer.write(0, &(buffers.len() as u64).to_le_bytes()).expect("it is there");
                buffers.push(buffer);
            }
            Err(error) => break error,
        }
    };
    // 128 bytes and some 470 of metadata each.
    assert!(buffers.len() > 25_000, "{} {full}", buffers.len());
    let taken = resident().saturating_sub(before);
    assert!(taken <= allowed(MEMORY), "{} KiB for {} buffers", taken >> 10, buffers.len());
    let mut bytes = [0; 8];
    for (at, buffer) in buffers.iter().enumerate() {
        buffer.read(0, &mut bytes).expect("it is there");
        assert_eq!(u64::from_le_bytes(bytes), at as u64);
    }
    drop(buffers);
    assert_eq!(manager.tiers()[0].view.used, 0);
    drop(manager.allocate(MEMORY - (1 << 20)).expect("memory is for bytes again"));
}

#[test]
fn more_buffers_than_memory_describes_are_refused_whatever_files_hold() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(2 << 20).chunk(64 << 10).directory_of(directory.path(), 256 << 20);
    let manager = builder.build().expect("it is built");
    let mut buffers = Vec::new();
    let full = loop {
        match manager.allocate(1) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::TooMany { buffers: buffers.len() });
    assert!((2000..5000).contains(&buffers.len()), "{}", buffers.len());
    buffers.pop();
    drop(manager.allocate(1).expect("one is described"));
}

/// Through the public calls, in memory alone and above files.
#[test]
fn a_hundred_thousand_small_buffers_are_written_read_and_freed() {
    const COUNT: usize = 100_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    for files in [false, true] {
        let builder = Manager::builder().memory(128 << 20);
        let builder = if files { builder.directory_of(directory.path(), 64 << 20) } else { builder };
        let manager = builder.build().expect("it is built");
        let buffers: Vec<_> = (0..COUNT).map(|_| manager.allocate(100).expect("room")).collect();
        let bytes = |at: usize| std::array::from_fn::<u8, 100, _>(|byte| (at * 31 + byte) as u8);
        for (at, buffer) in buffers.iter().enumerate() {
            buffer.write(0, &bytes(at)).expect("written");
        }
        for (at, buffer) in buffers.iter().enumerate() {
            let mut read = [0; 100];
            buffer.read(0, &mut read).expect("read");
            assert_eq!(read, bytes(at));
        }
        drop(buffers);
        assert_eq!(manager.tiers().iter().map(|tier| tier.view.used).sum::<u64>(), 0);
        manager.check().expect("sound");
    }
}

#[test]
fn chunks_that_memory_cannot_describe_are_refused_before_they_take_any() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, directory) = (resident(), tempfile::tempdir().expect("a directory"));
    let builder = Manager::builder().memory(8 << 20).chunk(4096).directory_of(directory.path(), 4 << 30);
    let manager = builder.build().expect("it is built");
    // 512 Ki chunks.
    assert_eq!(manager.allocate(2 << 30).map(drop), Err(Error::TooMany { buffers: 0 }));
    let taken = resident().saturating_sub(before);
    assert!(taken < 8 << 20, "{} KiB", taken >> 10);
    drop(manager.allocate(100 << 20).expect("so many are described"));
    drop(manager.allocate(100 << 20).expect("they are free again"));
}

/// Whether metadata takes what the manager counts for it: less than a tenth is left for all the rest.
fn describes_within(memory: u64, manager: &Manager, mut one: impl FnMut(usize) -> Result<Buffer, Error>) -> usize {
    let (before, mut buffers) = (resident(), Vec::new());
    let full = loop {
        match one(buffers.len()) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::TooMany { buffers: buffers.len() });
    let taken = resident().saturating_sub(before);
    assert!(taken <= memory + memory / 10 + (4 << 20), "{} KiB for {} buffers", taken >> 10, buffers.len());
    manager.check().expect("sound");
    buffers.len()
}

#[test]
fn names_count_wherever_they_stand() {
    const MEMORY: u64 = 16 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let manager = Manager::builder().memory(MEMORY).build().expect("it is built");
    let named = |which: usize| manager.allocate_named(&format!("{which:0500}"), 100);
    let count = describes_within(MEMORY, &manager, named);
    assert!(count > 4000, "some 2.4 KB each: {count}");
}

#[test]
fn chunks_in_files_count_and_durable_ones_twice() {
    const MEMORY: u64 = 16 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(MEMORY).chunk(4096).directory_of(directory.path(), 1 << 30);
    let manager = builder.build().expect("it is built");
    let count = describes_within(MEMORY, &manager, |which| {
        let hint = PlacementHint { tier: Some(1), ..PlacementHint::default() };
        let name = (which % 2 == 0).then(|| format!("{which:0500}"));
        let buffer =
            manager.allocate_with(1 << 20, BufferOptions { name: name.clone(), hint, ..BufferOptions::default() })?;
        buffer.write(0, &[1; 1 << 20]).expect("written");
        if name.is_some() {
            manager.sync(&buffer).expect("durable");
            buffer.write(0, &[2; 1 << 20]).expect("written beside what is durable");
        }
        Ok(buffer)
    });
    assert!(count > 100, "some 90 KB each: {count}");
}

#[test]
fn durable_buffers_that_memory_cannot_describe_are_left_alone() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    let build = |memory| Manager::builder().memory(memory).chunk(4096).directory_of(directory.path(), 64 << 20).build();
    // 256 chunks, each of which takes 470 bytes, of each of twelve: 1.4 MiB.
    let manager = build(4 << 20).expect("it is built");
    for which in 0..12 {
        let buffer = manager.allocate_named(&format!("{which}"), 1 << 20).expect("room");
        buffer.write(0, &[which; 100]).expect("written");
        manager.sync(&buffer).expect("durable");
    }
    drop(manager);
    let refused = build(256 << 10).map(drop);
    assert!(matches!(refused, Err(Error::TooMany { buffers: 2..12 })), "{refused:?}");
    let manager = build(4 << 20).expect("it is built");
    for which in 0..12 {
        let mut read = [9; 100];
        manager.open(&format!("{which}")).expect("it is there").read(0, &mut read).expect("read");
        assert_eq!(read, [which; 100]);
    }
}

#[test]
fn large_chunks_go_through_as_little_memory_as_small_ones() {
    const MEMORY: u64 = 160 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, directory) = (resident(), tempfile::tempdir().expect("a directory"));
    let builder =
        Manager::builder().memory(MEMORY).pinned_cap(MEMORY).chunk(16 << 20).directory_of(directory.path(), 2 << 30);
    let manager = builder.build().expect("it is built");
    let buffer = manager.allocate(128 << 20).expect("room");
    buffer.lease_mut().expect("in memory").fill(1);
    manager.demote(&buffer, 1).expect("room in files");
    let taken = resident().saturating_sub(before);
    assert!(taken <= allowed(MEMORY), "{} KiB", taken >> 10);
    let mut last = [0; 100];
    buffer.read((128 << 20) - 100, &mut last).expect("read");
    assert_eq!(last, [1; 100]);
}

#[test]
fn buffers_of_all_sizes_stay_within_memory() {
    const MEMORY: u64 = 64 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, directory) = (resident(), tempfile::tempdir().expect("a directory"));
    let builder = Manager::builder().memory(MEMORY).directory_of(directory.path(), 1 << 30);
    let manager = builder.build().expect("it is built");
    let (mut rng, mut buffers, mut worst) = (Random::new(3), Vec::<Buffer>::new(), 0);
    for step in 0..3000 {
        if buffers.len() < 60 && rng.below(2) == 0 {
            let most = 1 << rng.below(23);
            buffers.push(manager.allocate(1 + rng.below(most)).expect("files have room"));
        } else if buffers.len() > 8 && rng.below(4) == 0 {
            buffers.swap_remove(rng.below(buffers.len() as u64) as usize);
        } else if !buffers.is_empty() {
            let buffer = &buffers[rng.below(buffers.len() as u64) as usize];
            // Refused where other buffers are leased by copies, which ends.
            if let Ok(mut lease) = buffer.lease_mut() {
                let last = lease.len() - 1;
                (lease[0], lease[last]) = (1, 1);
            }
        }
        if step % 50 == 0 {
            worst = worst.max(resident().saturating_sub(before));
        }
    }
    assert!(worst <= allowed(MEMORY), "{} KiB", worst >> 10);
}

#[test]
fn where_free_memory_is_in_pieces_buffers_leave_until_one_fits() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a directory");
    let build = |files: bool| {
        let builder = Manager::builder().memory(8 << 20).chunk(64 << 10).maintenance_interval(Duration::ZERO);
        let builder = if files { builder.directory_of(directory.path(), 256 << 20) } else { builder };
        builder.build().expect("it is built")
    };
    // One small buffer is left in each page: most memory is free, and nothing larger fits.
    let in_pieces = |manager: &Manager| {
        let small = || manager.allocate(4000).expect("room");
        let mut buffers: Vec<Option<Buffer>> = (0..1700).map(|_| Some(small())).collect();
        for (at, buffer) in buffers.iter_mut().enumerate() {
            *buffer = buffer.take_if(|_| at % 16 == 7);
        }
        let kept: Vec<Buffer> = buffers.into_iter().flatten().collect();
        kept.iter().for_each(|buffer| buffer.write(0, b"kept").expect("it is there"));
        kept
    };
    let manager = build(true);
    let kept = in_pieces(&manager);
    let large = manager.allocate(4 << 20).expect("the small ones make way");
    assert_eq!(manager.list().iter().filter(|listed| listed.bytes == 4 << 20 && listed.tier == 0).count(), 1);
    assert!(manager.move_stats().down > 0);
    for buffer in &kept {
        let mut bytes = [0; 4];
        buffer.read(0, &mut bytes).expect("it is somewhere");
        assert_eq!(&bytes, b"kept");
    }
    drop((large, kept));
    manager.tick(1000);
    assert!(manager.tiers()[0].view.capacity > 7 << 20, "nothing lies unused any more");
    manager.check().expect("sound");

    // While they are leased it goes to a tier with room.
    drop(manager);
    let manager = build(true);
    let kept = in_pieces(&manager);
    let leases: Vec<_> = kept.iter().map(|buffer| buffer.lease_best().expect("in memory")).collect();
    let large = manager.allocate(4 << 20).expect("files have room");
    assert_eq!(manager.list().iter().filter(|listed| listed.bytes == 4 << 20 && listed.tier == 1).count(), 1);
    drop(leases);
    drop((large, kept));

    // Where they have nowhere to go the call fails, and no buffer moves.
    drop(manager);
    let manager = build(false);
    let kept = in_pieces(&manager);
    assert_eq!(manager.allocate(4 << 20).map(drop), Err(Error::NoRoom { tier: 0 }));
    drop(manager.allocate(4000).expect("small ones fit"));
    drop(kept);
    manager.tick(1000);
    drop(manager.allocate(4 << 20).expect("all are gone"));
}

/// When metadata fills memory, all buffers leave it: by few copies at a time, and its free pages go back.
#[test]
fn what_metadata_displaces_leaves_by_few_copies_and_gives_its_pages_back() {
    const MEMORY: u64 = 32 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, directory) = (resident(), tempfile::tempdir().expect("a directory"));
    let builder = Manager::builder().memory(MEMORY).directory_of(directory.path(), 512 << 20);
    let manager = builder.maintenance_interval(Duration::from_millis(5)).build().expect("it is built");
    let (mut buffers, mut most) = (Vec::new(), 0);
    let full = loop {
        match manager.allocate(100) {
            Ok(buffer) => {
                buffer.write(0, &[7; 100]).expect("written");
                buffers.push(buffer);
            }
            Err(error) => break error,
        }
        if buffers.len() % 64 == 0 {
            most = most.max(resident().saturating_sub(before));
        }
    };
    assert_eq!(full, Error::TooMany { buffers: buffers.len() });
    assert!(most <= allowed(MEMORY), "{} KiB for {} buffers", most >> 10, buffers.len());
    assert!(buffers.iter().step_by(97).all(|buffer| {
        let mut read = [0; 100];
        buffer.read(0, &mut read).is_ok() && read == [7; 100]
    }));
    manager.check().expect("sound");
}
