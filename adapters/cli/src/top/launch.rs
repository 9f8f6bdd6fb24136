//! Starts the program with the library preloaded and a page of counters inherited, and keeps the last lines of its output.
//!
//! Promises upward: the program's output is read as fast as it comes, so that it never waits for the terminal; the program's exit code.
//! Asks from below: [`program`](super::program), [`SharedCounters`].

use super::args::TopArgs;
use super::program;
use crate::failure::Failure;
use crate::output::escape;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use terrace_live::{CounterReader, LiveError, SharedCounters};

/// The library's file.
const LIBRARY: &str = "libterrace_malloc.so";
/// Lines of output that are kept.
const LINES: usize = 200;
/// Bytes of a line that are kept.
const LINE_BYTES: usize = 500;

/// The last lines of a program's output.
#[derive(Clone, Debug, Default)]
pub struct OutputLines(Arc<Mutex<VecDeque<String>>>);

impl OutputLines {
    /// The last `count` lines.
    pub fn last(&self, count: usize) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// Adds a line.
    pub fn push(&self, line: &[u8]) {
        let text = escape(&String::from_utf8_lossy(line).replace('\t', "    "));
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }

    /// Reads a pipe to its end, on a thread of its own.
    fn follow(&self, mut pipe: impl Read + Send + 'static) {
        let lines = self.clone();
        thread::spawn(move || {
            let (mut bytes, mut line) = ([0; 8192], Vec::new());
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                for &byte in bytes.iter().take(count) {
                    match byte {
                        b'\n' => lines.push(&std::mem::take(&mut line)),
                        b'\r' => {}
                        _ if line.len() < LINE_BYTES => line.push(byte),
                        _ => {}
                    }
                }
            }
            if !line.is_empty() {
                lines.push(&line);
            }
        });
    }
}

/// A program that was started.
pub struct Launched {
    child: Child,
    /// Its exit status, once it ended.
    status: Option<ExitStatus>,
    /// Its output, where that goes to a pane.
    pub lines: OutputLines,
    /// The program's name, as it was given.
    pub name: String,
}

/// Starts the program, and opens its counters.
pub fn start(args: &TopArgs) -> Result<(Launched, CounterReader), Failure> {
    let Some(name) = args.program.first() else { return Err(Failure::Usage("name a PROGRAM after --".into())) };
    let shown = escape(&name.to_string_lossy());
    let path = program::find(name)
        .ok_or_else(|| Failure::Usage(format!("{shown}: no such program; give its path, or a name in PATH")))?;
    if let Some(why) = program::obstacle(&path) {
        return Err(Failure::Usage(format!(
            "{shown}: {why}; link it against libterrace_malloc.a or terrace::Global, and publish by terrace-live"
        )));
    }
    let library = library(args.library.as_deref())?;
    let failed = |error: LiveError| Failure::Measure(format!("counters: {error}"));
    let page = SharedCounters::create().map_err(failed)?;
    let reader = CounterReader::new(page.read_only().and_then(SharedCounters::open).map_err(failed)?);
    let mut command = Command::new(&path);
    command.args(args.program.iter().skip(1)).env("LD_PRELOAD", preload(&library));
    command.env("TERRACE_LIVE", page.as_fd().as_raw_fd().to_string());
    redirect(&mut command, args)?;
    page.inherit(true).map_err(failed)?;
    let started = command.spawn();
    let mut child = started.map_err(|error| Failure::Usage(format!("{shown}: cannot start: {error}")))?;
    let lines = OutputLines::default();
    child.stdout.take().into_iter().for_each(|pipe| lines.follow(pipe));
    child.stderr.take().into_iter().for_each(|pipe| lines.follow(pipe));
    Ok((Launched { child, status: None, lines, name: shown }, reader))
}

/// Where the program's input comes from, and its output goes.
fn redirect(command: &mut Command, args: &TopArgs) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error: io::Error| Failure::output(&path, error)
    };
    if !args.is_once() {
        // The keys are this command's.
        command.stdin(Stdio::null());
    }
    match &args.output {
        Some(path) => {
            let file = File::create(path).map_err(failed(path))?;
            command.stdout(file.try_clone().map_err(failed(path))?).stderr(file);
        }
        // Standard output is the frame's.
        None if args.is_once() && args.picture.is_none() => {
            let error = io::stderr().as_fd().try_clone_to_owned();
            command.stdout(error.map_err(failed(Path::new("standard error")))?);
        }
        None => _ = command.stdout(Stdio::piped()).stderr(Stdio::piped()),
    }
    Ok(())
}

/// The library: the one that is named, or the one beside this command.
fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(LIBRARY));
    let path = named.map(PathBuf::from).or_else(beside).unwrap_or_else(|| LIBRARY.into());
    // The loader takes a relative path as relative to where the program is at that time.
    let found = path.canonicalize().ok().filter(|path| path.is_file());
    found.ok_or_else(|| {
        let path = escape(&path.to_string_lossy());
        Failure::Usage(format!(
            "{path}: not there; build it by `cargo build --release -p terrace-capi`, or name it by --library"
        ))
    })
}

/// The library before what is preloaded already.
fn preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

impl Launched {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit code, once the program ended; 128 + n if signal n ended it.
    pub fn exit_code(&mut self) -> Option<u8> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.map(code)
    }

    /// Waits for the program's end.
    pub fn wait(&mut self) -> Result<u8, Failure> {
        let status = self.child.wait();
        status.map(code).map_err(|error| Failure::Measure(format!("{}: cannot wait for its end: {error}", self.name)))
    }

    /// Asks the program to end.
    pub fn terminate(&self) {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        // It was not waited for, so that the number is still its own.
        if let Some(pid) = pid.filter(|_| self.status.is_none()) {
            _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
