//! `terrace tiers`: on the disks of this machine, with a simulated CUDA driver and without any.
#![cfg(target_os = "linux")]

use crate::common;

use common::{Sandbox, stderr, stdout};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Output;

/// Runs a command, which must succeed, and parses its JSON.
fn json(here: &Sandbox, words: &[&str]) -> Value {
    let output = here.run(words);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Checks that a command failed with one line that contains all of `parts`.
fn refused(output: &Output, code: i32, parts: &[&str]) {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty() && parts.iter().all(|part| error.contains(part)), "{parts:?} in {error}");
}

/// Checks that the figures of a measured disk are consistent.
fn sensible(disk: &Value) {
    let figures = &disk["measured"];
    assert!(number(figures, "file_bytes") <= (256 << 20) as f64 && number(figures, "file_bytes") > 0.0, "{disk}");
    assert!(number(figures, "file_bytes") <= number(disk, "capacity_bytes"), "{disk}");
    for name in ["write_bytes_per_s", "read_bytes_per_s", "random_4k_qd1_iops", "random_4k_qd16_iops"] {
        assert!(number(figures, name) > 0.0, "{name} in {disk}");
    }
    // Large reads in order bring at least half of what reads of 4 KiB in no order do.
    let random = number(figures, "random_4k_qd1_iops") * 4096.0;
    assert!(number(figures, "read_bytes_per_s") >= random / 2.0, "{disk}");
    // Half of the reads took at least the median: a second has room for at most twice its inverse.
    let most = 2e9 / number(figures, "random_4k_read_p50_ns");
    assert!(number(figures, "random_4k_qd1_iops") <= most + 1.0, "{disk}");
    assert!(["nvme", "ssd", "hdd"].contains(&disk["tier"].as_str().unwrap()), "{disk}");
}

