//! Folders of traces, and snapshots of several devices: one table, one page.

use crate::common;

use common::{HEADER, Sandbox, stderr, stdout, zstd};
use serde_json::Value;
use std::fs;

/// A trace of one block of so many bytes.
fn block(bytes: u64) -> String {
    format!("{HEADER}0,a,0,{bytes},64,0,x\n")
}

/// Good traces of three sizes, two of them of one name in a folder of their own.
fn folder() -> Sandbox {
    let here = Sandbox::new();
    fs::create_dir_all(here.path("traces/more")).unwrap();
    here.file("traces/b.csv", block(2 << 20));
    here.file("traces/a.csv.zst", zstd(block(1 << 20).as_bytes()));
    here.file("traces/more/a.csv", block(3 << 20));
    // No traces.
    here.file("traces/README.md", "words");
    here.file("traces/.hidden.csv", "words");
    here.file("traces/a.json", "{}");
    here
}

/// Names and live bytes of the traces in the rows of `replay --json -`, or on the page of `report --json -`.
fn traces(text: &str) -> Vec<(String, u64)> {
    let data: Value = serde_json::from_str(text).unwrap();
    let (list, name) = if data.is_array() { (&data, "trace") } else { (&data["traces"], "name") };
    let of = |row: &Value| (row[name].as_str().unwrap().to_owned(), row["peak_live_bytes"].as_u64().unwrap());
    list.as_array().unwrap().iter().map(of).collect()
}

