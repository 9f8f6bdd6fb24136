//! The terminal: frames at each interval, and keys.
//!
//! Promises upward: the terminal is drawn when something changed; it is as it was when this returns, after a panic, and after SIGTERM, SIGHUP and SIGINT.
//! Asks from below: `ratatui` and `crossterm`; the session.

use super::Session;
use super::draw;
use crate::failure::Failure;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest wait for a key: signals and the program's end are seen so late.
const GLANCE: Duration = Duration::from_millis(100);

/// Restores the terminal.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows frames until a key or a signal ends it. Returns the signal's number, 0 for a key.
pub fn show(session: &mut Session) -> Result<usize, Failure> {
    let failed = |error: io::Error| Failure::Measure(format!("the terminal cannot be used: {error}; try --once"));
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register_usize(number, signal.clone(), number as usize).map_err(failed)?;
    }
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let _restored = Restored;
    let mut is_stale = true;
    loop {
        is_stale |= session.look(Instant::now());
        if is_stale {
            terminal.draw(|frame| draw::draw(frame, &session.model, &session.view)).map_err(failed)?;
            is_stale = false;
        }
        let wait = session.next.saturating_duration_since(Instant::now()).min(GLANCE);
        if !is_there(wait) {
            return Ok(SIGHUP as usize);
        }
        if event::poll(Duration::ZERO).map_err(failed)? {
            // A key, or another size.
            is_stale = true;
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind != KeyEventKind::Release && !press(session, key) => return Ok(0),
                _ => {}
            }
        }
        match signal.load(Relaxed) {
            0 => {}
            number => return Ok(number),
        }
    }
}

/// Waits for input. `false`: the terminal is gone.
///
/// `crossterm` reads the end of a terminal for ever, so it must not be asked for input then.
fn is_there(wait: Duration) -> bool {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut places = [PollFd::new(&stdout, PollFlags::empty()), PollFd::new(&stdin, PollFlags::IN)];
    // Input from elsewhere than a terminal, which may be at its end, is not what `crossterm` reads.
    let places = if stdin.is_terminal() { &mut places[..] } else { &mut places[..1] };
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    // A signal ends the wait; the caller looks for signals next.
    rustix::event::poll(places, Some(&wait)).is_err() || !places.iter().any(|place| place.revents().intersects(gone))
}

/// Does what a key says. `false`: ends.
fn press(session: &mut Session, key: KeyEvent) -> bool {
    session.view.message = None;
    let model = &mut session.model;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('p' | ' ') => model.paused = !model.paused,
        KeyCode::Char('s') => model.sort = model.sort.next(),
        KeyCode::Char('r') => model.reverse = !model.reverse,
        KeyCode::Char('d') => session.dump(),
        KeyCode::Char('?' | 'h') => session.view.help = !session.view.help,
        _ => {}
    }
    true
}
