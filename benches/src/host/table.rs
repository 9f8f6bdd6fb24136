//! What is printed: programs, then one table with all that sums a library up, then Rust programs.
//!
//! Promises upward: every number with its unit; what failed or is missing stands where its number would be, with the reason
//! below. Asks from below: [`Results`].

use super::counts::{Counted, FASTEST, INTERFACE, RUST, SETTINGS};
use super::libraries::BASE;
use super::redis::PRELOADED;
use super::results::{Cost, Results};
use crate::table::{cross, given, grouped, significant, spread_text, table, where_and_when};
use comfy_table::Table;
use terrace_models::rounds::spread;

/// A row: its title, and a cell for each column.
type Row<'a> = (String, Box<dyn Fn(&str) -> Option<String> + 'a>);

/// Everything, as text.
pub fn print(results: &Results) -> String {
    let mut text = where_and_when(&results.header);
    if !results.samples.is_empty() {
        text += "CPU time (user and system) over glibc's in the same round, medians; glibc in ms.\n\n";
        text += &format!("{}\n\n", programs(results, Cost::Cpu));
        text += "Peak resident set over glibc's, medians; glibc in MiB.\n\n";
        text += &format!("{}\n\n", programs(results, Cost::Peak));
    }
    text += &summary(results);
    text += &rust(results);
    text += &notes(results);
    for missing in &results.missing {
        text += &format!("SKIP {}: {}\n", missing.subject, missing.what);
    }
    text + "\n" + &given(&results.header)
}

/// A table of rows; those without any number are left out, and so is the table when none has one.
fn of(columns: &[&str], rows: &[Row<'_>], head: &str) -> Option<Table> {
    let cells = |(title, cell): &Row<'_>| {
        let cells: Vec<Option<String>> = columns.iter().map(|column| cell(column)).collect();
        let any = cells.iter().any(Option::is_some);
        let shown = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".into()));
        any.then(|| std::iter::once(title.clone()).chain(shown).collect::<Vec<_>>())
    };
    let rows: Vec<Vec<String>> = rows.iter().filter_map(cells).collect();
    let head: Vec<&str> = std::iter::once(head).chain(columns.iter().copied()).collect();
    (!rows.is_empty()).then(|| table(head, rows))
}

/// A row for each program, a column for each library.
fn programs(results: &Results, cost: Cost) -> Table {
    let libraries: Vec<&str> = results.header.subjects().collect();
    let programs = results.programs().into_iter().map(|(name, _)| name);
    cross("program", programs, &libraries, String::from, |program, library| cell(results, program, library, cost))
}

fn cell(results: &Results, program: &str, library: &str, cost: Cost) -> String {
    if results.failure(program, library).is_some() {
        return "failed".into();
    }
    match results.ratio(program, library, cost) {
        Some(_) if library == BASE => {
            let median = spread(&results.costs(program, library, cost)).map_or(0.0, |all| all.median);
            significant(if cost == Cost::Cpu { median / 1000.0 } else { median / 1024.0 })
        }
        Some(all) => two(all.median),
        None => "-".into(),
    }
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

/// What sums a library up.
fn summary(results: &Results) -> String {
    let libraries: Vec<&str> = results.header.subjects().collect();
    let mut rows = means(results);
    rows.extend(INTERFACE.iter().map(|&(operation, title)| {
        let cell = move |library: &str| counted(&results.interface, library, operation);
        (format!("instructions: {title}"), Box::new(cell) as Box<_>)
    }));
    rows.extend(behaviour(results));
    match of(&libraries, &rows, "each library, loaded before the program") {
        Some(table) => format!("{table}\n\n"),
        None => String::new(),
    }
}

fn counted(all: &[Counted], subject: &str, operation: &str) -> Option<String> {
    let one = all.iter().find(|one| one.subject == subject && one.operation == operation)?;
    Some(format!("{:.1}{}", one.instructions, if one.steps { " s" } else { "" }))
}

fn means(results: &Results) -> Vec<Row<'_>> {
    let mean = |title: &str, cost, real| -> Row<'_> {
        let cell = move |library: &str| results.mean(library, cost, real).map(two);
        (format!("{title}, geometric mean, {}", if real { "real programs" } else { "all" }), Box::new(cell))
    };
    let worst = |title: &str, cost| -> Row<'_> {
        let worst = move |library: &str| results.worst(library, cost).filter(|_| library != BASE);
        (
            format!("{title}, worst program"),
            Box::new(move |library| worst(library).map(|(name, value)| format!("{value:.2} {name}"))),
        )
    };
    vec![
        mean("CPU over glibc", Cost::Cpu, false),
        mean("CPU over glibc", Cost::Cpu, true),
        worst("CPU over glibc", Cost::Cpu),
        mean("peak RSS over glibc", Cost::Peak, false),
        mean("peak RSS over glibc", Cost::Peak, true),
        worst("peak RSS over glibc", Cost::Peak),
    ]
}

