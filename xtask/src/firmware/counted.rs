//! A board that counts by itself: mean instructions of workloads, and the longest calls that searches found, for ours and
//! for other heaps in the same run.
//!
//! Promises upward: the counts are exact, or [`check`] fails: functions of known length are asked for first.
//! Asks from below: the program `firmware/cortex-m/src/counted.rs`, whose questions and answers `firmware/counted` states.

use super::board::{Board, MOST_COUNTED, Most};
use super::emulator;
use crate::command::root;
use std::path::Path;

/// What searches found, relative to the root.
pub const RECORDS: [&str; 2] = ["tests/data/heap_worst.txt", "tests/data/heap_worst_thumb.txt"];
/// The workloads, and the memory that the benchmarks give them: 1, 4 and 1 MiB.
const WORKS: [(&str, u32); 3] = [("a", 1 << 20), ("b", 4 << 20), ("lifo", 1 << 20)];
/// What the records that 32-bit targets propose reach: 16 bits for a granule of 8 bytes.
const NARROW: u32 = 1 << 19;
/// Functions of known length, and their instructions: the call, ten or none, the return.
const KNOWN: [(&str, u64); 2] = [("nothing", 2), ("ten", 12)];

/// A heap in so much memory; 0 for as much as the benchmarks give.
const ROWS: [(&str, u32); 9] = [
    ("fast", NARROW),
    ("bounded", NARROW),
    ("small", NARROW),
    ("rlsf", NARROW),
    ("talc", NARROW),
    ("fast-wide", 0),
    ("bounded-packed", 0),
    ("rlsf", 0),
    ("talc", 0),
];

/// A line of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// As the board's program calls it.
    pub heap: String,
    /// Bytes for each workload; 0 for those of the benchmarks.
    pub memory: u32,
    /// Mean instructions of a call, for each of the workloads.
    pub means: Vec<f64>,
    /// The longest alloc, free and resize of the programs; not for the same heap in other memory again.
    pub worst: Option<[u64; 3]>,
}

/// What is asked for, and into which answer it goes.
#[derive(Debug, PartialEq)]
enum Question {
    Known(u64),
    Mean {
        row: usize,
    },
    /// The last call: alloc, free or resize.
    Worst {
        row: usize,
        call: usize,
    },
}

/// Asks for everything.
///
/// # Errors
/// What the emulator said, that the board counts wrong, or that a heap's own check failed.
pub fn count(board: &Board, machine: &[&str], program: &Path) -> Result<Vec<Row>, String> {
    let questions = questions(&programs()?);
    let input: String = questions.iter().map(|(line, _)| format!("{line}\n")).collect();
    let output = emulator::ask(board, machine, program, input)?;
    read(&questions, &output)
}

/// The last calls of programs that are none of alloc, free and resize are of no interest.
fn call_of(program: &str) -> Option<usize> {
    let last = program.split_whitespace().last()?;
    let starts = ["#", "free#", "resize#"];
    starts.iter().position(|start| last.starts_with(start))
}

fn programs() -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for path in RECORDS {
        let text = std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
        lines.extend(text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(String::from));
    }
    Ok(lines)
}

fn questions(programs: &[String]) -> Vec<(String, Question)> {
    let mut all = Vec::new();
    for (name, length) in KNOWN {
        for program in ["#1=8", "#1=8 free#1", "#1=8 resize#1=9"] {
            all.push((format!("call {name} 64 B: {program}"), Question::Known(length)));
        }
    }
    for (row, (heap, memory)) in ROWS.iter().enumerate() {
        for (work, own) in WORKS {
            let bytes = if *memory == 0 { own } else { *memory };
            all.push((format!("mean {heap} {work} {bytes}"), Question::Mean { row }));
        }
        if ROWS[..row].iter().any(|(earlier, _)| earlier == heap) {
            continue;
        }
        for program in programs {
            let worst = call_of(program).map(|call| Question::Worst { row, call });
            all.extend(worst.map(|question| (format!("call {heap} {program}"), question)));
        }
    }
    all
}

fn read(questions: &[(String, Question)], output: &str) -> Result<Vec<Row>, String> {
    let row = |&(heap, memory): &(&str, u32)| Row { heap: heap.into(), memory, ..Row::default() };
    let mut rows: Vec<Row> = ROWS.iter().map(row).collect();
    let mut lines = output.lines();
    for (question, kind) in questions {
        let line = lines.next().ok_or_else(|| format!("no answer to: {question}"))?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [count, second, _] = numbers[..] else { return Err(format!("{question}: {line}")) };
        match *kind {
            Question::Known(length) if count != length => {
                return Err(format!("{question}: {count} instructions were counted, there are {length}"));
            }
            Question::Known(_) => {}
            Question::Mean { row } => rows[row].means.push(count as f64 / second.max(1) as f64),
            Question::Worst { .. } if second == 3 => return Err(format!("the heap's own check failed: {question}")),
            Question::Worst { row, call } => {
                let worst = &mut rows[row].worst.get_or_insert_default()[call];
                *worst = count.max(*worst);
            }
        }
    }
    Ok(rows)
}

