//! `terrace top`: the memory of a running program, live.
//!
//! Promises upward: the program is started with the library preloaded, or looked at through its socket, and not disturbed; its exit
//! code is passed on.
//! Asks from below: `terrace-live` for frames; `launch` for the program.

mod args;
mod columns;
mod draw;
mod launch;
mod model;
mod program;
mod screen;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub use args::TopArgs;

use crate::failure::Failure;
use crate::output::{escape, print, print_error, write_file};
use draw::View;
use launch::Launched;
use model::TopModel;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_live::{CounterReader, LiveError, LiveFrame};

/// Frames that one printed frame is taken from: the last one is printed, and the curve has all.
const STEPS: u32 = 20;
/// Milliseconds after which counters of a socket are called old: ten writes of a publisher.
const OLD: u64 = 2000;

/// What is looked at, and how.
pub struct Session {
    reader: CounterReader,
    program: Option<Launched>,
    model: TopModel,
    view: View,
    interval: Duration,
    /// When the next frame is due.
    next: Instant,
    /// Number of frames written to files.
    dumps: u32,
}

/// Runs the command; returns its exit code.
pub fn run(args: &TopArgs) -> Result<u8, Failure> {
    if !args.is_once() && !io::stdout().is_terminal() {
        return Err(Failure::Usage("standard output is no terminal; give --once or --json for one frame".into()));
    }
    let (reader, program) = match &args.socket {
        Some(socket) => (CounterReader::connect(socket).map_err(|error| Failure::Measure(error.to_string()))?, None),
        None => {
            let (program, reader) = launch::start(args)?;
            (reader, Some(program))
        }
    };
    let socket = args.socket.as_deref().map(|path| escape(&path.to_string_lossy()));
    let title = program.as_ref().map(|program| program.name.clone()).or(socket).unwrap_or_default();
    let view = View { title, ..View::default() };
    let interval = args.interval();
    let mut session =
        Session { reader, program, model: TopModel::new(), view, interval, next: Instant::now(), dumps: 0 };
    if session.program.is_some() && args.output.is_none() {
        session.view.lines = Some(Vec::new());
    }
    if args.is_once() { session.once(args) } else { session.interactive() }
}

impl Session {
    /// Prints or draws one frame, and waits for the program's end.
    fn once(mut self, args: &TopArgs) -> Result<u8, Failure> {
        for _ in 0..STEPS {
            std::thread::sleep(self.interval / STEPS);
            let has_ended = self.program.as_mut().is_some_and(|program| program.exit_code().is_some());
            let frame = self.reader.frame();
            let frame = frame.map_err(|error: LiveError| Failure::Measure(error.to_string()))?;
            self.model.take(mark_ended(frame));
            if has_ended {
                break;
            }
        }
        if let Some(program) = self.program.as_ref().filter(|_| self.model.rows().is_empty()) {
            print_error(&format!(
                "{}: it wrote no counters: it loads no library, or has not allocated yet",
                program.name
            ));
        }
        if let Some(path) = &args.picture {
            self.look_at_program();
            write_file(path, &self.picture()?).map_err(|error| Failure::output(path, error))?;
        }
        if args.json {
            print(&text::frame_json(&self.model)?)?;
        } else if args.once {
            print(&text::frame_text(&self.model))?;
        }
        self.program.as_mut().map_or(Ok(0), Launched::wait)
    }

    /// The frame as a terminal shows it.
    fn picture(&self) -> Result<String, Failure> {
        let drawn = Terminal::new(TestBackend::new(100, 30)).and_then(|mut terminal| {
            terminal.draw(|frame| draw::draw(frame, &self.model, &self.view))?;
            Ok(svg::svg(terminal.backend().buffer()))
        });
        drawn.map_err(|error| Failure::Measure(format!("drawing: {error}")))
    }

    /// Shows frames in the terminal.
    fn interactive(mut self) -> Result<u8, Failure> {
        let shown = screen::show(&mut self);
        let Some(mut program) = self.program else {
            // As a shell says of a program that a signal ended.
            return shown.map(|signal| if signal == 0 { 0 } else { 128 + signal as u8 });
        };
        if let Some(code) = program.exit_code() {
            return shown.map(|_| code);
        }
        program.terminate();
        print_error(&format!("sent SIGTERM to {} ({}), and waits for its end", program.name, program.id()));
        let code = program.wait()?;
        shown.map(|_| code)
    }

    /// Takes a frame if one is due, and looks at the program; returns whether the terminal must be drawn anew.
    fn look(&mut self, now: Instant) -> bool {
        let (is_due, before) = (now >= self.next, self.view.clone());
        if is_due {
            self.sample();
            self.next = now + self.interval;
        }
        self.look_at_program();
        is_due && !self.model.paused || self.view != before
    }

    /// Takes a frame; an error becomes the message.
    fn sample(&mut self) {
        match self.reader.frame() {
            Ok(frame) => {
                let newest = frame.rows.iter().map(|row| row.written).max().unwrap_or(frame.read);
                let age = frame.read.saturating_sub(newest);
                if self.program.is_none() && age > OLD {
                    let seconds = age / 1000;
                    self.view.message =
                        Some(format!("no new counters for {seconds} s: the program ended, or is stopped"));
                }
                self.model.take(mark_ended(frame));
            }
            Err(error) => self.view.message = Some(error.to_string()),
        }
    }

    /// Takes the program's last lines, and whether it ended.
    fn look_at_program(&mut self) {
        let Some(program) = &mut self.program else { return };
        if let (Some(lines), false) = (&mut self.view.lines, self.model.paused) {
            *lines = program.lines.last(50);
        }
        if let Some(code) = program.exit_code() {
            self.view.message.get_or_insert(format!("ended with exit code {code}; q quits, ? keys"));
        }
    }

    /// Writes the frame to a JSON file in the current folder, and says where.
    fn dump(&mut self) {
        self.dumps += 1;
        let path = PathBuf::from(format!("terrace-top-{}-{}.json", std::process::id(), self.dumps));
        let written = text::frame_json(&self.model)
            .and_then(|text| write_file(&path, &text).map_err(|error| Failure::output(&path, error)));
        self.view.message = Some(match written {
            Ok(()) => format!("wrote {}", shown(&path)),
            Err(failure) => failure.to_string(),
        });
    }
}

/// Marks rows whose process is gone without a word: killed, or ended by `_exit`.
fn mark_ended(mut frame: LiveFrame) -> LiveFrame {
    for row in &mut frame.rows {
        // A row that was written just now has a process, though perhaps under another number here: that of its container.
        if frame.read.saturating_sub(row.written) > OLD {
            let pid = i32::try_from(row.owner).ok().and_then(Pid::from_raw);
            row.ended |= pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        }
    }
    frame
}

/// A path of the current folder, in full.
fn shown(path: &Path) -> String {
    let full = std::env::current_dir().map_or_else(|_| path.into(), |folder| folder.join(path));
    escape(&full.to_string_lossy())
}
