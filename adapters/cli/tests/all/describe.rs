//! `terrace completions`, `terrace man`, and `--json` of every command that prints results.

use crate::common::{HEADER, Sandbox, stderr, stdout};
use std::process::{Command, Output, Stdio};

/// Commands that print results; the others print text that another program reads.
const WITH_RESULTS: [&[&str]; 7] =
    [&["replay"], &["record", "convert"], &["doctor"], &["estimate"], &["tiers"], &["bench", "gpu"], &["shm"]];

/// The output of a program; `None` where there is none.
fn output(program: &str, words: &[&str]) -> Option<Output> {
    Command::new(program).args(words).env("MANPAGER", "cat").env("MANWIDTH", "100").stdin(Stdio::null()).output().ok()
}

#[test]
fn bash_completes_commands_and_options_from_the_script() {
    let here = Sandbox::new();
    let script = here.run(&["completions", "bash"]);
    assert!(script.status.success() && script.stderr.is_empty(), "{}", stderr(&script));
    here.file("terrace.bash", &script.stdout);
    let path = here.path("terrace.bash");
    let Some(checked) = output("bash", &["-n", &path.display().to_string()]) else {
        println!("SKIP bash_completes_commands_and_options_from_the_script: apt-get install bash");
        return;
    };
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", stderr(&checked));
    let completed = |line: &str| {
        let words = format!("COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))");
        // What bash calls: the command, the word to complete, the word before.
        let call = "_terrace terrace \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"";
        let text = format!("source {}; {words}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\"", path.display());
        let output = output("bash", &["-c", &text]).expect("it was there");
        stdout(&output).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed("terrace re"), ["replay", "report", "record"]);
    assert_eq!(completed("terrace record co"), ["convert"]);
    assert_eq!(completed("terrace doctor --js"), ["--json"]);
}

#[test]
fn every_shell_gets_a_script_and_an_unknown_one_the_names() {
    let here = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = here.run(&["completions", shell]);
        assert!(script.status.success() && stdout(&script).contains("fence-delay"), "{shell}: {}", stderr(&script));
    }
    let refused = here.run(&["completions", "csh"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("[possible values: bash, elvish, fish, powershell, zsh]"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn each_command_has_a_manual_page_that_man_reads() {
    let here = Sandbox::new();
    let written = here.run(&["man", "new/man1"]);
    assert!(written.status.success() && written.stdout.is_empty(), "{}", stderr(&written));
    let pages = here.path("new/man1");
    let mut names: Vec<_> =
        pages.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for words in WITH_RESULTS {
        assert!(names.contains(&format!("terrace-{}.1", words.join("-"))), "{words:?} in {names:?}");
    }
    assert!(names.contains(&"terrace.1".to_owned()) && names.contains(&"terrace-man.1".to_owned()), "{names:?}");
    assert_eq!(
        std::fs::read(pages.join("terrace.1")).unwrap(),
        here.run(&["man"]).stdout,
        "without a folder it is printed"
    );
    for name in names {
        let path = pages.join(&name).display().to_string();
        let man = output("man", &["--warnings", "-l", &path]).filter(|man| !stdout(man).is_empty());
        let Some(read) = man.or_else(|| output("mandoc", &["-W", "error", &path])) else {
            println!("SKIP each_command_has_a_manual_page_that_man_reads: apt-get install man-db");
            return;
        };
        assert!(read.status.success() && read.stderr.is_empty(), "{name}: {}", stderr(&read));
        let command = name.trim_end_matches(".1").to_uppercase();
        assert!(
            stdout(&read).to_uppercase().contains(&command) && stdout(&read).contains("--help"),
            "{}",
            stdout(&read)
        );
    }
    here.file("file", "");
    let refused = here.run(&["man", "file/man1"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("file/man1"), "{}", stderr(&refused));
}

#[test]
fn every_command_with_results_has_them_as_json() {
    let here = Sandbox::new();
    for words in WITH_RESULTS {
        let help = here.run(&[words, &["--help"]].concat());
        assert!(stdout(&help).contains("--json"), "{words:?}: {}", stdout(&help));
    }
    for words in [&["doctor", "--json"][..], &["bench", "gpu", "--device", "host", "--quick", "--json"]] {
        let output = here.run(words);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON, and nothing else");
        assert!(json.is_object(), "{words:?}: {json}");
    }
}

#[test]
fn a_conversion_says_as_json_what_it_did() {
    let here = Sandbox::new();
    here.file("in.csv", format!("{HEADER}0,a,0,64,8,0,x\n1,a,1,64,8,0,x\n2,f,0,,,0,\n"));
    let output = here.run(&["record", "convert", "in.csv", "out.terrace", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let expected =
        serde_json::json!({"input": "in.csv", "output": "out.terrace", "events": 3, "left_out": 0, "shortened": 0});
    assert_eq!(json, expected);
    let refused = here.run(&["record", "convert", "absent.csv", "out.terrace", "--json"]);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "no results after bad input");
}
