//! Reads the log of RMM's `logging_resource_adaptor`.
//!
//! Promises upward: a line becomes an event, or none if it says nothing of memory; times never go back, and pass midnight.
//! Asks from below: lines without their ends.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 2342727,15:47:02.841961,allocate,0x10012400000,1048576,0
//! 2342727,15:47:02.841977,free,0x10012400000,1048576,0
//! ```
//!
//! Columns may stand in quotation marks, the fraction of a time behind a point or (older logs) a colon, a time may be seconds
//! since 1970, pointers and streams `(nil)` or hexadecimal. A refused request (`allocate failure`) becomes a mark.

use super::blocks::AddressTable;
use super::error::Problem;
use super::texts::Texts;
use terrace_core::event::{Event, Kind};

/// The first line of a log.
pub(super) const LOG_HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";
/// Number of columns in a line.
const COLUMNS: usize = 6;
/// Alignment of every block of RMM.
const ALIGN: u64 = 256;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// What was read of a log.
#[derive(Debug, Default)]
pub(super) struct RmmReader {
    blocks: AddressTable,
    /// Time of the first line.
    begin: Option<u64>,
    /// Time of the last event since the first line.
    time_us: u64,
    /// Microseconds to add to a line's time of day: a day for each midnight that the log passed.
    days: u64,
    /// The allocation whose address another block had: its free comes first.
    next: Option<Event>,
}

impl RmmReader {
    /// Whether a line is the header, quoted or not.
    pub(super) fn is_header(line: &str) -> bool {
        line.split(',').map(unquoted).eq(LOG_HEADER.split(','))
    }

    /// The event that is left of the line before.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.next.take()
    }

    /// What was left out.
    pub(super) fn remark(&self, text: &mut String) {
        self.blocks.remark(text);
    }

    /// Parses a line; `None` for one that makes no event.
    pub(super) fn parse(&mut self, line: &str, texts: &mut Texts) -> Result<Option<Event>, Problem> {
        let mut columns = [""; COLUMNS];
        let count = line.split(',').count();
        if count != COLUMNS {
            return Err(Problem::LogColumns(count));
        }
        columns.iter_mut().zip(line.split(',')).for_each(|(column, text)| *column = unquoted(text));
        let [_, time, action, pointer, size, stream] = columns;
        let field = |name, text: &str, number: Option<u64>| number.ok_or_else(|| Problem::LogField(name, text.into()));
        self.pass(field("Time", time, time_of(time))?, time.contains(':'));
        let address = field("Pointer", pointer, hexadecimal(pointer))?;
        let bytes = field("Size", size, size.parse().ok())?;
        let owner = self.blocks.owner(field("Stream", stream, handle(stream))?);
        let event = Event { time_us: self.time_us, owner, address: Some(address), ..Event::default() };
        match action {
            "allocate failure" => {
                let tag = texts.intern(action)?;
                Ok(Some(Event { kind: Kind::Mark, bytes, tag, address: None, ..event }))
            }
            // A block of no bytes has no address, and its free neither.
            "allocate" | "free" | "deallocate" if bytes == 0 || address == 0 => Ok(None),
            "allocate" => {
                let (id, old) = self.blocks.allocate(address);
                let new = Event { id, bytes, align: ALIGN, ..event };
                Ok(Some(match old {
                    None => new,
                    Some(old) => {
                        self.next = Some(new);
                        Event { kind: Kind::Free, id: old, ..event }
                    }
                }))
            }
            "free" | "deallocate" => Ok(self.blocks.free(address).map(|id| Event { kind: Kind::Free, id, ..event })),
            _ => Err(Problem::LogField("Action", action.into())),
        }
    }

    /// Goes on to a time. Lines of several threads may be a little out of order: time then stands still. Where a clock falls by
    /// more than half a day, midnight has passed.
    fn pass(&mut self, time: u64, clock: bool) {
        let begin = *self.begin.get_or_insert(time);
        let last = begin.saturating_add(self.time_us);
        if clock && time.saturating_add(self.days).saturating_add(DAY / 2) < last {
            self.days = self.days.saturating_add(DAY);
        }
        self.time_us = self.time_us.max(time.saturating_add(self.days).saturating_sub(begin));
    }
}

/// A column without quotation marks and blanks.
fn unquoted(text: &str) -> &str {
    let text = text.trim_matches(' ');
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// Microseconds of a time of day, or of seconds since 1970.
fn time_of(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split([':', '.']).take(5).collect();
    let [hours, minutes, seconds, fraction] = match parts[..] {
        [seconds] => ["0", "0", seconds, ""],
        [seconds, fraction] => ["0", "0", seconds, fraction],
        [hours, minutes, seconds] => [hours, minutes, seconds, ""],
        [hours, minutes, seconds, fraction] => [hours, minutes, seconds, fraction],
        _ => return None,
    };
    let whole = [hours, minutes, seconds]
        .iter()
        .try_fold(0, |sum: u64, part| sum.checked_mul(60)?.checked_add(digits(part)?).filter(|sum| *sum < 1 << 40))?;
    // The fraction's first six digits, with zeros behind a shorter one.
    let micros = (0..6).try_fold(0, |sum, at| Some(sum * 10 + digits(fraction.get(at..=at).unwrap_or("0"))?))?;
    Some(whole * SECOND + micros)
}

fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn hexadecimal(text: &str) -> Option<u64> {
    match text {
        "(nil)" => Some(0),
        _ => u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok(),
    }
}

/// The handle of a stream, which is written as a pointer or as a decimal number.
fn handle(text: &str) -> Option<u64> {
    if text.starts_with("0x") || text == "(nil)" { hexadecimal(text) } else { digits(text) }
}
