//! Unusual use: no file is overwritten unasked, large and odd traces replay, failures are explained.

use crate::common;

use common::{HEADER, Sandbox, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

const SMALL: &str = "0,a,0,4096,64,0,x\n7,f,0,,,0,\n";

/// A directory with a small trace `t.csv`.
fn small() -> Sandbox {
    let here = Sandbox::new();
    here.file("t.csv", format!("{HEADER}{SMALL}"));
    here
}

/// Runs a command with invalid arguments: exit code 2, an error that contains `what`, and no new file.
fn refused(here: &Sandbox, words: &[&str], what: &str) {
    let before = here.names();
    let output = here.run(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
    assert!(stderr(&output).contains(what), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    assert_eq!(here.names(), before);
}

#[test]
fn outputs_never_replace_a_trace_or_each_other() {
    let here = small();
    refused(&here, &["replay", "t.csv", "--json", "t.csv"], "t.csv: is a trace to replay");
    refused(&here, &["replay", "t.csv", "--json", "./t.csv"], "./t.csv: is a trace to replay");
    refused(&here, &["replay", "t.csv", "--picture", "o.svg", "--json", "./o.svg"], "./o.svg: is to be written twice");
    here.file("replay-t.svg", format!("{HEADER}{SMALL}"));
    refused(&here, &["replay", "t.csv", "replay-t.svg"], "replay-t.svg: is a trace to replay");
    assert_eq!(fs::read_to_string(here.path("t.csv")).unwrap(), format!("{HEADER}{SMALL}"));
}

#[test]
fn a_trace_in_between_does_not_take_the_picture_of_another() {
    let here = small();
    fs::create_dir(here.path("d")).unwrap();
    here.file("d/t.csv", format!("{HEADER}{SMALL}"));
    here.file("t-2.csv", format!("{HEADER}{SMALL}"));
    let output = here.run(&["replay", "t.csv", "d/t.csv", "t-2.csv", "--pool", "rmm"]);
    assert!(stdout(&output).ends_with("replay-t.svg\nreplay-t-3.svg\nreplay-t-2.svg\n"), "{}", stdout(&output));
}

#[test]
fn too_many_panels_are_refused_before_the_work() {
    let here = small();
    let words = [&["replay", "--picture", "p.png"][..], &["t.csv"; 65]].concat();
    refused(&here, &words, "65 traces do not fit into one picture, the most is 64");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_json_keeps_the_table_and_a_lost_reader_the_json() {
    let here = small();
    let output = here.run(&["replay", "t.csv", "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("t: 2 events") && stderr(&output).contains("/dev/full: cannot write"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(here.command(&["replay", "t.csv", "--json", "o.json"]).stdout(writer).status().unwrap().success());
    assert!(serde_json::from_slice::<Value>(&fs::read(here.path("o.json")).unwrap()).is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn an_error_that_cannot_be_told_keeps_its_exit_code() {
    let here = Sandbox::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert_eq!(here.command(&["replay", "none.csv"]).stderr(full).status().unwrap().code(), Some(2));
}

#[cfg(unix)]
#[test]
fn links_stay_protected_files_stay_and_modes_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let here = small();
    here.file("real.json", "old");
    fs::set_permissions(here.path("real.json"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real.json", here.path("link.json")).unwrap();
    assert!(here.run(&["replay", "t.csv", "--json", "link.json"]).status.success());
    assert!(here.path("link.json").is_symlink());
    assert!(serde_json::from_slice::<Value>(&fs::read(here.path("real.json")).unwrap()).is_ok());
    assert_eq!(fs::metadata(here.path("real.json")).unwrap().permissions().mode() & 0o777, 0o600);
    here.file("kept.json", "old");
    fs::set_permissions(here.path("kept.json"), fs::Permissions::from_mode(0o444)).unwrap();
    let output = here.run(&["replay", "t.csv", "--json", "kept.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("kept.json: cannot write: the file there is read-only"), "{}", stderr(&output));
    assert_eq!(fs::read(here.path("kept.json")).unwrap(), b"old");
}

#[test]
fn the_longest_name_a_file_may_have_can_be_written() {
    let here = small();
    let name = format!("{}é.json", "n".repeat(248));
    assert_eq!(name.len(), 255);
    let output = here.run(&["replay", "t.csv", "--json", &name]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(here.names().contains(&name));
}

#[test]
fn a_dash_is_standard_input() {
    let here = small();
    let from = || Stdio::from(fs::File::open(here.path("t.csv")).unwrap());
    let output = here.command(&["replay", "-"]).stdin(from()).output().unwrap();
    assert!(stdout(&output).starts_with("stdin: 2 events") && stdout(&output).ends_with("replay-stdin.svg\n"));
    assert!(here.command(&["record", "convert", "-", "o.csv"]).stdin(from()).status().unwrap().success());
    assert_eq!(fs::read(here.path("o.csv")).unwrap(), fs::read(here.path("t.csv")).unwrap());
    if cfg!(unix) {
        let output = here.command(&["report", "-", "-o", "t.csv"]).stdin(from()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("t.csv: is a trace to replay"), "{}", stderr(&output));
    }
    let output = here.command(&["report", "t.csv", "-o", "-"]).output().unwrap();
    assert_eq!((output.status.code(), here.path("-").exists()), (Some(2), false));
    let output = here.command(&["replay", "-"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(stderr(&output), "terrace: standard input: the file is empty; record it again\n");
}

#[cfg(unix)]
#[test]
fn control_characters_in_names_reach_neither_picture_nor_terminal() {
    let here = Sandbox::new();
    here.file("a\u{1}\u{1b}[31m\nb.csv", format!("{HEADER}{SMALL}"));
    let output = here.run(&["replay", "a\u{1}\u{1b}[31m\nb.csv"]);
    assert!(stdout(&output).starts_with("a__[31m_b: 2 events"));
    let svg = fs::read_to_string(here.path("replay-a__[31m_b.svg")).unwrap();
    assert!(roxmltree::Document::parse(&svg).is_ok());
    let output = here.run(&["replay", "no\n\u{1b}[31m.csv"]);
    assert!(stderr(&output).starts_with(r"terrace: no\n\u{1b}[31m.csv: No such file"), "{}", stderr(&output));
}

#[test]
fn a_name_of_the_most_letters_is_cut_where_a_file_is_named_after_it() {
    let here = Sandbox::new();
    let name = format!("{}.csv", "ä".repeat(120));
    here.file(&name, format!("{HEADER}{SMALL}"));
    for words in [["replay", &name], ["report", &name]] {
        let output = here.run(&words);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert!(here.path(&format!("replay-{}.svg", "ä".repeat(100))).exists());
}

#[test]
fn what_a_log_contradicts_is_told() {
    let here = Sandbox::new();
    let line = |action: &str, address: u32| format!("1,15:47:02.841961,{action},{address:#x},4096,0\n");
    let lines = [line("allocate", 1), line("free", 2), line("free", 1)].concat();
    here.file("rmm.log", format!("Thread,Time,Action,Pointer,Size,Stream\n{lines}"));
    for command in ["replay", "report"] {
        let output = here.run(&[command, "rmm.log"]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).starts_with("terrace: rmm: 1 frees of unknown addresses"), "{}", stderr(&output));
    }
}

#[test]
fn times_count_from_the_first_event() {
    let here = Sandbox::new();
    here.file("t.csv", format!("{HEADER}1700000000000000,a,0,4096,64,0,x\n1700000000004000,f,0,,,0,\n"));
    assert!(here.run(&["replay", "t.csv"]).status.success());
    let svg = fs::read_to_string(here.path("replay-t.svg")).unwrap();
    assert!(svg.contains("time since the first event (us)") && svg.contains("\n3000\n"), "{svg}");
}

/// More live blocks than a default arena has records for: the replay gives pools more room, so that none fails.
#[test]
fn many_live_blocks_find_room() {
    let here = Sandbox::new();
    let lines: String = (0..600_000u64).map(|id| format!("{id},a,{id},{},16,0,x\n", 64 + id % 64)).collect();
    let trace = format!("{HEADER}{lines}");
    here.file("t.csv", &trace);
    let output = here.run(&["replay", "t.csv", "--json", "-"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for row in &rows {
        assert_eq!((row["failed"].as_u64(), row["events"].as_u64()), (Some(0), Some(600_000)), "{row}");
    }
}

/// A simulated device has at most 1 PiB: for a trace of absurd sizes its page table must not exhaust the machine's memory.
#[test]
fn absurd_sizes_fail_and_say_why() {
    let here = Sandbox::new();
    let lines: String = (0..2000u64).map(|id| format!("0,a,{id},{},8,0,x\n", 1u64 << 48)).collect();
    here.file("t.csv", format!("{HEADER}{lines}"));
    for source in ["growing", "segments"] {
        let output = here.run(&["replay", "t.csv", "--pool", "pytorch", "--source", source]);
        assert!(stdout(&output).contains("pytorch: 1,996 failed, the first at event 4: out of memory"), "{output:?}");
    }
}
