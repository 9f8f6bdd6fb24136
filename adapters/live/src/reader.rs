//! The end of the command that looks: frames of all rows.
//!
//! Promises upward: nothing that the other program writes, or omits, makes a call panic, wait without bound, or change that program.
//! Asks from below: [`SharedCounters`], [`socket`](crate::socket).

use crate::error::LiveError;
use crate::layout::ROWS;
use crate::memory::{SharedCounters, milliseconds};
use crate::read::{LiveRow, RowRead};
use crate::socket;
use std::path::Path;
use std::vec::Vec;

/// Reads the counters of another process.
#[derive(Debug)]
pub struct CounterReader {
    shared: SharedCounters,
}

/// All rows that could be read, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFrame {
    /// The process that made the page.
    pub maker: u32,
    /// When the frame was read: milliseconds of the system's monotonic clock.
    pub read: u64,
    /// The rows, in the order of the page.
    pub rows: Vec<LiveRow>,
    /// Number of rows that changed at every attempt, or whose writer was killed in the middle.
    pub torn: usize,
    /// Number of rows of a kind that this version does not know.
    pub unknown: usize,
}

impl CounterReader {
    /// Connects to a [`Publisher`](crate::Publisher), and waits at most two seconds for its answer.
    ///
    /// # Errors
    /// No program listens, it sends nothing, or something that is no page of counters.
    pub fn connect(path: &Path) -> Result<Self, LiveError> {
        Ok(Self::new(SharedCounters::open(socket::receive(path)?)?))
    }

    /// Reads a page that is mapped already.
    pub fn new(shared: SharedCounters) -> Self {
        Self { shared }
    }

    /// Reads all rows; O(rows of a page), some microseconds.
    ///
    /// # Errors
    /// The header was destroyed, or no row could be read and some changed at each attempt.
    pub fn frame(&self) -> Result<LiveFrame, LiveError> {
        let page = self.shared.page()?;
        let mut frame = LiveFrame { maker: page.maker(), read: milliseconds(), rows: Vec::new(), torn: 0, unknown: 0 };
        for index in 0..ROWS {
            match page.read(index) {
                RowRead::Empty => {}
                RowRead::Torn => frame.torn += 1,
                RowRead::Unknown => frame.unknown += 1,
                RowRead::Row(row) => frame.rows.push(row),
            }
        }
        if frame.rows.is_empty() && frame.torn > 0 { Err(LiveError::Torn) } else { Ok(frame) }
    }
}
