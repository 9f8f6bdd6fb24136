//! `terrace replay --least`: what it prints, and what it refuses.

use crate::common;

use common::{HEADER, Sandbox, recorded, stderr, stdout};
use serde_json::Value;

const KEYS: [&str; 14] = [
    "arena_align",
    "bits",
    "events",
    "first_fit_bytes",
    "granule_bytes",
    "headers",
    "heap",
    "least_arena_bytes",
    "peak_granule_bytes",
    "peak_live_bytes",
    "percent_of_peak",
    "records",
    "trace",
    "tried_to_bytes",
];

/// Two blocks of 1000 bytes, and one of 5000 in place of the first.
fn small() -> String {
    format!("{HEADER}0,a,0,1000,16,0,x\n0,a,1,1000,16,1,x\n5,f,0,,,1,\n6,a,2,5000,16,0,x\n")
}

/// The rows of `--json -`.
fn rows(here: &Sandbox, words: &[&str]) -> Vec<Value> {
    let output = here.run(&[&["replay", "--least", "--json", "-"], words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

#[test]
fn a_board_s_heap_is_sized_from_a_recording() {
    let here = Sandbox::new();
    let trace = recorded("malloc_lua_embedded.csv.zst");
    let rows = rows(&here, &[trace.to_str().unwrap(), "--heap", "fast,small"]);
    assert_eq!(rows.iter().map(|row| row["heap"].as_str().unwrap()).collect::<Vec<_>>(), ["fast", "small"]);
    for row in &rows {
        let keys: Vec<_> =
            row.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        assert_eq!(keys, KEYS);
        assert_eq!(
            (number(row, "bits"), row["records"].as_str(), number(row, "granule_bytes")),
            (32, Some("narrow"), 8)
        );
        let [peak, granules, least] =
            ["peak_live_bytes", "peak_granule_bytes", "least_arena_bytes"].map(|key| number(row, key));
        assert!(peak < granules && granules < least && least < peak * 3 / 2, "{row}");
        assert!(number(row, "tried_to_bytes") >= least * 5 / 4);
        assert!((row["percent_of_peak"].as_f64().unwrap() - 100.0 * least as f64 / peak as f64).abs() < 1e-9);
    }
    assert!(here.names().is_empty(), "no picture");
}

#[test]
fn the_table_is_followed_by_a_sentence_with_the_answer() {
    let here = Sandbox::new();
    here.file("run.csv", small());
    let least = rows(&here, &["run.csv", "--heap", "fast"])[0]["least_arena_bytes"].as_u64().unwrap();
    let output = here.run(&["replay", "run.csv", "--heap", "fast", "--least", "--json", "rows.json"]);
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    let (thousands, text) = (format!("{},{:03}", least / 1000, least % 1000), stdout(&output));
    for part in ["on 32 bits, blocks without headers", "narrow (8 B)", "of peak"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(&format!("run: give the heap {thousands} bytes (Fast<Narrow>); sizes up to ")), "{last}");
    assert_eq!(here.names(), ["rows.json", "run.csv"]);
}

#[test]
fn records_headers_and_alignment_are_the_target_s() {
    let here = Sandbox::new();
    here.file("run.csv", small());
    let row = |words: &[&str]| rows(&here, &[&["run.csv", "--heap", "small"], words].concat()).remove(0);
    assert_eq!(row(&["--bits", "64"])["records"], "packed");
    let headers = ["32", "64"].map(|bits| {
        let [with, without] = [&["--headers"][..], &[]].map(|words| row(&[&["--bits", bits], words].concat()));
        number(&with, "peak_granule_bytes") - number(&without, "peak_granule_bytes")
    });
    // Two blocks are live at the peak: their headers have two words each.
    assert_eq!(headers, [2 * 8, 2 * 16]);
    here.file("run.csv", format!("{HEADER}0,a,0,100,4096,0,x\n"));
    assert_eq!(number(&row(&[]), "arena_align"), 4096);
    let cut = row(&["--align", "16"]);
    assert_eq!(number(&cut, "arena_align"), 16);
    assert!(number(&cut, "least_arena_bytes") < number(&row(&[]), "least_arena_bytes"));
}

#[test]
fn a_folder_and_standard_input_are_sized_too() {
    let here = Sandbox::new();
    std::fs::create_dir(here.path("runs")).unwrap();
    here.file("runs/a.csv", small());
    here.file("runs/b.csv", small().replace("5000", "50000"));
    let rows = rows(&here, &["runs", "--heap", "fast"]);
    assert_eq!(rows.iter().map(|row| row["trace"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(number(&rows[1], "least_arena_bytes") > number(&rows[0], "least_arena_bytes") + 40_000);
    let mut command = here.command(&["replay", "-", "--heap", "fast", "--least"]);
    let output = command.stdin(std::fs::File::open(here.path("runs/a.csv")).unwrap()).output().unwrap();
    assert!(stdout(&output).lines().last().unwrap().starts_with("stdin: give the heap "));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let here = Sandbox::new();
    here.file("run.csv", small());
    here.file("none.csv", format!("{HEADER}0,a,0,16,8,0,x\n0,f,0,,,0,\n0,f,0,,,0,\n"));
    here.file("far.csv", format!("{HEADER}0,a,0,3000000000,16,0,x\n"));
    here.file("wide.csv", format!("{HEADER}0,a,0,100000000000,16,0,x\n"));
    for (words, part) in [
        (&["run.csv", "--least"][..], "--heap <PROFILE>"),
        (&["run.csv", "--heap", "fast"], "--least"),
        (&["run.csv", "--heap", "slow", "--least"], "[possible values: fast"),
        (&["run.csv", "--heap", "fast", "--least", "--pool", "rmm"], "cannot be used with"),
        (&["run.csv", "--heap", "fast", "--least", "--bits", "16"], "[possible values: 32, 64]"),
        (&["run.csv", "--heap", "fast", "--least", "--align", "3"], "give a power of two"),
        (&["run.csv", "--align", "4"], "--least"),
        (&["run.csv", "--heap", "fast", "--least", "--min-size", "1M"], "no event is left with --min-size 1048576"),
        (&["none.csv", "--heap", "fast", "--least"], "none.csv:4: double free"),
        (&["far.csv", "--heap", "fast", "--least"], "at most 2,147,483,647 bytes; give --bits 64"),
        (&["wide.csv", "--heap", "fast", "--least", "--bits", "64"], "fits into no arena of a heap on 64 bits"),
    ] {
        let output = here.run(&[&["replay"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(part), "{part} in {}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}