/// Both commands, which print JSON.
fn commands(words: &[&'static str]) -> [Vec<&'static str>; 2] {
    let with = |first: &[&'static str]| [first, words, &["--json", "-"]].concat();
    [with(&["replay", "--pool", "best"]), with(&["report", "--no-advice"])]
}

fn named(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(name, mib)| ((*name).to_owned(), mib << 20)).collect()
}

#[test]
fn a_folder_is_its_traces_by_name() {
    let here = folder();
    for words in commands(&["traces"]) {
        let output = here.run(&words);
        assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
        assert_eq!(traces(stdout(&output)), named(&[("a", 1), ("b", 2), ("more-a", 3)]), "{words:?}");
    }
}

#[test]
fn a_folder_is_one_table_and_a_picture_each() {
    let here = folder();
    let output = here.run(&["replay", "traces", "--pool", "best,pytorch-expandable", "--source", "segments"]);
    let text = stdout(&output);
    assert!(text.starts_with("3 traces, source segments\n"), "{text}");
    assert_eq!(text.matches("utilisation").count(), 1, "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for (trace, live) in [("a", "1.00"), ("b", "2.00"), ("more-a", "3.00")] {
        for pool in [&["best"][..], &["pytorch-expandable", "(growing)"]] {
            let row = [&[trace, "1", live, "MiB"], pool].concat();
            assert_eq!(rows.iter().filter(|found| found.starts_with(&row)).count(), 1, "{row:?} in {text}");
        }
    }
    let pictures = ["replay-a.svg", "replay-b.svg", "replay-more-a.svg"];
    assert!(text.ends_with(&pictures.map(|name| format!("{name}\n")).concat()), "{text}");
    assert_eq!(here.names(), [&pictures[..], &["traces"]].concat());
}

#[test]
fn traces_of_one_name_are_told_apart() {
    let here = folder();
    assert!(here.run(&["record", "convert", "traces/b.csv", "traces/b.terrace"]).status.success());
    here.file("traces/more-a.csv", block(4 << 20));
    let expected = [("a", 1), ("b", 2), ("b.terrace", 2), ("more-a", 3), ("more-a.csv", 4)];
    for words in commands(&["traces"]) {
        assert_eq!(traces(stdout(&here.run(&words))), named(&expected), "{words:?}");
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_told_and_does_not_stop_the_others() {
    let here = folder();
    here.file("traces/aa.csv", format!("{}9,f,7,,,0,\n", block(1)));
    here.file("traces/c.terrace", "words");
    for words in commands(&["traces"]) {
        let output = here.run(&words);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(traces(stdout(&output)), named(&[("a", 1), ("b", 2), ("more-a", 3)]), "{words:?}");
        let lines: Vec<&str> = stderr(&output).lines().collect();
        assert!(lines[0].starts_with("terrace: traces/aa.csv:3: ") && lines[0].contains("unknown id 7"), "{lines:?}");
        assert!(lines[1].starts_with("terrace: traces/c.terrace:1: "), "{lines:?}");
        assert_eq!(lines[2..], ["terrace: 2 of 5 traces could not be read, see above"]);
    }
    assert!(fs::read_to_string(here.path("report.html")).unwrap().contains("\"more-a\""));
    let output = here.run(&["replay", "traces", "--pool", "best"]);
    assert_eq!((output.status.code(), stdout(&output).contains("3 traces")), (Some(2), true));
    assert_eq!(here.names(), ["replay-a.svg", "replay-b.svg", "replay-more-a.svg", "report.html", "traces"]);
    // A trace that is named itself stops the command, as ever.
    let output = here.run(&["replay", "traces", "traces/aa.csv"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
}

#[test]
fn folders_without_traces_are_errors_and_nothing_is_written() {
    let here = Sandbox::new();
    fs::create_dir_all(here.path("empty/deep")).unwrap();
    fs::create_dir(here.path("words")).unwrap();
    here.file("words/README.md", "words");
    fs::create_dir(here.path("bad")).unwrap();
    here.file("bad/one.csv", "");
    let none = "no file ends in .csv, .terrace, .pickle, .pkl, .log, also with .gz or .zst; give traces\n";
    let bad = "terrace: bad/one.csv: the file is empty";
    for (folder, said) in [
        ("empty", format!("terrace: empty: {none}")),
        ("words", format!("terrace: words: {none}")),
        ("bad", bad.into()),
    ] {
        for words in ["replay", "report"] {
            let output = here.run(&[words, folder]);
            assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
            assert!(stderr(&output).starts_with(&said), "{}", stderr(&output));
        }
    }
    assert!(stderr(&here.run(&["replay", "bad"])).ends_with("terrace: 1 of 1 traces could not be read, see above\n"));
    assert_eq!(here.names(), ["bad", "empty", "words"]);
}

#[cfg(unix)]
#[test]
fn links_to_folders_are_not_followed_and_those_to_files_are() {
    let here = folder();
    fs::rename(here.path("traces/more"), here.path("traces/more\n")).unwrap();
    for (to, link) in [("..", "up.csv"), ("../b.csv", "z.csv"), ("nowhere", "zz.csv")] {
        std::os::unix::fs::symlink(to, here.path("traces/more\n").join(link)).unwrap();
    }
    let [words, _] = commands(&["traces"]);
    let output = here.run(&words);
    assert_eq!(traces(stdout(&output)), named(&[("a", 1), ("b", 2), ("more_-a", 3), ("more_-z", 2)]));
    assert!(stderr(&output).starts_with(r"terrace: traces/more\n/zz.csv: No such file"), "{}", stderr(&output));
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 2));
}

/// A snapshot of PyTorch in which each device has allocated so many bytes, or has no history.
fn snapshot(devices: &[Option<u32>]) -> Vec<u8> {
    let text = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let number = |number: u32| [&b"J"[..], &number.to_le_bytes()].concat();
    let entry = |bytes: u32| {
        let numbers = [("addr", 9000), ("size", bytes), ("stream", 0), ("time_us", 70)];
        let numbers = numbers.map(|(key, value)| [text(key), number(value)].concat()).concat();
        [&b"}("[..], &text("action"), &text("alloc"), &numbers, b"u"].concat()
    };
    let history = |bytes: &Option<u32>| [&b"]("[..], &bytes.map(entry).unwrap_or_default(), b"e"].concat();
    let histories: Vec<u8> = devices.iter().flat_map(history).collect();
    [&b"\x80\x02}("[..], &text("segments"), b"]", &text("device_traces"), b"](", &histories, b"eu."].concat()
}

#[test]
fn each_device_of_a_snapshot_is_a_trace_or_the_one_that_is_chosen() {
    let here = Sandbox::new();
    here.file("run.pickle", snapshot(&[Some(1 << 20), None, Some(2 << 20)]));
    here.file("one.pickle", snapshot(&[None, Some(3 << 20)]));
    for words in commands(&["run.pickle", "one.pickle"]) {
        let all = named(&[("run-device-0", 1), ("run-device-2", 2), ("one", 3)]);
        assert_eq!(traces(stdout(&here.run(&words))), all, "{words:?}");
    }
    for words in commands(&["run.pickle", "--device", "2"]) {
        assert_eq!(traces(stdout(&here.run(&words))), named(&[("run", 2)]), "{words:?}");
    }
    for words in commands(&["run.pickle", "--device", "1"]) {
        let output = here.run(&words);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output), "terrace: run.pickle: device 1 has no history; these have one: [0, 2]\n");
    }
}
