//! What is printed.
//!
//! Promises upward: every number with its unit; what was refused, did not fit or was not measured stands where its number
//! would be. Asks from below: [`Results`].

use super::command::SIZES;
use super::fill::Mix;
use super::results::{Results, Text};
use super::subjects::Name;
use super::works::Work;
use crate::table::{cross, given, significant, spread_text, table, where_and_when};
use clap::ValueEnum;
use comfy_table::Table;
use terrace_models::rounds::spread;

/// Refusals above this share of the operations are told: the heap had less to do than the others.
const TOLD: f64 = 0.0005;

/// Everything, as text.
pub fn print(results: &Results) -> String {
    let mut text = where_and_when(&results.header);
    text += "Nanoseconds an operation (one allocation or one free): median (least to greatest).\n\n";
    text += &format!("{}\n\n", by(results, Work::value_variants(), Work::title, time));
    text += "Each round's time over talc's in the same round: median (least to greatest).\n\n";
    text += &format!("{}\n\n", by(results, Work::value_variants(), Work::title, ratio));
    text += &instructions(results);
    text +=
        "Live payload over memory when a request is refused, %, averaged; tables in the memory count as memory.\n\n";
    let share = |subject: &str, mix| percent(results.share(subject, mix));
    text += &format!("{}\n\n", by(results, Mix::value_variants(), Mix::title, |_, subject, mix| share(subject, mix)));
    text += "Bytes that a block takes beyond its size (what grows with the memory included); vectors' doublings that stay in place, %.\n\n";
    text += &format!("{}\n\n", costs(results));
    match &results.texts_skipped {
        Some(reason) => text += &format!("Code on Thumb was not measured: {reason}\n\n"),
        None => text += &format!("{}\n\n", texts(&results.texts)),
    }
    text + &given(&results.header)
}

/// A row for each heap, a column for each of some.
fn by<T: Copy>(
    results: &Results,
    columns: &[T],
    title: impl Fn(T) -> &'static str,
    cell: impl Fn(&Results, &str, T) -> String,
) -> Table {
    let title = |column| title(column).to_owned();
    cross("heap", results.header.subjects(), columns, title, |subject, column| cell(results, subject, column))
}

fn time(results: &Results, subject: &str, work: Work) -> String {
    let Some(all) = spread(&results.times(subject, work)) else { return "does not fit".into() };
    let refused = results.refused(subject, work);
    let note = if refused > TOLD { format!(", {:.1} % refused", 100.0 * refused) } else { String::new() };
    spread_text(&all, significant) + &note
}

fn ratio(results: &Results, subject: &str, work: Work) -> String {
    let ratio = results.ratio(subject, Name::Talc.title(), work);
    ratio.map_or("-".into(), |all| spread_text(&all, |value| format!("{value:.2}")))
}

fn instructions(results: &Results) -> String {
    if let Some(reason) = &results.instructions_skipped {
        return format!("Instructions were not counted: {reason}\n\n");
    }
    let cell = |results: &Results, subject: &str, work| {
        results.per_op(subject, work).map_or("-".into(), |count| format!("{count:.1}"))
    };
    format!(
        "Instructions an operation, counted by callgrind, the function around the call included.\n\n{}\n\n",
        by(results, Work::value_variants(), Work::title, cell)
    )
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.1}", 100.0 * share))
}

fn costs(results: &Results) -> Table {
    // Of each size, and last of growth.
    let columns: Vec<Option<u32>> = SIZES.into_iter().map(Some).chain([None]).collect();
    let title = |size: Option<u32>| size.map_or("in place".into(), |size| format!("{size} bytes"));
    cross("heap", results.header.subjects(), &columns, title, |subject, size| match size {
        Some(size) => {
            let cost = results.costs.iter().find(|cost| cost.subject == subject && cost.size == size);
            cost.map_or("-".into(), |cost| format!("{:.1}", cost.overhead))
        }
        None => percent(results.grown.iter().find(|grown| grown.subject == subject).map(|grown| grown.in_place)),
    })
}

/// Code sizes.
pub fn texts(texts: &[Text]) -> String {
    let head = ["heap", "text bytes", "static bytes"];
    let row = |text: &Text| vec![text.subject.clone(), text.text.to_string(), text.state.to_string()];
    format!(
        "Bytes on Thumb (thumbv7em-none-eabihf, opt-level z, fat LTO) of init, alloc and free, linked: .text and .rodata;\n\
         .data and .bss, where what a heap keeps in its memory does not count.\n\n{}",
        table(head, texts.iter().map(row).collect())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::results::tests::small;

    #[test]
    fn what_was_not_measured_is_said() {
        let text = print(&small());
        for part in ["does not fit", "5.0 % refused", "0.50 (0.25 to 0.75)", "55.5", "95.0", "8.0", "30.0", "no linker"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn code_is_a_table() {
        let text = texts(&[Text { subject: "rlsf".into(), text: 680, state: 2644 }]);
        assert!(text.contains("680") && text.contains("2644"), "{text}");
    }
}
