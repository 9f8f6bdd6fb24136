//! `terrace top`: programs that run on the library, sockets, a terminal of tmux, and what cannot be looked at.

use crate::common::{Sandbox, stderr, stdout};
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use terrace_live::{Figure, Figures, Publisher, RowKind};

/// 48 blocks of 1 MiB; then with an argument ends with exit code 7, else waits for a signal.
///
/// The pair of calls before is one that comes when the row is due; the calls at once are shown to within an eighth.
const BLOCKS: &str = "
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
char *volatile blocks[48];
int main(int count, char **words) {
    for (int i = 0; i < 48; i++) blocks[i] = malloc(1 << 20);
    puts(\"48 blocks are there\");
    fflush(stdout);
    if (count > 1) return 7;
    usleep(200000);
    free(malloc(1 << 20));
    for (;;) pause();
}
";

/// Whether a program is installed; if not, prints what to install.
fn have(test: &str, program: &str, package: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("SKIP {test}: {program} is not there: apt-get install {package}");
    }
    is_there
}

/// The library, built as its README says.
fn library() -> &'static str {
    static BUILT: LazyLock<String> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("capi");
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "terrace-capi",
        ]);
        for name in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR"]
        {
            command.env_remove(name);
        }
        assert!(command.arg("--target-dir").arg(&target).status().unwrap().success(), "the library builds");
        target.join("release/libterrace_malloc.so").to_str().unwrap().into()
    });
    &BUILT
}

/// Compiles [`BLOCKS`].
fn compile(here: &Sandbox, flags: &[&str]) -> PathBuf {
    let source = here.file("blocks.c", BLOCKS);
    let done = Command::new("cc").args(flags).arg("-o").arg(here.path("blocks")).arg(source).status().unwrap();
    assert!(done.success(), "blocks.c compiles");
    here.path("blocks")
}

/// Checks that a command failed with one line that contains all of `parts`.
fn refused(output: &Output, code: i32, parts: &[&str]) {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty() && parts.iter().all(|part| error.contains(part)), "{parts:?} in {error}");
}

#[test]
fn one_frame_of_a_program_and_its_exit_code() {
    if !have("one_frame_of_a_program_and_its_exit_code", "cc", "gcc libc6-dev") {
        return;
    }
    let here = Sandbox::new();
    compile(&here, &[]);
    let run = here.run(&["top", "--json", "--library", library(), "--", "./blocks", "end"]);
    assert_eq!(run.status.code(), Some(7), "{}", stderr(&run));
    assert_eq!(stderr(&run), "48 blocks are there\n");
    let frame: Value = serde_json::from_slice(&run.stdout).unwrap();
    let row = &frame["rows"][0];
    assert_eq!(
        (row["name"].as_str(), row["kind"].as_str(), row["ended"].as_bool()),
        (Some("blocks"), Some("program"), Some(true))
    );
    assert!(row["in_use_bytes"].as_u64().unwrap() >= 48 << 20, "{row}");
    let run = here.run(&["top", "--once", "--output", "log", "--library", library(), "--", "./blocks", "end"]);
    assert!(stdout(&run).contains("blocks") && stderr(&run).is_empty(), "{run:?}");
    assert_eq!(std::fs::read_to_string(here.path("log")).unwrap(), "48 blocks are there\n");
}

#[test]
fn one_frame_of_a_socket_has_every_kind_of_row() {
    let here = Sandbox::new();
    let rows = |rows: &mut terrace_live::RowList| {
        let figures = Figures::NONE.with(Figure::InUse, 5 << 20).with(Figure::Reserved, 8 << 20);
        rows.push(RowKind::Pool, "pool", figures.with(Figure::Hits, 9).with(Figure::Misses, 1));
        rows.push(RowKind::Tier, "memory", figures.with(Figure::Pressure, 3));
        rows.push(RowKind::Tag, "weights", Figures::NONE.with(Figure::InUse, 1 << 20).with(Figure::OldestLive, 2500));
    };
    let _publisher = Publisher::builder().source(rows).start(here.path("live.sock")).unwrap();
    let run = here.run(&["top", "--once", "--interval", "20", "live.sock"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let text = stdout(&run);
    for part in
        ["10.00 MiB in use, 16.00 MiB reserved, no limit, pressure critical", "90 %", "weights", "2.5 s", "tier"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let run = here.run(&["top", "--picture", "frame.svg", "--interval", "20", "live.sock"]);
    assert!(run.status.success() && run.stdout.is_empty(), "{}", stderr(&run));
    assert!(std::fs::read_to_string(here.path("frame.svg")).unwrap().contains("weights"));
}

#[test]
fn what_cannot_be_looked_at_is_one_line_and_no_program_starts() {
    let here = Sandbox::new();
    refused(&here.run(&["top", "--once", "none.sock"]), 1, &["none.sock", "give the socket of a running program"]);
    let _silent = UnixListener::bind(here.path("silent.sock")).unwrap();
    refused(&here.run(&["top", "--once", "silent.sock"]), 1, &["silent.sock", "within 2 s"]);
    refused(&here.run(&["top", "--once", "--", "./nothing"]), 2, &["./nothing", "no such program"]);
    refused(
        &here.run(&["top", "--once", "--library", "no.so", "--", "touch", "started"]),
        2,
        &["no.so", "cargo build"],
    );
    refused(&here.run(&["top", "--", "touch", "started"]), 2, &["no terminal", "--once"]);
    assert!(!here.path("started").exists());
    assert_eq!(here.run(&["top"]).status.code(), Some(2));
    if have("what_cannot_be_looked_at_is_one_line_and_no_program_starts", "cc", "gcc libc6-dev") {
        compile(&here, &["-static"]);
        let run = here.run(&["top", "--once", "--library", library(), "--", "./blocks", "end"]);
        refused(&run, 2, &["./blocks", "statically linked", "terrace-live"]);
    }
}

/// A session of tmux, in a server of its own, which ends with the value.
struct Tmux(String);

impl Tmux {
    fn start(name: &str, size: [&str; 2], folder: &Path, command: &str) -> Self {
        let tmux = Self(format!("terrace-{name}-{}", std::process::id()));
        let [width, height] = size;
        let script = format!("cd {} && {command}; echo \"code $?\"; sleep 600", folder.display());
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, &script]);
        tmux
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.0]).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into()
    }

    fn press(&self, key: &str) {
        self.run(&["send-keys", key]);
    }

    /// The pane, once it is as wanted; the minute is for a machine that is busy.
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let pane = self.run(&["capture-pane", "-p"]);
            if wanted(&pane) {
                return pane;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{what}:\n{pane}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn shows(&self, part: &str) -> String {
        self.until(part, |pane| pane.contains(part))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = Command::new("tmux").args(["-L", &self.0, "kill-server"]).output();
    }
}

