//! Directories that were damaged while no manager had them: bits flipped, files cut or deleted, pages zeroed or
//! swapped. Synced bytes are read as they were last, or there is a typed error: no wrong byte, no older state, no
//! panic, no hang.
//!
//! `TERRACE_SEEDS` is the number of seeds: one round for 5 seeds.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_file::{Change, Directory, EngineKind, Executor, FramePool, Store, StoreError, StoreOptions};
use terrace_tests::Random;
use terrace_tests::disk::number;
use terrace_tiers::{Error, Manager};

const PAGE: usize = 4096;
const CAP: u64 = 4 << 20;
const BUFFERS: u64 = 8;

/// A directory's files.
type Files = BTreeMap<String, Vec<u8>>;

fn builder(path: &Path) -> terrace_tiers::manager::ManagerBuilder {
    Manager::builder().memory(1 << 20).chunk(16 << 10).directory_of(path, CAP)
}

fn name(which: u64) -> String {
    format!("buffer {which}")
}

fn bytes_of(which: u64) -> usize {
    1000 + which as usize * 9_000
}

/// The bytes of a buffer, of some generation.
fn content(which: u64, generation: u8) -> Vec<u8> {
    (0..bytes_of(which)).map(|at| (at as u8).wrapping_mul(31) ^ which as u8 ^ generation.wrapping_mul(53)).collect()
}

fn read_files(path: &Path) -> Files {
    let entries = std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry"));
    let name = |entry: &std::fs::DirEntry| entry.file_name().into_string().expect("plain names");
    entries.map(|entry| (name(&entry), std::fs::read(entry.path()).expect("it can be read"))).collect()
}

fn write_files(files: &Files, path: &Path) {
    for (name, bytes) in files {
        std::fs::write(path.join(name), bytes).expect("room");
    }
}

/// Directories as managers leave them, each with the generation that every buffer was synced at last.
fn templates() -> Vec<(Files, Vec<u8>)> {
    let directory = room();
    let (mut made, mut generations) = (Vec::new(), vec![0u8; BUFFERS as usize]);
    for session in 1..=3u8 {
        let manager = builder(directory.path()).build().expect("it is built");
        for round in 1..=3 {
            for which in (0..BUFFERS).filter(|which| round == 1 || which % 3 == u64::from(round) % 3) {
                let generation = session * 10 + round;
                let buffer = manager
                    .open(&name(which))
                    .or_else(|_| manager.allocate_named(&name(which), bytes_of(which) as u64));
                let buffer = buffer.expect("room");
                buffer.write(0, &content(which, generation)).expect("written");
                manager.sync(&buffer).expect("durable");
                generations[which as usize] = generation;
            }
        }
        drop(manager);
        made.push((read_files(directory.path()), generations.clone()));
    }
    // Logs of the session before could not be removed.
    let (mut both, last) = made[2].clone();
    for (name, bytes) in made[1].0.iter().filter(|(name, _)| name.ends_with(".log")) {
        both.entry(name.clone()).or_insert_with(|| bytes.clone());
    }
    made.push((both, last));
    made
}

