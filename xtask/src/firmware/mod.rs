//! `cargo xtask firmware`, and the step of the same name: every program under `firmware/`, built, run in QEMU, weighed and
//! counted.
//!
//! Promises upward: `firmware::BOARD::runs` holds when the board's program printed `PASS`; `firmware::BOARD::instructions`
//! when no call of its heap took more instructions than the board's line in [`board`] says; `firmware::BOARD::text::HEAP`
//! when the heap's functions link by themselves; `firmware::BOARD::counted` when the longest calls that searches found, and
//! the means of workloads, are within what [`board`] says; `firmware::BOARD::SHOWN` when a further program of the board
//! printed what [`board`] says; `firmware::c::small` when C's `malloc` and `free` work and fit into [`board::MOST_C`];
//! `firmware::TARGET::builds` for a target that is only built. What is missing is skipped by
//! name. The tables come last. [`search`] looks for longer calls.
//! Asks from below: cargo with the target (or Debian's, as for the step `bare`), QEMU.

mod board;
mod build;
mod c;
mod counted;
mod elf;
mod emulator;
mod search;
mod trace;

use crate::install;
use crate::options::Options;
use crate::report::Report;
use crate::steps::bare::{self, Way};
use board::{BOARDS, BUILD_ONLY, Board};
use elf::Program;
pub use search::search;
use trace::{Calls, Count};

/// What brings the emulators, on Debian.
const PACKAGES: [&str; 2] = ["qemu-system-arm", "qemu-system-misc"];
/// Every package of the workspace.
const PROGRAMS: [&str; 8] = [
    "exercise",
    "measure",
    "counted",
    "firmware-text",
    "firmware-cortex-m",
    "firmware-riscv",
    "firmware-aarch64",
    "firmware-x86_64",
];
/// The heaps that are measured, as the functions' names begin.
const HEAPS: [&str; 3] = ["fast", "bounded", "small"];
/// Their calls, as the functions' names end.
const CALLS: [&str; 3] = ["alloc", "free", "resize"];

/// Every board, then the table.
pub fn run(options: &Options, report: &mut Report) {
    report.verdict("firmware::fmt", build::format(&PROGRAMS));
    let (mut rows, mut counted) = (Vec::new(), Vec::new());
    for board in BOARDS {
        match bare::way(options, board.target) {
            Ok(way) => {
                rows.extend(HEAPS.iter().zip(run_board(options, report, board, way)).map(|row| (board, row)));
                counted.extend(run_counted(report, board, way).map(|rows| (board, rows)));
            }
            Err(missing) => report.skip(&format!("firmware::{}::runs", board.name), &missing),
        }
    }
    for (package, target) in BUILD_ONLY {
        let name = format!("firmware::{target}::builds");
        match bare::way(options, target) {
            Ok(way) => {
                let built = build::build(package, target, way, "release", &[]).map(|_| ());
                report.verdict(&name, built.and_then(|()| build::clippy(package, target, way, &[])));
            }
            Err(missing) => report.skip(&name, &missing),
        }
    }
    let small = c::run(options, report);
    print_table(&rows);
    if let Some(bytes) = small {
        println!(
            "\nC's init, malloc and free alone, opt-level z, on {}: {bytes} bytes of .text and .rodata.",
            c::TARGET
        );
    }
    counted.iter().for_each(|(board, rows)| counted::print(board, rows));
}

/// What a board counts by itself; `None` where none does.
fn run_counted(report: &mut Report, board: &Board, way: Way) -> Option<Vec<counted::Row>> {
    let name = format!("firmware::{}::counted", board.name);
    let machine = board.counted?;
    // Whoever lacks it has read so above.
    if emulator::version(board.qemu).is_none() {
        report.skip(&name, &format!("apt-get install --no-install-recommends {}", PACKAGES.join(" ")));
        return None;
    }
    let rows = build::counted(board, way).and_then(|program| counted::count(board, machine, &program));
    report.verdict(&name, rows.as_ref().map_err(Clone::clone).and_then(|rows| counted::check(rows)));
    rows.ok()
}

/// What is known of one heap on one board.
#[derive(Default)]
struct Row {
    /// Bytes of code and constants of init, alloc and free.
    text: Option<u64>,
    /// Bytes of the heap's own.
    state: Option<u64>,
    /// One for each of [`CALLS`].
    counts: Vec<Count>,
}

fn run_board(options: &Options, report: &mut Report, board: &Board, way: Way) -> [Row; 3] {
    let name = |what: &str| format!("firmware::{}::{what}", board.name);
    let mut rows = HEAPS.map(|heap| {
        let weighed = build::weigh(board, way, heap);
        let text = weighed.as_ref().ok().copied();
        report.verdict(&name(&format!("text::{heap}")), weighed.map(|_| ()));
        Row { text, ..Row::default() }
    });
    let features: &[&str] = if board.counted.is_some() { &["counted"] } else { &[] };
    report.verdict(&name("clippy"), build::clippy(board.package, board.target, way, features));
    let programs = match build::build(board.package, board.target, way, "release", features) {
        Ok(folder) => folder,
        Err(why) => {
            report.fail(&name("builds"), &why);
            return rows;
        }
    };
    if emulator::version(board.qemu).is_none() && install::apt(options, &PACKAGES).is_err() {
        let reason = format!("apt-get install --no-install-recommends {}", PACKAGES.join(" "));
        report.skip(&name("runs"), &reason);
        report.skip(&name("instructions"), &reason);
        board.shows.iter().for_each(|(shown, _)| report.skip(&name(shown), &reason));
        return rows;
    }
    let ran = emulator::run(board, &programs.join(board.package));
    report.verdict(&name("runs"), ran.and_then(|output| passed(board.name, &output)));
    for (shown, lines) in board.shows {
        let ran = emulator::run(board, &programs.join(format!("{}-{shown}", board.package)));
        report.verdict(&name(shown), ran.and_then(|output| says(&output, lines)));
    }
    match count(board, &programs.join(format!("{}-measure", board.package))) {
        Ok((states, counts)) => {
            for (i, row) in rows.iter_mut().enumerate() {
                row.state = states.get(i).copied();
                row.counts = counts[i * CALLS.len()..(i + 1) * CALLS.len()].to_vec();
            }
            report.verdict(&name("instructions"), within(board, &counts));
        }
        Err(why) => report.fail(&name("instructions"), &why),
    }
    rows
}

