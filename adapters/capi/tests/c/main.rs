//! `libterrace_malloc` as programs use it: preloaded, loaded by name, linked. Each test runs a program: one of
//! `tests/programs`, which it compiles, or one that is installed.
//!
//! | variable | effect |
//! | --- | --- |
//! | `TERRACE_MALLOC_LIBRARY` | a shared library to test in place of the one that is built here |
//! | `TERRACE_FORKS` | forks under load, 300 without |
//! | `TERRACE_SANITIZERS` | `1`: also under ThreadSanitizer and AddressSanitizer, which builds the library three times more |

mod compile;
mod debian;
mod interface;
mod job;
mod leaks;
mod library;
mod linking;
mod live;
mod loading;
mod memory;
mod misuse;
mod sanitizers;
mod settings;
mod signals;
mod threads;

/// Prints that a test is skipped, by its full name, and what it needs.
fn skip(test: &str, needs: &str) {
    println!("SKIP terrace-capi/c::{test}: {needs}");
}

/// Whether all of these programs are installed; if not, prints what to install.
fn have(test: &str, programs: &[(&str, &str)]) -> bool {
    let missing = programs.iter().find(|(program, _)| job::find(program).is_none());
    if let Some((program, package)) = missing {
        skip(test, &format!("{program} is not there: apt-get install {package}"));
    }
    missing.is_none()
}

/// A number from the environment.
fn number(name: &str, otherwise: u32) -> u32 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}; a number is needed"))
}
