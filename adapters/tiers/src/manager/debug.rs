//! What a manager checks and tells of itself when it is asked to: the setting `debug`.
//!
//! Promises upward: nothing is checked or told unless asked for; a broken invariant ends the process with a line that names it.
//! Asks from below: the checks of the ledger, of lease words and of stores.

use super::{Manager, ManagerShared};
use std::io::{self, Write};

impl ManagerShared {
    /// Checks every invariant, if that is asked for.
    pub(super) fn check_if_asked(&self) {
        if !self.debug.check {
            return;
        }
        if let Err(broken) = self.check() {
            tell(&format!("a manager is inconsistent: {broken}"));
            std::process::abort();
        }
    }

    /// Statistics in a line.
    fn told(&self) -> String {
        let stats = self.collect_stats();
        let hits: Vec<String> = stats.tiers.iter().map(|tier| tier.hits.to_string()).collect();
        format!(
            "manager: {} s, {} B read, {} B written, hits by tier {}, {} copies up and {} down, {} allocations",
            stats.elapsed.as_secs(),
            stats.bytes_read,
            stats.bytes_written,
            hits.join(" "),
            stats.moves.up,
            stats.moves.down,
            stats.allocations.calls,
        )
    }
}

/// What the setting `debug` asks for at the end. In a forked child nothing is dropped.
impl Drop for ManagerShared {
    fn drop(&mut self) {
        self.check_if_asked();
        if self.debug.stats {
            tell(&self.told());
        }
    }
}

/// A line on standard error; a process without that stream cannot be told.
pub(super) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "terrace: {text}");
}

impl Manager {
    /// Checks every invariant.
    ///
    /// # Errors
    /// The first invariant that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.shared.check_process().map_err(|error| error.to_string())?;
        self.shared.check()
    }
}

#[cfg(test)]
mod tests {
    use super::super::phase::PhaseEvent;
    use super::Manager;
    use std::process::{Command, Output};
    use terrace_core::settings::DEBUG;

    const CHILD: &str = "TERRACE_TEST_DEBUG_CHILD";

    /// Runs this program's other test with what it is to do.
    fn child(what: &str) -> Output {
        let name = "manager::debug::tests::a_manager_under_debug";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", name, "--nocapture"]).env(CHILD, what).output().expect("it runs")
    }

    #[test]
    fn a_manager_under_debug() {
        let Ok(what) = std::env::var(CHILD) else { return };
        let words: Vec<&str> = what.split(' ').filter(|word| DEBUG.parse(word).is_ok()).collect();
        let debug = DEBUG.parse(&words.join(",")).unwrap_or(DEBUG.default).switches();
        let manager = Manager::builder().memory(1 << 20).debug(debug).build().expect("it is built");
        let buffer = manager.allocate(100).expect("room");
        buffer.write(0, &[7; 100]).expect("written");
        if what.contains("broken") {
            // As if a copy had begun of which the ledger knows nothing.
            buffer.handle.buffer.phase.advance(PhaseEvent::Queue);
            (0..4).for_each(|_| manager.tick(0));
        }
        if what.contains("kept") {
            std::mem::forget(buffer);
        }
    }

    #[test]
    fn statistics_are_told_at_the_end_where_they_are_asked_for() {
        let told = |what: &str| String::from_utf8(child(what).stderr).expect("text");
        let stats = told("stats");
        assert!(
            stats.starts_with("terrace: manager: 0 s, 0 B read, 100 B written, hits by tier 1, 0 copies up"),
            "{stats}"
        );
        assert_eq!(told("check"), "");
    }

    /// A word that does not reach the tracker fails here.
    #[test]
    fn buffers_live_at_the_end_are_listed_where_that_is_asked_for() {
        let told = |what: &str| String::from_utf8(child(what).stderr).expect("text");
        assert_eq!([told("kept"), told("kept check"), told("check")], ["", "", ""]);
        for word in ["leaks", "sites"] {
            let said = told(&format!("kept {word}"));
            if cfg!(feature = "track") {
                assert!(said.starts_with("terrace: still live at the end: manager: 1 live block, 100 bytes"), "{said}");
                assert_eq!(said.lines().any(|line| line.trim_start().starts_with("at ")), word == "sites", "{said}");
                assert_eq!(told(word), "", "nothing is live");
            } else {
                let needs = "live buffers of managers need the feature `track`";
                assert_eq!(said, format!("terrace: debug={word}: {needs}\n"));
            }
        }
    }

    #[test]
    fn an_invariant_that_is_broken_ends_the_process_where_checks_are_asked_for() {
        let ended = child("check broken");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && told.contains("terrace: a manager is inconsistent: "), "{told}");
        assert!(child("broken").status.success(), "else it is not looked at");
    }
}
