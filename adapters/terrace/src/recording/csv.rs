//! Converts a line of CSV to an event and back.
//!
//! Promises upward: a line that is accepted is written again to the same bytes.
//! Asks from below: a line without its line end; a table of tags by id.

use super::error::Problem;
use super::texts::Texts;
use std::io::{self, Write};
use terrace_core::Owner;
use terrace_core::event::{Event, Kind};

/// Number of columns in a line.
const COLUMNS: usize = 7;

/// Parses a line.
pub(super) fn parse(line: &str, texts: &mut Texts) -> Result<Event, Problem> {
    let [time, operation, id, bytes, align, owner, tag] = columns(line)?;
    let mut event = Event {
        time_us: number("t", time)?,
        kind: kind(operation)?,
        id: number("id", id)?,
        owner: Owner(u32::try_from(number("stream", owner)?).map_err(|_| Problem::TooLarge("stream", owner.into()))?),
        ..Event::default()
    };
    if event.kind == Kind::Free {
        empty("size", bytes)?;
        empty("align", align)?;
    } else {
        event.bytes = number("size", bytes)?;
        event.align = number("align", align)?;
        if event.align == 0 {
            return Err(Problem::BadAlign(0));
        }
    }
    event.tag = texts.intern(tag)?;
    Ok(event)
}

fn columns(line: &str) -> Result<[&str; COLUMNS], Problem> {
    let mut columns = [""; COLUMNS];
    let mut n = 0;
    for column in line.split(',') {
        if let Some(place) = columns.get_mut(n) {
            *place = column;
        }
        n += 1;
    }
    if n == COLUMNS { Ok(columns) } else { Err(Problem::Columns(n)) }
}

fn kind(text: &str) -> Result<Kind, Problem> {
    match text {
        "a" => Ok(Kind::Allocate),
        "r" => Ok(Kind::Reallocate),
        "f" => Ok(Kind::Free),
        _ => Err(Problem::Operation(text.into())),
    }
}

/// Parses a number: digits only, no leading zero, so that writing the number gives the same bytes again.
fn number(column: &'static str, text: &str) -> Result<u64, Problem> {
    let canonical = text == "0" || text.starts_with(|c: char| matches!(c, '1'..='9'));
    match text.parse() {
        Ok(number) if canonical => Ok(number),
        _ if is_digits(text) && canonical => Err(Problem::TooLarge(column, text.into())),
        _ => Err(Problem::Number(column, text.into())),
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn empty(column: &'static str, text: &str) -> Result<(), Problem> {
    if text.is_empty() { Ok(()) } else { Err(Problem::NotEmpty(column, text.into())) }
}

/// Writes a line; false if CSV has no line for this kind of event.
pub(super) fn write(out: &mut dyn Write, event: &Event, tag: &str) -> io::Result<bool> {
    let Event { time_us, id, bytes, align, owner: Owner(owner), .. } = event;
    match event.kind {
        Kind::Allocate => writeln!(out, "{time_us},a,{id},{bytes},{align},{owner},{tag}")?,
        Kind::Reallocate => writeln!(out, "{time_us},r,{id},{bytes},{align},{owner},{tag}")?,
        Kind::Free => writeln!(out, "{time_us},f,{id},,,{owner},{tag}")?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether CSV has columns for all fields that the event uses.
pub(super) fn has_columns(event: &Event) -> bool {
    event.address.is_none() && event.tier == 0 && event.from_tier == 0 && event.site == 0
}

/// Whether a tag has only characters that CSV can hold.
pub(super) fn fits(tag: &str) -> bool {
    !tag.contains([',', '\n', '\r', '\0'])
}
