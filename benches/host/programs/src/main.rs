//! Programs of known shape, run by `cargo xtask bench host` under each allocator.
//!
//! ```text
//! alone, together   programs with one thread, with several        block, random   what they are made from
//! interface         loops that are counted                        resident, fork  how an allocator behaves
//! launch            starts any program, and writes down what it used
//! ```
//!
//! `terrace-host-programs NAME [SCALE]` prints a sum that is the same under every allocator; 100 is the scale for about a
//! second under glibc. Exit status 2: no such program; 3: the allocator did wrong.

mod alone;
mod block;
mod fork;
mod interface;
mod launch;
mod random;
mod resident;
mod together;

use std::process::ExitCode;

/// A program: its scale in, its sum out.
type Program = fn(usize) -> u64;

const PROGRAMS: [(&str, Program); 16] = [
    ("simple", alone::simple),
    ("table", alone::table),
    ("batches", alone::batches),
    ("growth", alone::growth),
    ("mixed", alone::mixed),
    ("large", alone::large),
    ("larson", together::larson),
    ("handed", together::handed),
    ("scratch", together::scratch),
    ("thrash", together::thrash),
    ("passed", together::passed),
    ("falling", together::falling),
    ("stress", together::stress),
    ("apart", together::apart),
    ("churn", together::churn),
    ("starts", together::starts),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["launch", preload, usage, program @ ..] = words.as_slice() {
        return match launch::run(preload, usage, program) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {program:?}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match answer(&words) {
        Some(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        None => {
            let names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
            eprintln!(
                "error: {words:?} is no program; there are: {} [SCALE]; interface OPERATION TIMES; \
                 freed BLOCKS KEEP called|silent; small; fork TIMES; steps OPERATION TIMES; launch PRELOAD|- FILE PROGRAM WORDS",
                names.join(", ")
            );
            ExitCode::from(2)
        }
    }
}

fn answer(words: &[&str]) -> Option<String> {
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    match *words.first()? {
        "interface" => Some(interface::run(words.get(1)?, number(2)?)?.to_string()),
        "freed" => Some(resident::freed(number(1)?, number(2)?, words.get(3) == Some(&"called"))),
        "small" => Some(resident::small()),
        "steps" => Some(interface::steps(words.get(1)?, number(2)?)?.to_string()),
        "fork" => Some(fork::under_load(number(1)?)),
        name => {
            let (_, program) = PROGRAMS.iter().find(|(known, _)| *known == name)?;
            Some(format!("{name} {}", program(if words.len() > 1 { number(1)? } else { 100 })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_does_the_same_twice() {
        for (name, program) in PROGRAMS {
            assert_eq!(program(1), program(1), "{name}");
        }
    }

    #[test]
    fn nonsense_has_no_answer() {
        for words in
            [&[][..], &["x"], &["larson", "x"], &["interface", "pair"], &["interface", "x", "1"], &["fork"], &["steps"]]
        {
            assert_eq!(answer(words), None, "{words:?}");
        }
    }
}
