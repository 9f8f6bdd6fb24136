//! How an allocator behaves: what stays resident, forks, small processes, threads that start and exit.
//!
//! Promises upward: each row is one kind of run of `benches/host/programs`, its answer kept as it was; a run that fails is
//! kept with its reason.
//! Asks from below: `stage`, `launch`.

use super::launch::{Job, Usage};
use super::libraries::Library;
use super::measure::Sample;
use super::options::Options;
use super::programs::find;
use super::stage::Stage;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use terrace_models::rounds::Rounds;

/// Forks of a library that is being worked on, and of others, which are only compared with.
const FORKS: (usize, usize) = (3000, 300);

/// What stayed resident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// The library's name.
    pub library: String,
    /// Blocks allocated.
    pub blocks: u64,
    /// One block in so many was kept; none for 0.
    pub keep: usize,
    /// Whether there was one call after a second; else there was none, and the library may use its background thread.
    pub called: bool,
    /// Bytes beyond those before: at the peak, after the last free, after a second, and two seconds later if nothing was
    /// called; bytes that the program still held.
    pub bytes: [u64; 5],
}

impl Freed {
    /// A share of the peak: 0 after the last free, 1 after a second, 2 at the end.
    pub fn share(&self, when: usize) -> f64 {
        self.bytes[when + 1] as f64 / self.bytes[0].max(1) as f64
    }
}

/// Forks under load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The library's name.
    pub library: String,
    /// Forks done, children that never ended, children that ended badly.
    pub numbers: [u64; 3],
}

/// What a small process takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Small {
    /// The library's name.
    pub library: String,
    /// `one block` or `cat`.
    pub process: String,
    /// Round, from 0.
    pub round: usize,
    /// Bytes resident.
    pub bytes: u64,
}

/// What could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The library's name.
    pub library: String,
    /// What was to be measured.
    pub what: String,
    /// Why it could not.
    pub reason: String,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// What stayed resident.
    pub freed: Vec<Freed>,
    /// Forks under load.
    pub forked: Vec<Forked>,
    /// Small processes.
    pub small: Vec<Small>,
    /// Threads that start and exit.
    pub starts: Vec<Sample>,
    /// What could not be measured.
    pub failed: Vec<Failed>,
}

/// Measures under one library after the other.
pub struct Probe<'a> {
    /// What the user asked for.
    pub options: &'a Options,
    /// Under which.
    pub libraries: &'a [Library],
    /// Where.
    pub stage: &'a Stage,
}

