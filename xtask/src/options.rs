//! The command line of `cargo xtask`.
//!
//! Promises upward: unknown words are refused with the word, never ignored.
//! Asks from below: the names of the steps.

use crate::steps::{STEPS, Step};

/// Printed for `help`, and below an error.
pub const HELP: &str = "\
cargo xtask test [--install] [--all] [--only STEP].. [--also STEP].. [--list]
    Runs every test of the project on this machine; the last line is `N passed, N failed, N skipped`.
    --install    install what is missing (apt, rustup, cargo install); without it, skip by name
    --all        also what takes long: long fuzzing, more cases, coverage, mutants, more under Miri
    --only STEP  this step only (may be repeated)
    --also STEP  beside what runs anyway this long step too (may be repeated); CI asks for `sets` and `clients`
    --list       the steps
cargo xtask firmware [--install]
    Builds the programs under `firmware`, runs them in QEMU, and prints what they cost: the step of the same name.
cargo xtask firmware --search MINUTES
    Searches for longer calls of the heaps on an emulated Cortex-M4, and writes what it found to
    `tests/data/heap_worst_thumb.txt`, from where it starts and which `cargo xtask firmware` follows.
cargo xtask bench NAME [ARGUMENTS]..
    Runs the example NAME of terrace-benches in release mode, with the arguments. `bench core` is the core's.
";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    /// Print [`HELP`].
    Help,
    /// Print the steps.
    List,
    /// Run tests.
    Test(Options),
    /// Search for long calls on a board.
    Search {
        /// How long: a number above 0.
        minutes: String,
    },
    /// Run a benchmark.
    Bench {
        /// Example of `terrace-benches`.
        name: String,
        /// Passed on as they are.
        arguments: Vec<String>,
    },
}

/// How to test.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Install what is missing.
    pub install: bool,
    /// Also what takes long.
    pub all: bool,
    /// Only these steps; all when empty.
    pub only: Vec<String>,
    /// Long steps to run beside the others.
    pub also: Vec<String>,
}

impl Options {
    /// Whether to run `step`.
    pub fn wants(&self, step: &Step) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == step.name);
        if self.only.is_empty() {
            self.all || !step.long || named(&self.also)
        } else {
            named(&self.only) || named(&self.also)
        }
    }
}

/// Whether a name is among those of an environment variable, `A,B`; without the variable every name is.
pub fn chosen(variable: &str) -> impl Fn(&str) -> bool + use<> {
    let names = std::env::var(variable).ok();
    move |name| names.as_ref().is_none_or(|names| names.split(',').any(|one| one == name))
}

/// Reads the words after `cargo xtask`.
///
/// # Errors
/// A sentence naming the word that is wrong.
pub fn parse(words: &[String]) -> Result<Task, String> {
    match words.split_first() {
        None => Err("what to do? `test`, `firmware` or `bench`".into()),
        Some((task, rest)) => match task.as_str() {
            "test" => parse_test(rest),
            "firmware" => match rest {
                [] => Ok(Task::Test(firmware(false))),
                [word] if word == "--install" => Ok(Task::Test(firmware(true))),
                [word, minutes] if word == "--search" => {
                    let number = minutes.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
                    number.map(|_| Task::Search { minutes: minutes.clone() }).ok_or(format!("no minutes: `{minutes}`"))
                }
                _ => Err("`firmware` takes `--install` or `--search MINUTES` and nothing else".into()),
            },
            "bench" => {
                let (name, arguments) = rest.split_first().ok_or("bench needs a name, as in `bench core`")?;
                // Cargo's own habit: `--` may stand before what is passed on.
                let arguments = arguments.strip_prefix(&["--".to_string()]).unwrap_or(arguments);
                Ok(Task::Bench { name: name.clone(), arguments: arguments.to_vec() })
            }
            "help" | "--help" | "-h" => Ok(Task::Help),
            other => Err(format!("unknown task `{other}`")),
        },
    }
}

/// The step `firmware` alone.
fn firmware(install: bool) -> Options {
    Options { install, only: vec!["firmware".into()], ..Options::default() }
}

fn parse_test(words: &[String]) -> Result<Task, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--install" => options.install = true,
            "--all" => options.all = true,
            "--list" => return Ok(Task::List),
            "--help" | "-h" => return Ok(Task::Help),
            "--only" | "--also" => {
                let name = words.next().ok_or_else(|| format!("{word} needs the name of a step; see --list"))?;
                if !STEPS.iter().any(|step| step.name == name) {
                    return Err(format!("no step is called `{name}`; see --list"));
                }
                if word == "--only" { options.only.push(name.clone()) } else { options.also.push(name.clone()) }
            }
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok(Task::Test(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn reads_options_in_any_order() {
        let (only, also) = (vec!["lint".into()], vec!["coverage".into()]);
        let expected = Options { install: true, all: true, only, also };
        assert_eq!(parse(&words("test --all --only lint --also coverage --install")), Ok(Task::Test(expected)));
    }

    #[test]
    fn firmware_is_a_step_of_its_own_name() {
        assert_eq!(parse(&words("firmware --install")), Ok(Task::Test(firmware(true))));
        assert_eq!(parse(&words("test --only firmware")), Ok(Task::Test(firmware(false))));
        assert_eq!(parse(&words("firmware --search 2.5")), Ok(Task::Search { minutes: "2.5".into() }));
    }

    #[test]
    fn a_benchmark_gets_its_arguments() {
        let expected = || Ok(Task::Bench { name: "core".into(), arguments: vec!["--live".into(), "100".into()] });
        assert_eq!(parse(&words("bench core --live 100")), expected());
        assert_eq!(parse(&words("bench core -- --live 100")), expected());
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in [
            "",
            "tset",
            "test --instal",
            "test --only nothing",
            "test --only",
            "test --also none",
            "bench",
            "firmware all",
        ] {
            assert!(parse(&words(text)).is_err(), "{text}");
        }
        for text in ["firmware --search", "firmware --search x", "firmware --search 0", "firmware --search inf"] {
            assert!(parse(&words(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn long_steps_run_only_when_asked() {
        let long = STEPS.iter().find(|step| step.long).expect("one step is long");
        assert!(!Options::default().wants(long));
        assert!(Options { all: true, ..Options::default() }.wants(long));
        assert!(Options { only: vec![long.name.into()], ..Options::default() }.wants(long));
        let also = Options { also: vec![long.name.into()], ..Options::default() };
        assert!(also.wants(long) && STEPS.iter().filter(|step| !step.long).all(|step| also.wants(step)));
    }
}