fn behaviour(results: &Results) -> Vec<Row<'_>> {
    let blocks = grouped(results.behaviour.freed.first().map_or(0, |freed| freed.blocks));
    let percent = |title: &str, keep, called, when| -> Row<'_> {
        let cell = move |library: &str| {
            results.resident(library, keep, called, when).map(|share| format!("{:.1} %", 100.0 * share))
        };
        (
            format!("{blocks} blocks, {} freed, resident {title}", if keep == 0 { "all" } else { "all but 1 in 64" }),
            Box::new(cell),
        )
    };
    let small = |process: &'static str| -> Row<'_> {
        let cell = move |library: &str| {
            results.small(library, process).map(|bytes| format!("{:.2}", bytes / f64::from(1 << 20)))
        };
        (format!("small process ({process}), MiB resident over glibc"), Box::new(cell))
    };
    let forks = move |library: &str| {
        let one = results.behaviour.forked.iter().find(|one| one.library == library)?;
        Some(format!("{} / {} of {}", one.numbers[1], one.numbers[2], one.numbers[0]))
    };
    let mut rows: Vec<Row<'_>> = [0, 64]
        .into_iter()
        .flat_map(|keep| {
            [
                percent("at once", keep, true, 0),
                percent("after 1 s and one call", keep, true, 2),
                percent("after 1 s without a call", keep, false, 1),
                percent("after 3 s without a call", keep, false, 2),
            ]
        })
        .collect();
    rows.push(("fork under load: deadlocks / bad children".into(), Box::new(forks)));
    rows.extend(["one block", "cat"].map(small));
    let starts = |library: &str| results.ratio("starts", library, Cost::Cpu).map(|all| two(all.median));
    rows.push(("threads that start and exit, CPU over glibc".into(), Box::new(starts)));
    rows
}

/// Rust programs, each with an allocator linked in.
fn rust(results: &Results) -> String {
    let subjects =
        results.rust.iter().map(|one| one.subject.as_str()).chain(results.times.iter().map(|one| one.subject.as_str()));
    let mut columns: Vec<&str> = Vec::new();
    subjects.for_each(|subject| {
        if !columns.contains(&subject) {
            columns.push(subject)
        }
    });
    let mut rows: Vec<Row<'_>> = RUST
        .iter()
        .map(|&(operation, title)| {
            let cell = move |subject: &str| counted(&results.rust, subject, operation);
            (format!("instructions: {title}"), Box::new(cell) as Box<_>)
        })
        .collect();
    let time = |title: &str, batch| -> Row<'_> {
        (
            format!("ns: {title}"),
            Box::new(move |subject| spread(&results.times(subject, batch)).map(|all| two(all.median))),
        )
    };
    rows.extend([time(RUST[0].1, false), time(RUST[1].1, true)]);
    let fastest = |subject: &str| results.to_fastest(subject).map(|all| spread_text(&all, two));
    rows.push((format!("batch, time over {FASTEST}'s in the same round"), Box::new(fastest)));
    match of(&columns, &rows, "as Rust global allocator, size known") {
        Some(table) => format!("{table}\n\n{SETTINGS}.\n\n"),
        None => String::new(),
    }
}

/// What a reader of the tables must know.
fn notes(results: &Results) -> String {
    let mut text = String::new();
    if !results.interface.is_empty() || !results.rust.is_empty() {
        text += "Instructions: call and loop included through C (about 9), an empty loop taken off in Rust; `s`: counted in \
                 steps, since valgrind has too few addresses for it.\n";
    }
    if results.programs().iter().any(|(name, _)| *name == "redis") {
        text += &format!("{PRELOADED}.\n");
    }
    let programs = results.programs().into_iter().map(|(name, _)| name).chain(["starts"]);
    for program in programs {
        for library in results.header.subjects() {
            if let Some(reason) = results.failure(program, library) {
                text += &format!("failed: {program} under {library}: {reason}\n");
            }
        }
    }
    for failed in &results.behaviour.failed {
        text += &format!("failed: {} under {}: {}\n", failed.what, failed.library, failed.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::results::tests::small;

    #[test]
    fn what_failed_or_is_missing_is_said() {
        let text = print(&small());
        let parts = ["failed: larson under peer: killed by signal 11", "SKIP z3: z3 is not there", "2.00 larson"];
        for part in parts.into_iter().chain(["failed: small process under peer"]) {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn all_that_was_measured_is_shown_and_nothing_else() {
        let text = print(&small());
        for part in ["38.2", "48.5 s", "89.0 %", "7 / 0 of 300", "0.50 (0.50 to 0.50)"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("calloc") && !text.contains("all freed"), "{text}");
    }
}