/// Whether the row has the 48 blocks, and at most the one that was freed last.
fn has_row(pane: &str) -> bool {
    pane.contains("48.") || pane.contains("49.")
}

/// A folder with the program in it, if there are tmux and a compiler.
fn with_terminal(test: &str) -> Option<Sandbox> {
    let here = Sandbox::new();
    let all = have(test, "tmux", "tmux") && have(test, "cc", "gcc libc6-dev");
    all.then(|| {
        compile(&here, &[]);
        here
    })
}

fn top_command() -> String {
    format!("{} top --interval 50 --library {} -- ./blocks", env!("CARGO_BIN_EXE_terrace"), library())
}

#[test]
fn keys_in_a_terminal_do_what_they_say() {
    let Some(here) = with_terminal("keys_in_a_terminal_do_what_they_say") else { return };
    let tmux = Tmux::start("keys", ["100", "30"], &here.path("."), &top_command());
    let pane = tmux.until("rows", |pane| pane.contains("48 blocks are there") && has_row(pane));
    for part in ["terrace top: ./blocks (", "in use▾", "pressure normal", "bytes in use, at most", "q quit"] {
        assert!(pane.contains(part), "{part}:\n{pane}");
    }
    tmux.press("s");
    tmux.shows("kind▾");
    tmux.press("r");
    tmux.shows("kind▴");
    tmux.press("?");
    tmux.shows("close this");
    tmux.press("?");
    tmux.until("help is gone", |pane| !pane.contains("close this"));
    tmux.press("p");
    tmux.shows("PAUSED");
    tmux.press("p");
    tmux.until("it goes on", |pane| !pane.contains("PAUSED"));
    tmux.press("d");
    tmux.shows("terrace-top-");
    let dump = here.names().into_iter().find(|name| name.starts_with("terrace-top-")).unwrap();
    let frame: Value = serde_json::from_slice(&std::fs::read(here.path(&dump)).unwrap()).unwrap();
    assert_eq!(frame["rows"][0]["name"].as_str(), Some("blocks"), "{frame}");
    tmux.press("q");
    let pane = tmux.shows("code 143");
    assert!(pane.contains("sent SIGTERM to ./blocks") && !pane.contains("q quit"), "the terminal is restored:\n{pane}");
}

#[test]
fn a_terminal_of_20_columns_and_5_lines_shows_what_fits() {
    let Some(here) = with_terminal("a_terminal_of_20_columns_and_5_lines_shows_what_fits") else { return };
    let tmux = Tmux::start("small", ["20", "5"], &here.path("."), &top_command());
    let pane = tmux.until("a row", |pane| pane.contains("blocks ") && has_row(pane));
    assert!(pane.contains("q quit") && pane.lines().all(|line| line.chars().count() <= 20), "{pane}");
    tmux.press("?");
    tmux.shows("q  quit");
    tmux.press("?");
    // SIGTERM, as `kill` sends it: the program gets it too, and the terminal is restored.
    tmux.run(&["resize-window", "-x", "60", "-y", "8"]);
    tmux.shows("reserved");
    let pane = tmux.run(&["list-panes", "-F", "#{pane_pid}"]);
    // The shell's one child is the command.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", pane.trim())).unwrap();
    assert!(Command::new("kill").args(["-TERM", children.trim()]).status().unwrap().success());
    tmux.shows("code 143");
}

/// The program is told to end, and the command ends, without a terminal to read from for ever.
#[test]
fn a_terminal_that_goes_away_ends_it() {
    let Some(here) = with_terminal("a_terminal_that_goes_away_ends_it") else { return };
    let command = format!("exec {} 2> said", top_command());
    let tmux = Tmux::start("gone", ["80", "20"], &here.path("."), &command);
    tmux.until("a row", |pane| pane.contains("blocks ") && has_row(pane));
    let top = tmux.run(&["list-panes", "-F", "#{pane_pid}"]);
    tmux.run(&["kill-server"]);
    let start = Instant::now();
    while Path::new(&format!("/proc/{}", top.trim())).exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = std::fs::read_to_string(here.path("said")).unwrap();
    assert!(said.contains("sent SIGTERM to ./blocks"), "{said}");
}
