//! A process that writes and syncs named buffers is killed at a random moment, again and again, on one directory.
//!
//! Checked: what was reported durable is there afterwards, with those bytes or later ones; no chunk mixes two writes,
//! and no buffer two syncs; what was reported removed is gone; the files stay within the cap.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use terrace_tests::Random;
use terrace_tiers::{Buffer, Error, Manager};

const TEST: &str = "what_was_told_to_be_durable_is_there_after_200_kills";

/// Passed to the process that is killed: the directory, and its round.
const DIRECTORY: &str = "TERRACE_KILL_DIRECTORY";
const ROUND: &str = "TERRACE_KILL_ROUND";

const KILLS: u64 = 200;

const CHUNK: usize = 16 << 10;

/// Three chunks, the last one shorter.
const BYTES: usize = 2 * CHUNK + 7_216;

const BUFFERS: usize = 6;

/// Concurrent writers, so that commits are grouped.
const WRITERS: usize = 3;

/// Slabs of 1 MiB and logs of 256 KiB: a new log every 30 groups or so.
const CAP: u64 = 8 << 20;

fn manager(directory: &Path) -> Manager {
    // Two of the six fit into memory. Calls of all writers may be in both at once, which takes leases beyond the usual
    // cap.
    let builder = Manager::builder().memory(100 << 10).pinned_cap(CAP).chunk(CHUNK).directory_of(directory, CAP);
    builder.build().expect("what a kill left is opened")
}

fn name(which: usize) -> String {
    format!("buffer {which}")
}

/// One chunk as `count` wrote it: every word identifies the writer and the offset.
fn fill(chunk: &mut [u8], which: usize, count: u64) {
    for (at, word) in chunk.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&word_of(which, count, at).to_le_bytes());
    }
}

fn word_of(which: usize, count: u64, at: usize) -> u64 {
    count ^ (which as u64) << 56 ^ (at as u64) << 42
}

/// The write that a chunk is of. Panics for a mixture of two writes, or for another buffer's.
fn count_of(chunk: &[u8], which: usize) -> u64 {
    let words = || chunk.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    if words().all(|word| word == 0) {
        return 0;
    }
    let count = words().next().expect("a word") ^ word_of(which, 0, 0);
    for (at, word) in words().enumerate() {
        assert_eq!(word, word_of(which, count, at), "buffer {which}, word {at} of a chunk that {count} wrote");
    }
    count
}

/// The last writes of a buffer's ends and of its middle. One sync covers both ends of the same write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Version {
    ends: u64,
    middle: u64,
}

fn version_of(buffer: &Buffer, which: usize) -> Version {
    let mut bytes = vec![0; BYTES];
    buffer.read(0, &mut bytes).expect("what is durable can be read");
    let [first, middle, last] = [&bytes[..CHUNK], &bytes[CHUNK..2 * CHUNK], &bytes[2 * CHUNK..]];
    let counts = [first, middle, last].map(|chunk| count_of(chunk, which));
    assert_eq!(counts[0], counts[2], "buffer {which} has parts of two syncs");
    Version { ends: counts[0], middle: counts[1] }
}

/// The process that is killed. Reports what was confirmed, one line each: a line is written whole or not at all.
fn write_until_killed(directory: &Path, round: u64) -> ! {
    let manager = manager(directory);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let manager = &manager;
            scope.spawn(move || write(manager, writer, round));
        }
    });
    unreachable!("writers do not end")
}

fn write(manager: &Manager, writer: usize, round: u64) -> ! {
    let say = |line: String| std::io::stderr().write_all(line.as_bytes()).expect("the pipe is open");
    let (mut random, mut bytes) = (Random::new(round * 31 + writer as u64), vec![0; BYTES]);
    for count in round << 20.. {
        let which = writer + WRITERS * random.below((BUFFERS / WRITERS) as u64) as usize;
        let buffer = match manager.open(&name(which)) {
            Ok(buffer) => buffer,
            Err(Error::NoSuchName(_)) => manager.allocate_named(&name(which), BYTES as u64).expect("room"),
            Err(error) => panic!("{error}"),
        };
        let chance = random.below(16);
        if chance == 0 {
            say(format!("removing {which} 0 0\n"));
            manager.remove(&name(which)).expect("removed");
            say(format!("removed {which} 0 0\n"));
            continue;
        }
        let old = version_of(&buffer, which);
        bytes.chunks_mut(CHUNK).for_each(|chunk| fill(chunk, which, count));
        let middle = match chance {
            // Only the ends.
            1..8 => {
                buffer.write(0, &bytes[..CHUNK]).expect("written");
                buffer.write(2 * CHUNK as u64, &bytes[2 * CHUNK..]).expect("written");
                old.middle
            }
            _ => {
                buffer.write(0, &bytes).expect("written");
                count
            }
        };
        manager.sync(&buffer).expect("durable");
        say(format!("synced {which} {count} {middle}\n"));
    }
    unreachable!("there are more counts than time")
}

