//! Live counters: the row that the library writes for `terrace top`, and what it does where there is no page.

use crate::compile::{CC, Program};
use crate::job::Job;
use crate::{have, library};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs::File, thread, time::Duration, time::Instant};
use terrace_live::{CounterReader, Figure, LiveRow, RowKind, SharedCounters};

/// A page that programs inherit, its descriptor's number, and its reader.
fn page() -> (SharedCounters, String, CounterReader) {
    let shared = SharedCounters::create().expect("a page");
    shared.inherit(true).expect("a flag");
    let reader = CounterReader::new(SharedCounters::open(shared.read_only().expect("a descriptor")).expect("a page"));
    let number = shared.as_fd().as_raw_fd().to_string();
    (shared, number, reader)
}

fn rows(reader: &CounterReader) -> Vec<LiveRow> {
    reader.frame().expect("a frame").rows
}

fn job(arguments: &[&str], value: &str) -> Job {
    let program = Program::new("live.c").build();
    Job::new(&program).args(arguments).preload(&library::shared()).env("TERRACE_LIVE", value)
}

/// The number before each of these words in the line of statistics.
fn said<const N: usize>(line: &str, words: [&str; N]) -> [u64; N] {
    words.map(|word| {
        let before = line.split(word).next().filter(|before| before.len() < line.len());
        let number = before.and_then(|before| before.rsplit([' ', '(']).next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no number before `{word}`: {line}"))
    })
}

#[test]
fn the_last_row_says_what_the_statistics_say() {
    if !have("live::the_last_row_says_what_the_statistics_say", &[CC]) {
        return;
    }
    let (_page, number, reader) = page();
    let run = job(&[], &number).env("TERRACE_STATS", "1").run().passed();
    let [row] = rows(&reader)[..] else { panic!("one row: {:?}", rows(&reader)) };
    assert!(row.ended && row.kind == RowKind::Program && row.owner != std::process::id(), "{row:?}");
    assert!(row.name().starts_with("live"), "{row:?}");
    let figure = |figure| row.figures.get(figure).expect("a figure");
    let line = run.err();
    let [in_use, blocks, cached, reserved, dirty] =
        said(&line, [" KiB in ", " blocks", " KiB cached", " KiB reserved", " KiB dirty"]);
    assert_eq!(
        [Figure::InUse, Figure::Cached, Figure::Reserved, Figure::Dirty].map(|one| figure(one) / 1024),
        [in_use, cached, reserved, dirty],
        "{line}"
    );
    assert_eq!(figure(Figure::LiveBlocks), blocks, "{line}");
    assert!(in_use >= 32 << 10 && figure(Figure::PeakReserved) >= 64 << 20, "{line}");
}

/// A program that waits for the end of its standard input.
fn started(words: &[&str], value: &str) -> Child {
    let program = Program::new("live.c").build();
    let mut command = Command::new(program);
    command.args(words).env("LD_PRELOAD", library::shared()).env("TERRACE_LIVE", value).stdin(Stdio::piped());
    command.spawn().expect("a program")
}

/// Waits until the rows are as wanted; the minute is for a machine that is busy.
fn until(reader: &CounterReader, wanted: impl Fn(&[LiveRow]) -> bool) -> Vec<LiveRow> {
    let start = Instant::now();
    loop {
        let rows = rows(reader);
        if wanted(&rows) {
            return rows;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{rows:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn in_use(row: &LiveRow) -> u64 {
    row.figures.get(Figure::InUse).unwrap_or(0)
}

/// All of it is allocated within a millisecond or two, long before the second write by the clock, and no call follows.
#[test]
fn an_idle_program_is_seen_as_it_is() {
    if !have("live::an_idle_program_is_seen_as_it_is", &[CC]) {
        return;
    }
    let (_page, number, reader) = page();
    let mut program = started(&["wait"], &number);
    let near = |row: &LiveRow| in_use(row) > 56 << 20;
    let seen = until(&reader, |rows| rows.iter().any(near));
    assert_eq!((seen.len(), seen[0].owner, seen[0].ended), (1, program.id(), false));
    drop(program.stdin.take());
    assert!(program.wait().expect("its end").success());
    assert!(rows(&reader)[0].ended);
}

#[test]
fn a_forked_child_has_a_row_of_its_own() {
    if !have("live::a_forked_child_has_a_row_of_its_own", &[CC]) {
        return;
    }
    let (_page, number, reader) = page();
    let mut program = started(&["fork"], &number);
    let seen = until(&reader, |rows| rows.len() == 2 && in_use(&rows[1]) > 64 << 20);
    assert_eq!(seen[0].owner, program.id());
    assert_ne!(seen[1].owner, program.id());
    assert!(in_use(&seen[0]) < 66 << 20, "the child's blocks are not the parent's: {seen:?}");
    drop(program.stdin.take());
    assert!(program.wait().expect("its end").success());
    assert!(rows(&reader).iter().all(|row| row.ended));
}

#[test]
fn what_is_no_page_costs_a_line_and_a_closed_descriptor_nothing() {
    if !have("live::what_is_no_page_costs_a_line_and_a_closed_descriptor_nothing", &[CC]) {
        return;
    }
    let run = job(&[], "999").run().passed();
    assert_eq!(run.err(), "", "a parent that closes descriptors is no mistake");
    // The program's standard output is a file.
    let run = job(&[], "1").run().passed();
    assert_eq!(
        run.err(),
        "terrace: TERRACE_LIVE=1: this descriptor is no sealed memory of counters; `terrace top -- PROGRAM` sets it; no counters are \
         written\n"
    );
    let (page, number, reader) = page();
    let file = File::from(page.as_fd().try_clone_to_owned().expect("a descriptor"));
    file.write_at(&2_u64.to_le_bytes(), 8).expect("another version");
    let run = job(&[], &number).run().passed();
    assert!(run.err().lines().count() == 1 && run.err().contains("counters of version 2"), "{}", run.report());
    file.write_at(&1_u64.to_le_bytes(), 8).expect("this version");
    assert!(rows(&reader).is_empty());
}

#[test]
fn programs_that_a_program_starts_write_beside_it() {
    if !have("live::programs_that_a_program_starts_write_beside_it", &[CC]) {
        return;
    }
    let (_page, number, reader) = page();
    let program = Program::new("live.c").build();
    let script = "\"$0\"; (exec \"$0\"); exit 0";
    let run = Job::new(Path::new("/bin/sh")).args(["-c", script]).args([&program]).env("TERRACE_LIVE", &number);
    run.env("LD_PRELOAD", library::shared()).run().passed();
    let rows = rows(&reader);
    let programs = rows.iter().filter(|row| row.name().starts_with("live") && row.ended).count();
    assert_eq!(programs, 2, "{rows:?}");
    assert!(rows.iter().any(|row| row.name() == "sh"), "{rows:?}");
    let mut owners: Vec<u32> = rows.iter().map(|row| row.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), rows.len(), "a process that executes another program has one row: {rows:?}");
}