/// Whether a program said that all went well; its words, but the last, are for the log's reader.
fn passed(board: &str, output: &str) -> Result<(), String> {
    let mut lines: Vec<&str> = output.lines().collect();
    if lines.pop() != Some("PASS") {
        return Err(format!("the last line is not PASS:\n{output}"));
    }
    lines.iter().for_each(|line| println!("   {board}: {line}"));
    Ok(())
}

/// Whether a program printed lines that begin as these do, in this order.
fn says(output: &str, begins: &[&str]) -> Result<(), String> {
    let mut lines = output.lines();
    match begins.iter().find(|begin| !lines.any(|line| line.starts_with(**begin))) {
        Some(missing) => Err(format!("no line begins with {missing:?} where it should:\n{output}")),
        None => Ok(()),
    }
}

/// Runs the calls, counting. Returns the bytes of each heap's state, and a count for each call of each heap.
fn count(board: &Board, program: &std::path::Path) -> Result<(Vec<u64>, Vec<Count>), String> {
    let symbols = Program::read(program)?;
    let names = HEAPS.iter().flat_map(|heap| CALLS.iter().map(move |call| format!("{heap}_{call}")));
    let entries: Result<Vec<u64>, String> = names.map(|name| symbols.address(&name)).collect();
    let (output, calls) = emulator::trace(board, program, Calls::new(entries?))?;
    passed(board.name, &output)?;
    let states = output.lines().find_map(|line| line.strip_prefix("state "));
    let states = states.into_iter().flat_map(str::split_whitespace).filter_map(|word| word.parse().ok());
    Ok((states.collect(), calls.finish()))
}

/// Whether each call was made, and stayed within what the board's line says.
fn within(board: &Board, counts: &[Count]) -> Result<(), String> {
    let most = board.most.iter().flatten();
    let names = HEAPS.iter().flat_map(|heap| CALLS.iter().map(move |call| format!("{heap} {call}")));
    let mut over = Vec::new();
    for ((name, count), &most) in names.zip(counts).zip(most) {
        if count.calls == 0 {
            over.push(format!("{name}: no call was counted"));
        } else if count.worst > most {
            over.push(format!("{name}: a call took {} instructions; at most {most} are documented", count.worst));
        }
    }
    if over.is_empty() { Ok(()) } else { Err(over.join("\n")) }
}

fn print_table(rows: &[(&Board, (&&str, Row))]) {
    println!(
        "\nBytes of init + alloc + free (.text and .rodata, opt-level z), of the heap's state, and instructions of a"
    );
    println!("call: the worst, and the mean in brackets. {}", trace::HOW);
    println!("| board | target | heap | text | state | alloc | free | resize |\n|-|-|-|-|-|-|-|-|");
    let bytes = |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| bytes.to_string());
    for (board, (heap, row)) in rows {
        let mut counts: Vec<String> = row.counts.iter().map(ToString::to_string).collect();
        counts.resize(CALLS.len(), "-".into());
        let (text, state) = (bytes(row.text), bytes(row.state));
        println!("| {} | {} | {heap} | {text} | {state} | {} |", board.name, board.target, counts.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_line_passes() {
        assert_eq!(passed("a", "state 1\nPASS\n"), Ok(()));
        assert!(passed("a", "PASS\nFAIL: what\n").is_err());
        assert!(passed("a", "").is_err());
    }

    #[test]
    fn lines_that_are_missing_or_out_of_order_fail() {
        let output = "one: 1\ntwo: 2\nPASS\n";
        assert_eq!(says(output, &["one:", "two: 2", "PASS"]), Ok(()));
        assert!(says(output, &["two:", "one:"]).is_err());
        assert!(says(output, &["two: 3"]).is_err());
        assert!(says("one: 1\n", &["one:", "PASS"]).is_err());
    }

    #[test]
    fn a_call_that_was_not_made_or_takes_too_long_fails() {
        let count = |worst, calls| Count { calls, sum: 0, worst };
        let board = &BOARDS[0];
        let most: Vec<u32> = board.most.iter().flatten().copied().collect();
        let right: Vec<Count> = most.iter().map(|&worst| count(worst, 1)).collect();
        assert_eq!(within(board, &right), Ok(()));
        for i in 0..right.len() {
            for wrong in [count(most[i] + 1, 1), count(0, 0)] {
                let mut counts = right.clone();
                counts[i] = wrong;
                assert!(within(board, &counts).is_err());
            }
        }
    }
}