impl Probe<'_> {
    /// What stays resident of two million blocks.
    pub fn freed(&self, found: &mut Behaviour, step: &mut dyn FnMut(&str)) {
        let blocks = if self.options.common.quick { 100_000 } else { 2_000_000 };
        for library in self.libraries {
            for (keep, called) in [(0, true), (0, false), (64, true), (64, false)] {
                step(&format!("what stays resident under {}", library.name));
                let mode = if called { "called" } else { "silent" };
                let words = ["freed", &blocks.to_string(), &keep.to_string(), mode];
                let variables = if called { vec![] } else { vec![("TERRACE_BACKGROUND".into(), "1".into())] };
                match self.numbers(library, &words, variables) {
                    Ok(bytes) => found.freed.push(Freed { library: library.name.clone(), blocks, keep, called, bytes }),
                    Err(reason) => found.fail(library, "resident after freeing", reason),
                }
            }
        }
    }

    /// Forks under load.
    pub fn forked(&self, found: &mut Behaviour, step: &mut dyn FnMut(&str)) {
        for library in self.libraries {
            step(&format!("forks under {}", library.name));
            let times = match (self.options.common.quick, library.own) {
                (true, _) => 20,
                (_, true) => FORKS.0,
                (_, false) => FORKS.1,
            };
            match self.numbers(library, &["fork", &times.to_string()], vec![]) {
                Ok(numbers) => found.forked.push(Forked { library: library.name.clone(), numbers }),
                Err(reason) => found.fail(library, "fork under load", reason),
            }
        }
    }

    /// Small processes: one that allocates a block, and `cat`, both asked while they run.
    pub fn small(&self, found: &mut Behaviour, step: &mut dyn FnMut(&str)) {
        let both = |library| [(library, "one block"), (library, "cat")];
        let mut processes: Vec<(&Library, &str)> = self.libraries.iter().flat_map(both).collect();
        let (small, failed) = Rounds::new(self.options.rounds()).run(&mut processes, |(library, process), round| {
            let bytes = if *process == "cat" {
                self.cat(library)
            } else {
                step(&format!("small processes under {}", library.name));
                self.numbers(library, &["small"], vec![]).map(|[bytes]| bytes)
            };
            let (library, process) = (library.name.clone(), (*process).to_owned());
            match bytes {
                Ok(bytes) => Ok(Small { library, process, round, bytes }),
                Err(reason) => Err(Failed { library, what: "small process".into(), reason }),
            }
        });
        found.small.extend(small);
        found.failed.extend(failed);
    }

    /// Bytes resident of a `cat` that prints its own mappings.
    fn cat(&self, library: &Library) -> Result<u64, String> {
        let cat = find("cat").ok_or("cat is not there")?;
        self.run(library, &cat, &["/proc/self/smaps_rollup"], vec![])?;
        let text = self.stage.output()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or_default();
        let kib = line.trim().trim_end_matches("kB").trim().parse::<u64>();
        kib.map(|kib| kib * 1024).map_err(|_| "/proc/self/smaps_rollup has no Rss".into())
    }

    /// Threads that start and exit one after the other.
    pub fn starts(&self, found: &mut Behaviour, step: &mut dyn FnMut(&str)) {
        let scale = if self.options.common.quick { "1" } else { "100" };
        let mut libraries: Vec<&Library> = self.libraries.iter().collect();
        let (starts, failed) = Rounds::new(self.options.rounds()).run(&mut libraries, |library, round| {
            step(&format!("threads that start and exit under {}", library.name));
            let used = self.run(library, &self.stage.shapes, &["starts", scale], vec![]);
            Sample::of("starts", false, library, round, used)
        });
        found.starts.extend(starts);
        found.starts.extend(failed.into_iter().map(|failed| *failed));
    }

    fn run(
        &self,
        library: &Library,
        executable: &Path,
        words: &[&str],
        variables: Vec<(OsString, OsString)>,
    ) -> Result<Usage, String> {
        let (preload, limit) = (library.path.clone(), Duration::from_secs(600));
        Job { variables, preload, limit, ..self.stage.job(executable, words) }.run()
    }

    /// Runs a program whose answer is some numbers.
    fn numbers<const N: usize>(
        &self,
        library: &Library,
        words: &[&str],
        variables: Vec<(OsString, OsString)>,
    ) -> Result<[u64; N], String> {
        self.run(library, &self.stage.shapes, words, variables)?;
        parsed(&self.stage.output()?)
    }
}

/// So many numbers between spaces.
fn parsed<const N: usize>(text: &str) -> Result<[u64; N], String> {
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| format!("`{}` are not {N} numbers", text.trim()))
}

impl Behaviour {
    fn fail(&mut self, library: &Library, what: &str, reason: String) {
        self.failed.push(Failed { library: library.name.clone(), what: what.into(), reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_numbers() {
        assert_eq!(parsed("300 0 1\n"), Ok([300, 0, 1]));
        assert_eq!(parsed::<2>("300\n"), Err("`300` are not 2 numbers".into()));
    }

    #[test]
    fn shares_are_of_the_peak() {
        let freed = Freed { library: "a".into(), blocks: 9, keep: 0, called: true, bytes: [200, 100, 100, 10, 0] };
        assert_eq!((freed.share(0), freed.share(2)), (0.5, 0.05));
    }
}
