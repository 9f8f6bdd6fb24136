//! `terrace record convert`: converts a trace to another format.
//!
//! Promises upward: the output is complete or absent.
//! Asks from below: the reader and writer of recordings.

use crate::failure::Failure;
use crate::output::print;
use serde::Serialize;
use std::path::Path;
use terrace::recording::{Form, Partial, Writer};

/// What a conversion did.
#[derive(Serialize)]
struct Converted {
    input: String,
    output: String,
    /// Number of events that were read.
    events: u64,
    /// Transfers, segments and marks for which the format has no line.
    left_out: u64,
    /// Events that lost their address, tier or call site.
    shortened: u64,
}

/// Converts `input` to the format that the name of `output` implies.
pub fn run(input: &Path, output: &Path, json: bool) -> Result<(), Failure> {
    let form = Form::of(output).ok_or_else(|| {
        Failure::Usage(format!("{}: end the name in .csv, .csv.gz, .csv.zst or .terrace", output.display()))
    })?;
    let mut reader = crate::input::open(input)?;
    let cannot = |error| Failure::output(output, error);
    let (partial, file) = Partial::create(output).map_err(cannot)?;
    let name = output.display().to_string();
    let mut writer = Writer::new(&name, form, file).map_err(|error| Failure::writing(output, error))?;
    let mut events = 0;
    while let Some(entry) = reader.next() {
        events += 1;
        writer.write(&entry?.event, reader.texts()).map_err(|error| Failure::writing(output, error))?;
    }
    let (left_out, shortened) = (writer.left_out(), writer.shortened());
    writer.finish().map_err(|error| Failure::writing(output, error))?;
    partial.keep().map_err(cannot)?;
    if left_out > 0 {
        crate::output::print_error(&format!(
            "{name}: {left_out} transfers, segments or marks were left out: CSV has no line for them"
        ));
    }
    if shortened > 0 {
        crate::output::print_error(&format!(
            "{name}: {shortened} events lost their address, tier or call site: CSV has no column for them"
        ));
    }
    if json {
        let input = input.display().to_string();
        print(&crate::output::json(&Converted { input, output: name, events, left_out, shortened })?)?;
    }
    Ok(())
}