/// In memory where the system has a place there: thousands of directories are opened.
fn room() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// Damages one to three pages or files.
fn damage(files: &mut Files, random: &mut Random) -> Vec<String> {
    let (mut left, mut done) = (1 + random.below(3), Vec::new());
    while left > 0 {
        let names: Vec<&String> = files.keys().filter(|name| *name != "terrace.lock").collect();
        let pick = |random: &mut Random| names[random.below(names.len() as u64) as usize].clone();
        let (one, other) = (pick(random), pick(random));
        let page = |random: &mut Random, bytes: usize| random.below((bytes / PAGE).max(1) as u64) as usize * PAGE;
        let (at, to) = (page(random, files[&one].len()), page(random, files[&other].len()));
        let is_page = |files: &Files| files[&one].len() >= at + PAGE && files[&other].len() >= to + PAGE;
        let bytes = files.get_mut(&one).expect("it is there");
        let what = match random.below(5) {
            0 if !bytes.is_empty() => {
                let bit = random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                format!("bit {bit} of {one}")
            }
            1 => {
                bytes.truncate(random.below(bytes.len().max(1) as u64) as usize);
                format!("{one} cut to {}", bytes.len())
            }
            2 => {
                _ = files.remove(&one);
                format!("{one} deleted")
            }
            3 if bytes.len() >= at + PAGE => {
                bytes[at..at + PAGE].fill(0);
                format!("page at {at:#x} of {one} zeroed")
            }
            4 if left > 1 && is_page(files) => {
                let first = files[&one][at..at + PAGE].to_vec();
                let second = files[&other][to..to + PAGE].to_vec();
                files.get_mut(&other).expect("it is there")[to..to + PAGE].copy_from_slice(&first);
                files.get_mut(&one).expect("it is there")[at..at + PAGE].copy_from_slice(&second);
                left -= 1;
                format!("pages {at:#x} of {one} and {to:#x} of {other} swapped")
            }
            _ => continue,
        };
        done.push(what);
        left -= 1;
    }
    done
}

/// The result of a round.
#[derive(Debug, Default)]
struct Tally {
    refused: u64,
    right: u64,
    unreadable: u64,
}

impl Tally {
    fn round(&mut self, (files, generations): &(Files, Vec<u8>), seed: u64) {
        let mut random = Random::new(seed);
        let mut files = files.clone();
        let what = damage(&mut files, &mut random);
        let directory = room();
        write_files(&files, directory.path());
        let Ok(manager) = builder(directory.path()).build() else {
            self.refused += 1;
            return;
        };
        for (which, generation) in (0..BUFFERS).zip(generations) {
            let buffer =
                manager.open(&name(which)).unwrap_or_else(|error| panic!("seed {seed}, {what:?}: {which}: {error}"));
            let mut read = vec![0; bytes_of(which)];
            match buffer.read(0, &mut read) {
                Ok(()) if read == content(which, *generation) => self.right += 1,
                Ok(()) => {
                    let older = (0..*generation).any(|generation| read == content(which, generation));
                    panic!(
                        "seed {seed}, {what:?}: {which} has {}",
                        if older { "an older state" } else { "wrong bytes" }
                    )
                }
                Err(_) => self.unreadable += 1,
            }
        }
        manager.check().unwrap_or_else(|broken| panic!("seed {seed}, {what:?}: {broken}"));
        // It continues: what can be written is durable.
        let buffer = manager.allocate_named("new", 5000).expect("room");
        buffer.write(0, &[7; 5000]).expect("written");
        if manager.sync(&buffer).is_ok() {
            drop((buffer, manager));
            let manager =
                builder(directory.path()).build().unwrap_or_else(|error| panic!("seed {seed}, {what:?}: {error}"));
            assert!(manager.open("new").is_ok(), "seed {seed}, {what:?}");
        }
    }
}

#[test]
fn damaged_directories_are_read_as_they_were_last_or_refused() {
    const DONE: u64 = u64::MAX - 1;
    static ROUND: AtomicU64 = AtomicU64::new(0);
    // A round that hangs ends the process: no test framework would.
    std::thread::spawn(|| {
        let mut last = u64::MAX;
        while last != ROUND.load(Ordering::Relaxed) {
            last = ROUND.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(120));
        }
        if last != DONE {
            println!("round {last} hangs");
            std::process::abort();
        }
    });
    // A panic on a thread of the engine would not be noticed otherwise.
    let panics = Arc::new(Mutex::new(Vec::new()));
    let (told, usual) = (Arc::clone(&panics), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        told.lock().expect("no panic here").push(info.to_string());
        usual(info);
    }));
    let (templates, rounds) = (templates(), number("TERRACE_SEEDS").map_or(400, |seeds| seeds / 5));
    let mut tally = Tally::default();
    for seed in 0..rounds {
        ROUND.store(seed, Ordering::Relaxed);
        tally.round(&templates[seed as usize % templates.len()], seed);
        let panics = panics.lock().expect("no panic here");
        assert!(panics.is_empty(), "seed {seed}: {panics:?}");
    }
    ROUND.store(DONE, Ordering::Relaxed);
    println!("{rounds} rounds: {tally:?}");
    assert!(tally.right > 0 && tally.refused > 0 && tally.unreadable > 0, "{tally:?}");
}

