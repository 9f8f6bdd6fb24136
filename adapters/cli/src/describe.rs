//! `terrace completions`, `terrace man`: the command line described to shells and to readers of manual pages.
//!
//! Promises upward: both are made from the arguments themselves, so that no option is missing; each file is complete or absent.
//! Asks from below: `args`; clap's generators.

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{print_bytes, write_file};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::path::Path;

/// Prints a script that completes words of the command line in a shell.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "terrace", &mut script);
    print_bytes(&script)
}

/// Prints the manual page of the command, or writes that of each command into a folder.
pub fn man(folder: Option<&Path>) -> Result<(), Failure> {
    let mut command = Cli::command();
    // Gives each subcommand its whole name: `terrace-record-convert`.
    command.build();
    let Some(folder) = folder else { return print_bytes(&page(&command)?) };
    std::fs::create_dir_all(folder).map_err(|error| Failure::output(folder, error))?;
    write_pages(&command, folder)
}

fn write_pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    write_file(&path, &page(command)?).map_err(|error| Failure::output(&path, error))?;
    let described = |command: &&Command| command.get_name() != "help";
    command.get_subcommands().filter(described).try_for_each(|command| write_pages(command, folder))
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut page);
    rendered.map_err(|error| Failure::output(Path::new("manual page"), error))?;
    Ok(page)
}