/// Whether every heap that [`MOST_COUNTED`] names stays within it.
///
/// # Errors
/// A line for each number that is too large, or missing.
pub fn check(rows: &[Row]) -> Result<(), String> {
    let mut over = Vec::new();
    for Most { heap, means, worst } in MOST_COUNTED {
        let Some(row) = rows.iter().find(|row| row.heap == *heap) else {
            over.push(format!("{heap}: nothing was counted"));
            continue;
        };
        for (((work, _), mean), most) in WORKS.iter().zip(&row.means).zip(means) {
            if mean > most {
                over.push(format!(
                    "{heap}: a call of workload {work} takes {mean:.1} on average, at most {most} is documented"
                ));
            }
        }
        for ((call, worst), most) in super::CALLS.iter().zip(row.worst.unwrap_or([u64::MAX; 3])).zip(worst) {
            if worst == 0 || worst > u64::from(*most) {
                over.push(format!("{heap} {call}: {worst} instructions; at most {most} are documented"));
            }
        }
    }
    if over.is_empty() { Ok(()) } else { Err(over.join("\n")) }
}

/// Prints the table.
pub fn print(board: &Board, rows: &[Row]) {
    println!(
        "\nInstructions of a call on {}, with others in the same run: the mean over allocations and frees of a",
        board.name
    );
    println!(
        "workload of `cargo xtask bench heap`, and the longest that searches found. Counted exactly, by a clock that"
    );
    println!(
        "each instruction moves on (`-icount`), from the call instruction to the return. `fast` and `small` have a"
    );
    println!("region of 512 KiB at most: there less is live than in the benchmarks' 1 MiB (a, LIFO) and 4 MiB (b).");
    println!("Nobody searched for talc's own longest calls: its row shows what the others' programs cost it.");
    println!("| heap | memory | a | b | LIFO | alloc | free | resize |\n|-|-|-|-|-|-|-|-|");
    for Row { heap, memory, means, worst } in rows {
        let means: Vec<String> = means.iter().map(|mean| format!("{mean:.1}")).collect();
        let memory = if *memory == 0 { "1, 4, 1 MiB".into() } else { format!("{} KiB", memory >> 10) };
        // No other heap is resized here.
        let shown =
            |(call, worst): (usize, &u64)| if call == 2 && is_peer(heap) { "-".into() } else { worst.to_string() };
        let worst = worst
            .map_or(["", "", ""].map(String::from).to_vec(), |worst| worst.iter().enumerate().map(shown).collect());
        println!("| {heap} | {memory} | {} | {} |", means.join(" | "), worst.join(" | "));
    }
}

fn is_peer(heap: &str) -> bool {
    ["rlsf", "talc"].contains(&heap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(questions: &[(String, Question)], worst: u64) -> String {
        let answer = |(_, kind): &(String, Question)| match kind {
            Question::Known(length) => format!("{length} 1 0\n"),
            Question::Mean { .. } => "5000 1000 0\n".into(),
            Question::Worst { .. } => format!("{worst} 1 0\n"),
        };
        questions.iter().map(answer).collect()
    }

    fn few() -> Vec<(String, Question)> {
        questions(&[
            "64 B: #1=8".into(),
            "64 B: #1=8 free#1".into(),
            "64 B: #1=8 resize#1=1".into(),
            "64 B: fill=1".into(),
        ])
    }

    #[test]
    fn answers_go_where_they_belong() {
        let rows = read(&few(), &answers(&few(), 7)).expect("one answer to each");
        assert!(rows.iter().all(|row| row.means == [5.0; 3]));
        let once: Vec<_> = rows.iter().map(|row| row.worst).collect();
        assert_eq!(once, [[Some([7; 3]); 7].as_slice(), &[None; 2]].concat());
        assert_eq!(check(&rows), Ok(()));
    }

    #[test]
    fn wrong_answers_are_refused() {
        let right = answers(&few(), 7);
        assert!(read(&few(), &right.replacen("12 1", "13 1", 1)).is_err());
        assert!(read(&few(), &right.replacen("7 1", "7 3", 1)).is_err_and(|why| why.contains("check")));
        assert!(read(&few(), &right.replacen("7 1 0", "?", 1)).is_err());
        assert!(read(&few(), "").is_err());
    }

    #[test]
    fn what_is_too_long_or_was_not_counted_fails() {
        let rows = read(&few(), &answers(&few(), 7)).expect("one answer to each");
        let fails = |change: fn(&mut Row)| {
            let mut rows = rows.clone();
            change(&mut rows[0]);
            check(&rows).is_err()
        };
        assert!(fails(|row| row.means[2] = 1e6));
        assert!(fails(|row| row.worst = Some([7, 100_000, 7])));
        assert!(fails(|row| row.worst = Some([7, 7, 0])));
        assert!(fails(|row| row.worst = None));
        assert!(check(&[]).is_err());
    }

    #[test]
    fn the_records_are_programs() {
        let programs = programs().expect("both are there");
        assert!(programs.len() > 40 && programs.iter().all(|line| call_of(line).is_some() && line.contains(" B: ")));
    }
}