/// What a buffer must hold, by the reports.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Its oldest possible state. `None`: it is absent, or newer.
    durable: Option<Version>,
    /// A removal was begun.
    may_be_gone: bool,
    /// The removed state, which must not come back.
    gone: u64,
}

fn hear(known: &mut [Known], line: &str) {
    let mut words = line.split_whitespace();
    let (what, mut number) = (words.next(), || words.next()?.parse::<u64>().ok());
    let (Some(what), Some(which), Some(ends), Some(middle)) = (what, number(), number(), number()) else {
        panic!("the process said: {line}");
    };
    let known = &mut known[which as usize];
    match what {
        "synced" => *known = Known { durable: Some(Version { ends, middle }), ..Known::default() },
        "removing" => known.may_be_gone = true,
        "removed" => *known = Known { gone: known.durable.map_or(known.gone, |old| old.ends), ..Known::default() },
        _ => panic!("the process said: {line}"),
    }
}

/// Reads what is there, which is the known state from now on.
fn look(directory: &Path, known: &mut [Known], round: u64) {
    assert!(bytes_on_disk(directory) <= CAP, "round {round}");
    let manager = manager(directory);
    manager.check().expect("sound");
    for (which, known) in known.iter_mut().enumerate() {
        let found = manager.open(&name(which)).ok().map(|buffer| version_of(&buffer, which));
        match (known.durable, found) {
            (Some(durable), None) => assert!(known.may_be_gone, "round {round}: buffer {which} {durable:?} is lost"),
            (Some(durable), Some(found)) => {
                let later = found.ends > durable.ends && found.middle >= durable.middle;
                // A buffer that was removed and allocated again has zeros where nothing was written.
                let anew = known.may_be_gone && found.ends > durable.ends;
                assert!(found == durable || later || anew, "round {round}: buffer {which} {durable:?}, but {found:?}");
            }
            (None, Some(found)) => assert!(found.ends > known.gone, "round {round}: buffer {which} {found:?} is back"),
            (None, None) => {}
        }
        assert!(found.is_none_or(|found| found.ends >> 20 <= round && found.middle <= found.ends), "{found:?}");
        *known = Known { durable: found, may_be_gone: false, gone: known.gone };
    }
    drop(manager);
    assert!(bytes_on_disk(directory) <= CAP, "round {round}");
}

fn bytes_on_disk(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    entries.map(|entry| entry.metadata().map_or(0, |data| data.len())).sum()
}

fn begin(directory: &Path, round: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args([TEST, "--exact", "--nocapture"]).env(DIRECTORY, directory).env(ROUND, round.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a process")
}

#[test]
fn what_was_told_to_be_durable_is_there_after_200_kills() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let round = std::env::var(ROUND).ok().and_then(|round| round.parse().ok()).expect("a round");
        write_until_killed(Path::new(&directory), round);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (mut known, mut random, mut told) = ([Known::default(); BUFFERS], Random::new(7), 0);
    for round in 1..=KILLS {
        let mut child = begin(directory.path(), round);
        let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        // Every other time only after a report; else perhaps while it opens what the last kill left.
        let first = if round % 2 == 0 { said.next() } else { None };
        std::thread::sleep(Duration::from_micros(random.below(25_000)));
        child.kill().expect("it runs");
        let status = child.wait().expect("it ended");
        let lines: Vec<String> = first.into_iter().chain(said).map(|line| line.expect("text")).collect();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "round {round}: {lines:?}");
        let ours = |line: &String| line.starts_with("synced ") || line.starts_with("remov");
        assert!(lines.iter().all(ours), "round {round}: the process said: {}", lines.join("\n"));
        told += lines.iter().filter(|line| line.starts_with("synced")).count();
        lines.iter().for_each(|line| hear(&mut known, line));
        look(directory.path(), &mut known, round);
    }
    assert!(told as u64 >= KILLS / 4, "{told} syncs");
    println!("{KILLS} kills, {told} syncs told");
}
