//! Settings from the environment. A bad value changes nothing, and prints one line to standard error that names the variable and
//! the value; a good one prints nothing.

use crate::compile::{CC, Program};
use crate::job::{Job, Run};
use crate::{have, library};

/// Variables, with invalid values.
const BAD: [(&str, &str); 20] = [
    ("TERRACE_PURGE_DELAY", "banana"),
    ("TERRACE_PURGE_DELAY", "-1"),
    ("TERRACE_PURGE_DELAY", "99999999999999999999"),
    ("TERRACE_PURGE_DELAY", ""),
    ("TERRACE_BACKGROUND", "maybe"),
    ("TERRACE_BACKGROUND", "2"),
    ("TERRACE_HUGE_PAGES", "HUGE"),
    ("TERRACE_NUMA", "bind:"),
    ("TERRACE_NUMA", "bind:64"),
    ("TERRACE_NUMA", "bind:0,x"),
    ("TERRACE_CACHE", "1G"),
    ("TERRACE_CACHE", "K"),
    ("TERRACE_LIMIT", "10"),
    ("TERRACE_LIMIT", "99999999999999999999T"),
    ("TERRACE_LIMIT", "2 GX"),
    ("TERRACE_DEEPBIND", "yes"),
    ("TERRACE_STATS", "yes"),
    ("TERRACE_CHECK", "yes"),
    ("TERRACE_LIVE", "page"),
    ("TERRACE_LIVE", "99999999999"),
];

const GOOD: [(&str, &str); 22] = [
    ("TERRACE_PURGE_DELAY", "0"),
    ("TERRACE_PURGE_DELAY", "never"),
    ("TERRACE_PURGE_DELAY", "250ms"),
    ("TERRACE_PURGE_DELAY", "2s"),
    ("TERRACE_BACKGROUND", "auto"),
    ("TERRACE_BACKGROUND", "0"),
    ("TERRACE_BACKGROUND", "1"),
    ("TERRACE_HUGE_PAGES", "default"),
    ("TERRACE_HUGE_PAGES", "always"),
    ("TERRACE_HUGE_PAGES", "never"),
    ("TERRACE_NUMA", "default"),
    ("TERRACE_NUMA", "local"),
    ("TERRACE_NUMA", "interleave"),
    ("TERRACE_NUMA", "bind:0"),
    ("TERRACE_CACHE", "0"),
    ("TERRACE_CACHE", "4K"),
    ("TERRACE_LIMIT", "2G"),
    ("TERRACE_LIMIT", "2 gib"),
    ("TERRACE_LIMIT", "none"),
    ("TERRACE_CHECK", "0"),
    ("TERRACE_CHECK", "1"),
    ("TERRACE_LIVE", "0"),
];

/// Runs a random sequence of calls under one setting.
fn under(name: &str, value: &str) -> Run {
    let program = Program::new("shadow.c").build();
    let job = Job::new(&program).args(["30000", "short"]).preload(&library::shared());
    job.env(name, value).run().passed()
}

#[test]
fn bad_values() {
    if !have("settings::bad_values", &[CC]) {
        return;
    }
    for (name, value) in BAD {
        let run = under(name, value);
        let text = run.err();
        let wanted = format!("{name}={value}");
        assert!(text.lines().count() == 1 && text.contains(&wanted), "{wanted}: one line: {}", run.report());
        assert!(text.contains("stays as it was"), "{wanted}: says what is kept: {}", run.report());
    }
}

#[test]
fn good_values() {
    if !have("settings::good_values", &[CC]) {
        return;
    }
    for (name, value) in GOOD {
        let run = under(name, value);
        assert!(run.stderr.is_empty(), "{name}={value}: {}", run.report());
    }
}

#[test]
fn statistics_at_the_end() {
    if have("settings::statistics_at_the_end", &[CC]) {
        let run = under("TERRACE_STATS", "1");
        assert!(run.err().to_lowercase().contains(library::STATS_WORD), "{}", run.report());
    }
}

/// The limit counts live bytes: the program allocates until it is reached.
#[test]
fn a_limit_ends_in_enomem() {
    if have("settings::a_limit_ends_in_enomem", &[CC]) {
        let program = Program::new("limited.c").build();
        let run = |limit| Job::new(&program).preload(&library::shared()).env("TERRACE_LIMIT", limit).run().passed();
        run("64M");
        run("80000K");
    }
}
