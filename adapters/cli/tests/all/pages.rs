//! Commands and options in the pages for users of a Jetson and of WSL2: the program has them.

use crate::common::{Sandbox, stderr, stdout};
use std::collections::BTreeSet;
use std::path::Path;

/// The commands in a text: the words behind `terrace` that are no options, and then the options.
///
/// They stand in backquotes, or at the beginning of a line as `./terrace`; a comment ends them.
fn commands(text: &str) -> BTreeSet<Vec<&str>> {
    let quoted = text.split('`').filter_map(|part| part.strip_prefix("terrace ").or(part.strip_prefix("./terrace ")));
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("./terrace "));
    let words = |command| str::split(command, " #").next().unwrap_or_default().split_whitespace().collect();
    quoted.chain(lines).filter(|command| !command.contains('\n')).map(words).collect()
}

/// Holds a command against the help of the program.
fn check(here: &Sandbox, command: &[&str]) -> Result<(), String> {
    let names: Vec<&str> = command.iter().copied().take_while(|word| word.chars().all(char::is_alphabetic)).collect();
    let help = here.run(&[&names[..], &["--help"]].concat());
    if !help.status.success() || names.is_empty() {
        return Err(format!("{command:?}: no such command: {}", stderr(&help)));
    }
    let has = |option: &str| stdout(&help).lines().any(|line| line.split([' ', ',', '=']).any(|word| word == option));
    match command.iter().find(|word| word.starts_with('-') && !has(word)) {
        Some(option) => Err(format!("{command:?}: no option {option}")),
        None => Ok(()),
    }
}

#[test]
fn commands_and_options_that_pages_name_exist() {
    let (here, root) = (Sandbox::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    for page in ["docs/jetson.md", "docs/wsl2.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let commands = commands(&text);
        for one in ["doctor", "tiers", "bench"] {
            assert!(commands.iter().any(|command| command[0] == one), "{page} names {one}: {commands:?}");
        }
        for command in commands {
            check(&here, &command).unwrap_or_else(|why| panic!("{page}: {why}"));
        }
    }
}

#[test]
fn what_the_program_lacks_is_told() {
    let here = Sandbox::new();
    let why = |text: &str| commands(text).iter().find_map(|command| check(&here, command).err()).unwrap_or_default();
    assert!(why("see `terrace nothing`").contains("no such command"));
    assert!(why("    ./terrace tiers --nothing  # a comment").contains("no option --nothing"));
    assert!(why("`terrace bench gpu --nothing`").contains("no option --nothing"));
    assert_eq!(why("`terrace tiers --demo --directory /x=ssd` and\n./terrace bench gpu --quick # --nothing\n"), "");
}
