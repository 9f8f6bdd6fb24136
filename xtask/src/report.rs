//! What every test of this run came to, by name; the headings, times and the summary line.
//!
//! Promises upward: each name is printed when it fails or is skipped; the summary counts every record once.
//! Asks from below: nothing.
//! Invariant: `counts().total()` is `results.len()`.

use std::fmt;
use std::time::{Duration, Instant};

/// Lines of output shown with a failure: two screens.
const TAIL_LINES: usize = 60;

/// What one test came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and holds.
    Passed,
    /// It ran and does not hold.
    Failed,
    /// It did not run.
    Skipped,
}

/// How many tests came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn of(results: &[(String, Outcome)]) -> Self {
        let count = |wanted| results.iter().filter(|(_, outcome)| *outcome == wanted).count();
        Self { passed: count(Outcome::Passed), failed: count(Outcome::Failed), skipped: count(Outcome::Skipped) }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Collects the results of a run.
#[derive(Default)]
pub struct Report {
    /// Every test recorded, in the order it came. A name may come twice (two examples of one item).
    results: Vec<(String, Outcome)>,
    steps: Vec<(&'static str, Duration, Duration, Counts)>,
    /// Print nothing but the summary. For the tests of this very program, whose output is read like any other's.
    quiet: bool,
}

impl Report {
    /// A report that prints nothing of its own accord.
    #[cfg(test)]
    pub fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }

    /// Runs a step under its heading and keeps its time and counts.
    pub fn step(&mut self, name: &'static str, what: &str, run: impl FnOnce(&mut Self)) {
        println!("\n== {name}: {what}");
        let (start, used, before) = (Instant::now(), processor_time(), self.results.len());
        run(self);
        let (elapsed, used) = (start.elapsed(), processor_time().saturating_sub(used));
        let counts = Counts::of(&self.results[before..]);
        println!("-- {name}: {counts} in {}, {} of processor time", seconds(elapsed), seconds(used));
        self.steps.push((name, elapsed, used, counts));
    }

    /// `name` holds.
    pub fn pass(&mut self, name: &str) {
        self.say(&format!("ok   {name}"));
        self.pass_quietly(name);
    }

    /// `name` holds; one of many, so only the count is printed.
    pub fn pass_quietly(&mut self, name: &str) {
        self.results.push((name.into(), Outcome::Passed));
    }

    /// `name` does not hold. The end of `output` is printed.
    pub fn fail(&mut self, name: &str, output: &str) {
        self.fail_with(name, tail(output, TAIL_LINES));
    }

    fn fail_with<'a>(&mut self, name: &str, lines: impl IntoIterator<Item = &'a str>) {
        self.say(&format!("FAIL {name}"));
        for line in lines {
            self.say(&format!("     | {line}"));
        }
        self.results.push((name.into(), Outcome::Failed));
    }

    /// `name` did not run; `reason` says what to install or set.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.say(&format!("SKIP {name}: {reason}"));
        self.results.push((name.into(), Outcome::Skipped));
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            println!("{line}");
        }
    }

    /// Pass, or fail with every line of the reason.
    pub fn verdict(&mut self, name: &str, verdict: Result<(), String>) {
        match verdict {
            Ok(()) => self.pass(name),
            Err(why) => self.fail_with(name, why.lines()),
        }
    }

    /// Everything recorded so far.
    pub fn results(&self) -> &[(String, Outcome)] {
        &self.results
    }

    /// Number of tests that failed.
    pub fn failed(&self) -> usize {
        Counts::of(&self.results).failed
    }

    /// Prints the time of each step and what its programs took of the processors, then the summary as the last line.
    pub fn finish(&self) {
        println!();
        for (name, elapsed, used, counts) in &self.steps {
            println!("{name:<10} {:>8} {:>8}  {counts}", seconds(*elapsed), seconds(*used));
        }
        println!("{}", Counts::of(&self.results));
    }
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

/// What programs that this one started, and theirs, took of the processors up to their end. Nothing where there is no `/proc`.
fn processor_time() -> Duration {
    ended_programs(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or_default()
}

/// `cutime` and `cstime` of a line of Linux: the 16th and 17th word, in ticks of a hundredth of a second. The second word, in
/// brackets, may have spaces.
fn ended_programs(stat: &str) -> Option<Duration> {
    let words = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let ticks: Option<Vec<u64>> = words.take(2).map(|word| word.parse().ok()).collect();
    Some(Duration::from_millis(10 * ticks?.iter().sum::<u64>()))
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> impl Iterator<Item = &str> {
    let skip = text.lines().count().saturating_sub(count);
    text.lines().skip(skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_the_exact_form() {
        let mut report = Report::quiet();
        report.pass_quietly("a");
        report.pass_quietly("b");
        report.skip("c", "install c");
        assert_eq!(Counts::of(report.results()).to_string(), "2 passed, 0 failed, 1 skipped");
        assert_eq!(report.failed(), 0);
        report.fail("d", "why");
        assert_eq!(report.failed(), 1);
    }

    #[test]
    fn the_time_of_ended_programs_is_read() {
        let line = "7 (a b) c) S 1 7 7 0 -1 4194304 9 9 0 0 300 50 1234 66 20 0 1 0";
        assert_eq!(ended_programs(line), Some(Duration::from_secs(13)));
        assert_eq!(ended_programs("7 (a"), None);
    }

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc", 2).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(tail("a", 2).collect::<Vec<_>>(), ["a"]);
    }
}