/// A store with one object that looks like a buffer "a" of 1 MiB in one chunk, with one part of 4 KiB.
fn forged(path: &Path, bytes: u64, chunk: u32, part: u32) -> Result<Manager, Error> {
    {
        let tasks = Executor::new();
        let disk = Arc::new(Directory::open(path, EngineKind::Threads, &tasks).expect("it is free"));
        let frames = FramePool::new(4 << 20).expect("memory");
        let store = Store::open(disk, &tasks, &frames, StoreOptions::new(64 << 20)).wait().expect("it opens");
        let piece = store.put(frames.take(PAGE).expect("room"), PAGE).wait().result.expect("room");
        let mut meta = vec![1, 0, 0, 0];
        meta.extend(chunk.to_le_bytes());
        meta.extend(bytes.to_le_bytes());
        meta.extend(b"a");
        store
            .commit(vec![Change::Meta { object: 1, meta }, Change::Piece { object: 1, part, piece }])
            .wait()
            .expect("durable");
    }
    Manager::builder().memory(8 << 20).directory_of(path, 64 << 20).build()
}

#[test]
fn parts_that_are_no_chunks_are_refused() {
    let mib = 1 << 20;
    for (bytes, chunk, part) in
        [(mib, 1 << 20, 0), (mib, 8192, 0), (mib, 4096, 256), (100, 4096, 0), (mib + 1, 1 << 20, 1)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let refused = forged(directory.path(), bytes, chunk, part).map(drop);
        assert_eq!(refused, Err(Error::BadBuffer("a".into())), "{bytes} bytes in chunks of {chunk}, part {part}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let manager = forged(directory.path(), mib, 4096, 255).expect("the last of its chunks");
    assert_eq!(manager.open("a").expect("there").lease_best().expect("leased").len(), 1 << 20);
}

#[test]
fn buffers_beyond_what_a_cap_can_hold_cost_no_tables() {
    let directory = tempfile::tempdir().expect("a directory");
    // 2^24 chunks, of which one is durable.
    let refused = forged(directory.path(), 4096 << 24, 4096, 0).map(drop);
    let too_small = matches!(refused, Err(Error::Store(StoreError::CapTooSmall { needs, cap })) if needs > cap);
    assert!(too_small, "{refused:?}");
    // A chunk takes 64 bytes of records at least: as many as the cap has are for memory to describe, one more is not.
    let most = (64 << 20) / 64;
    for (chunks, fits) in [(most, true), (most + 1, false)] {
        let directory = tempfile::tempdir().expect("a directory");
        let refused = forged(directory.path(), chunks * 4096, 4096, 0).map(drop);
        let needed = match refused {
            Err(Error::TooMany { .. }) => None,
            Err(Error::Store(StoreError::CapTooSmall { needs, .. })) => Some(needs),
            other => panic!("{chunks} chunks: {other:?}"),
        };
        assert_eq!(needed, (!fits).then_some(chunks * 64));
    }
}

#[test]
fn bytes_that_cannot_be_read_do_not_suspend_the_tier_that_they_were_to_come_to() {
    let directory = room();
    let manager = || builder(directory.path()).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let (first, kept) = (manager(), content(7, 1));
    let buffer = first.allocate_named("a", kept.len() as u64).expect("room");
    buffer.write(0, &kept).expect("written");
    first.sync(&buffer).expect("durable");
    drop((buffer, first));
    let mut files = read_files(directory.path());
    files.iter_mut().filter(|(name, _)| name.ends_with(".slab")).for_each(|(_, bytes)| bytes.fill(0xa5));
    write_files(&files, directory.path());
    let second = manager();
    let buffer = second.open("a").expect("it is there");
    let refused = buffer.lease_best().map(drop);
    assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    let memory = second.tiers()[0].view;
    assert!(memory.suspended_until.is_none(), "{memory:?}");
}
