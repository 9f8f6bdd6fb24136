//! `terrace config`: what holds, from where; what cannot be taken.

use crate::common::{Sandbox, stderr, stdout};
use serde_json::Value;
use std::process::Output;
use terrace_core::settings::TABLE;

/// Runs the command with these variables.
fn run(here: &Sandbox, words: &[&str], variables: &[(&str, &str)]) -> Output {
    here.command(words).envs(variables.iter().copied()).output().expect("it runs")
}

fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut rows = report["settings"].as_array().expect("rows").iter();
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} in {report}"))
}

#[test]
fn every_setting_is_shown_with_where_its_value_came_from() {
    let here = Sandbox::new();
    let file = here.file("own.toml", "chunk = \"64KiB\"\nmemory = \"1GiB\"\n[[directory]]\npath = \"/mnt/a\"\n");
    let file = file.to_str().expect("a path");
    let variables =
        [("TERRACE_CONFIG", file), ("TERRACE_MEMORY", "2GiB"), ("TERRACE_LIMIT", "3G"), ("TERRACE_PRESET", "training")];
    let output = run(&here, &["config", "--json"], &variables);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (name, value, from) in [
        ("chunk", "64KiB", format!("{file}, line 1")),
        ("memory", "2GiB", "TERRACE_MEMORY".into()),
        ("segment", "64MiB", "preset training".into()),
        ("granule", "64", "default".into()),
        ("limit", "3GiB", "TERRACE_LIMIT".into()),
    ] {
        let row = row(&report, name);
        assert_eq!((row["value"].as_str(), row["from"].as_str()), (Some(value), Some(from.as_str())), "{name}");
    }
    assert_eq!((&report["preset"], &report["preset_from"]), (&"training".into(), &"TERRACE_PRESET".into()));
    assert_eq!(report["directories"][0]["path"], "/mnt/a");
    let text = stdout(&run(&here, &["config"], &variables)).to_string();
    for spec in TABLE {
        assert!(row(&report, spec.name)["allowed"].as_str().is_some_and(|allowed| !allowed.is_empty()));
        let line = text.lines().find(|line| line.trim().starts_with(&format!("{} ", spec.name)));
        let line = line.unwrap_or_else(|| panic!("{} in {text}", spec.name));
        assert!(line.contains(row(&report, spec.name)["value"].as_str().expect("a value")), "{line}");
    }
}

#[test]
fn what_acts_on_nothing_is_told_apart() {
    let here = Sandbox::new();
    let report: Value = serde_json::from_slice(&run(&here, &["config", "--json"], &[]).stdout).expect("JSON");
    let acts_on = |name: &str| row(&report, name)["acts_on"].to_string();
    assert_eq!(acts_on("min_free"), r#"["devices","managers"]"#);
    assert_eq!(acts_on("pooled_per_bucket"), r#"["devices","arenas","buffer pools"]"#);
    assert_eq!(acts_on("chunk"), r#"["managers"]"#);
    assert_eq!(acts_on("purge_delay"), r#"["programs"]"#);
}

#[test]
fn what_cannot_be_taken_is_one_line_and_nothing_is_printed() {
    let here = Sandbox::new();
    let short = here.file("short.toml", "memory = ");
    let short = short.to_str().expect("a path");
    for (words, variables, told) in [
        (
            &["config"][..],
            &[("TERRACE_MEMORY", "2GX")][..],
            "terrace: TERRACE_MEMORY is `2GX`; allowed: whole bytes".to_string(),
        ),
        (
            &["config"],
            &[("TERRACE_CACHE", "1M")],
            "terrace: TERRACE_CACHE is `1M`; allowed: whole bytes from 0 to 32KiB".into(),
        ),
        (&["config", "--preset", "fast"], &[], "terrace: preset is `fast`; allowed: usual, device".into()),
        (&["config", "--file", short], &[], format!("terrace: {short}, line 1: ")),
        (&["config"], &[("TERRACE_CONFIG", "/nowhere/x.toml")], "terrace: /nowhere/x.toml: No such file".into()),
    ] {
        let output = run(&here, words, variables);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stdout(&output).is_empty() && stderr(&output).lines().count() == 1, "{}", stderr(&output));
        assert!(stderr(&output).starts_with(&told), "{}", stderr(&output));
    }
    let output = run(&here, &["config"], &[("TERRACE_MEMROY", "2GiB")]);
    assert_eq!(stderr(&output), "terrace: TERRACE_MEMROY is no setting; TERRACE_MEMORY is\n");
    assert!(output.status.success());
}