#[test]
fn a_machine_is_described_in_json() {
    let here = Sandbox::new();
    let report = json(&here, &["tiers", "--json", "--directory", "."]);
    let cpu = &report["cpu"];
    assert!(number(cpu, "available_bytes") <= number(cpu, "total_bytes") && number(cpu, "available_bytes") > 0.0);
    assert!(number(&report["memory_measured"], "latency_ns") > 0.0);
    assert!(number(&report["memory_measured"], "copy_bytes_per_s") > 0.0);
    let budget = &report["budgets"][0];
    assert!(number(budget, "bytes") <= number(cpu, "available_bytes") && budget["of"][0].as_str() == Some("cpu"));
    let disks = report["disks"].as_array().unwrap();
    assert!(!disks.is_empty());
    for disk in disks {
        assert!(disk["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{disk}");
        assert_ne!(disk["tier"].is_null(), disk["refused"].is_null(), "{disk}");
        if !disk["capacity_bytes"].is_null() {
            assert!(number(disk, "free_bytes") <= number(disk, "capacity_bytes"), "{disk}");
        }
        // A tier has figures or a reason why not; a disk that is no tier has neither.
        let told = u8::from(!disk["measured"].is_null()) + u8::from(!disk["not_measured"].is_null());
        assert_eq!(told, u8::from(!disk["tier"].is_null()), "{disk}");
    }
    disks.iter().filter(|disk| !disk["measured"].is_null()).for_each(sensible);
    assert!(here.names().is_empty(), "nothing is left behind");
}

#[test]
fn a_named_directory_is_what_the_user_says() {
    let here = Sandbox::new();
    std::fs::create_dir(here.path("a=b")).unwrap();
    for (word, tier) in [("a=b=hdd", "hdd"), ("a=b=nvme", "nvme"), ("a=b=ssd", "ssd")] {
        let report = json(&here, &["tiers", "--json", "--no-measure", "--directory", word]);
        let disks = report["disks"].as_array().unwrap();
        let said: Vec<_> = disks.iter().filter(|disk| disk["decided_by"].as_str() == Some("word")).collect();
        assert_eq!((said.len(), said[0]["tier"].as_str()), (1, Some(tier)), "{report}");
        assert_eq!(said[0]["reasons"][0].as_str(), Some(format!("you said {tier}").as_str()));
    }
    assert_eq!(here.names(), ["a=b"]);
}

#[test]
fn nothing_is_measured_where_that_is_asked_for() {
    let here = Sandbox::new();
    let report = json(&here, &["tiers", "--json", "--no-measure", "--directory", "."]);
    assert!(report["memory_measured"].is_null());
    for disk in report["disks"].as_array().unwrap() {
        assert!(disk["measured"].is_null(), "{disk}");
        assert_eq!(disk["not_measured"].as_str(), (!disk["tier"].is_null()).then_some("--no-measure"), "{disk}");
        assert_ne!(disk["decided_by"].as_str(), Some("measurement"));
    }
}

#[test]
fn the_table_says_what_each_is_and_why() {
    let here = Sandbox::new();
    let output = here.run(&["tiers", "--directory", "."]);
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["device", "latency", "decided by", "cpu", " ns ", "GiB/s, copied", "budget of cpu: ", "MemAvailable"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let report = json(&here, &["tiers", "--json", "--no-measure"]);
    for disk in report["disks"].as_array().unwrap() {
        let line = format!("{} on {}", disk["device"].as_str().unwrap(), disk["mount"].as_str().unwrap());
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(here.names().is_empty());
}

#[test]
fn what_cannot_be_measured_is_one_line_that_says_what_to_do() {
    let here = Sandbox::new();
    here.file("a-file", "");
    let tiers = |directory: &str| here.run(&["tiers", "--directory", directory]);
    refused(&tiers("a-file/inside"), 2, &["a-file/inside: cannot be made", "give a directory that you may write"]);
    let absent = here.run(&["tiers", "--no-measure", "--directory", "absent"]);
    refused(&absent, 2, &["absent: ", "No such file", "give a directory that is there"]);
    refused(&tiers("a-file"), 2, &["a-file: ", "not a directory", "give a directory that is there"]);
    // The valid directory before the invalid one is not measured either.
    refused(&here.run(&["tiers", "--directory", ".", "--directory", "a-file/inside"]), 2, &["a-file/inside: "]);
    // /proc accepts no file, not even root's, although the user declares it to be an SSD.
    refused(&tiers("/proc=ssd"), 1, &["/proc: no file can be made", "give a directory that you may write"]);
    for (word, what) in [(".=gpu", "a directory is never gpu"), ("", "give a directory")] {
        let output = tiers(word);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }
    assert_eq!(here.names(), ["a-file"]);
}

/// Runs the command as a user without files: root, who may write everywhere, changes to the user `nobody`.
fn unprivileged(here: &Sandbox, directory: &str, words: &[&str]) -> Output {
    let program = here.path("terrace");
    std::fs::copy(env!("CARGO_BIN_EXE_terrace"), &program).unwrap();
    let mut command = std::process::Command::new(program);
    command.args(words).current_dir(here.path(directory)).env("TMPDIR", here.path(directory));
    let probe = here.path(directory).join("probe");
    if std::fs::write(&probe, "").is_ok() {
        std::fs::remove_file(probe).unwrap();
        command.uid(65534).gid(65534);
    }
    // A child that another test forks keeps the copy open for writing until its exec.
    loop {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            output => return output.unwrap(),
        }
    }
}

#[test]
fn a_directory_of_another_user_is_an_error_and_a_plain_call_passes_it_by() {
    let here = Sandbox::new();
    std::fs::create_dir(here.path("closed")).unwrap();
    for (name, mode) in [("closed", 0o555), ("", 0o755)] {
        std::fs::set_permissions(here.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let named = unprivileged(&here, "closed", &["tiers", "--directory", "."]);
    refused(&named, 1, &["/closed: no file can be made: Permission denied", "that you may write"]);
    let output = unprivileged(&here, "closed", &["tiers", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for disk in report["disks"].as_array().unwrap() {
        let why = disk["not_measured"].as_str().unwrap_or_default();
        assert!(disk["measured"].is_null(), "{disk}");
        assert!(disk["tier"].is_null() || why.starts_with("not measured: give --directory DIR"), "{disk}");
    }
}

#[test]
fn little_memory_is_measured_with_less_of_it() {
    let here = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_terrace");
    // Two buffers of 128 MiB do not fit into 200 MB of address space.
    let script = format!("ulimit -v 200000 && exec {program} tiers --json");
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(here.path("")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let memory = &report["memory_measured"];
    assert!(memory.is_null() || number(memory, "buffer_bytes") <= (64 << 20) as f64, "{memory}");
}

#[test]
fn memory_is_no_tier_where_a_directory_of_it_is_named() {
    let here = Sandbox::new();
    let report = json(&here, &["tiers", "--json", "--no-measure", "--directory", "/dev/shm"]);
    let disks = report["disks"].as_array().unwrap();
    let Some(memory) = disks.iter().find(|disk| disk["file_system"].as_str() == Some("tmpfs")) else {
        // This system has no tmpfs there.
        return assert!(!stdout(&here.run(&["tiers", "--no-measure"])).contains("tmpfs"));
    };
    assert_eq!((memory["tier"].as_str(), memory["refused"].as_str()), (None, Some("memory")));
    // Without `--directory` it is not listed, not even if the current directory is there.
    let mut command = here.command(&["tiers"]);
    let output = command.current_dir("/dev/shm").env("TMPDIR", "/dev/shm").output().unwrap();
    assert!(output.status.success() && !stdout(&output).contains("tmpfs"), "{}", stdout(&output));
}

#[test]
fn a_gpu_has_a_line_and_a_budget_of_its_own() {
    let here = Sandbox::new();
    let driver = terrace_tests::simcuda::without_symbols(&[]);
    let words = ["tiers", "--no-measure", "--driver", driver.to_str().unwrap()];
    let report = json(&here, &[&words[..], &["--json"]].concat());
    let (gpu, budgets) = (&report["gpus"][0], report["budgets"].as_array().unwrap());
    assert_eq!((gpu["device"].as_str(), gpu["shares_memory"].as_bool()), (Some("cuda:0"), Some(false)));
    assert!(number(gpu, "free_bytes") <= number(gpu, "total_bytes") && number(gpu, "free_bytes") > 0.0, "{gpu}");
    assert_eq!((budgets.len(), budgets[1]["of"][0].as_str()), (2, Some("cuda:0")));
    assert_eq!((&budgets[1]["joint"], &report["notes"]), (&Value::Bool(false), &Value::Array(Vec::new())));
    let output = here.run(&words);
    assert!(stdout(&output).contains("budget of cuda:0: ") && stdout(&output).contains("gpu"), "{}", stdout(&output));
}

#[test]
fn a_directory_that_is_not_there_is_made() {
    let here = Sandbox::new();
    let report = json(&here, &["tiers", "--json", "--directory", "new/deep=ssd"]);
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str() == Some("new/deep was not there, and has been made")), "{notes:?}");
    let said = |disk: &&Value| disk["decided_by"].as_str() == Some("word");
    assert!(report["disks"].as_array().unwrap().iter().find(said).is_some_and(|disk| !disk["measured"].is_null()));
    assert!(here.path("new/deep").is_dir() && here.path("new/deep").read_dir().unwrap().next().is_none());
}

#[test]
fn a_busy_machine_is_told_with_the_figures() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (here, over) = (Sandbox::new(), AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        // As many as there are processors: even among as many others they get half of the time.
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let report = json(&here, &["tiers", "--json"]);
        over.store(true, Ordering::Relaxed);
        report
    });
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().filter_map(Value::as_str).any(|note| note.starts_with("the machine is busy: ")), "{notes:?}");
    // A figure that was interrupted now and then is still that of memory: not even a slow one takes a microsecond.
    assert!(number(&report["memory_measured"], "latency_ns") < 1000.0, "{report}");
}

#[test]
fn the_demo_tells_of_its_progress_where_there_is_no_terminal() {
    let here = Sandbox::new();
    let output = here.run(&["tiers", "--demo", "--directory", "new"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<u32> = stderr(&output)
        .lines()
        .map(|line| line.strip_prefix("demo: ").and_then(|line| line.split_once(' ')).unwrap().0.parse().unwrap())
        .collect();
    assert!(lines.len() == 8 && lines.is_sorted() && lines[7] == 100, "{lines:?}");
    assert!(stdout(&output).contains("every byte was right") && here.path("new").is_dir());
}

#[test]
fn the_demo_moves_buffers_and_every_byte_is_right() {
    let here = Sandbox::new();
    let report = json(&here, &["tiers", "--demo", "--json", "--directory", "."]);
    assert!(number(&report, "data_bytes") >= 6.0 * number(&report, "memory_bytes"), "{report}");
    assert!(number(&report, "bytes_checked") >= 5.0 * number(&report, "data_bytes"), "{report}");
    for name in ["promotions", "demotions", "drops_without_copying", "synced"] {
        assert!(number(&report, name) > 0.0, "{name} in {report}");
    }
    assert_eq!(report["synced"], report["found_after_restart"], "{report}");
    assert_eq!(here.names(), [""; 0], "nothing is left");
}

#[test]
fn the_demo_uses_a_gpu_where_there_is_one() {
    let here = Sandbox::new();
    let driver = terrace_tests::simcuda::without_symbols(&[]);
    let words = ["tiers", "--demo", "--directory", ".", "--driver", driver.to_str().unwrap()];
    let report = json(&here, &[&words[..], &["--json"]].concat());
    assert_eq!(report["devices"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["device_bytes"], report["memory_bytes"], "{report}");
    assert_eq!(report["synced"], report["found_after_restart"], "{report}");
    assert!(number(&report, "promotions") > 0.0, "{report}");
}

#[test]
fn the_demo_says_where_it_cannot_be() {
    let here = Sandbox::new();
    here.file("a-file", "");
    let nowhere = here.run(&["tiers", "--demo", "--directory", "a-file/inside"]);
    refused(&nowhere, 2, &["a-file/inside: cannot be made", "that you may write"]);
    refused(&here.run(&["tiers", "--demo", "--directory", ".", "--directory", "."]), 2, &["one --directory"]);
}
