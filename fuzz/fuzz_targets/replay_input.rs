//! Any bytes as a trace: events or one error, never a panic, bounded memory; and what parses survives every form.
//!
//! So that the fuzzer gets past checksums, the first byte says how the rest is packed: as it is, behind the header of a
//! CSV, or that in gzip, zstd, or as the records of a recording.
// seeded-env: replay_loses_tag
// seeded-env: replay_loses_byte
#![no_main]
#![forbid(unsafe_code)]

use flate2::{Compression, write::GzEncoder};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use terrace::engine::event::Event;
use terrace::recording::{Form, MAGIC, Texts, TraceError, Writer};
use terrace_fuzz::{bug, read_trace};

const HEADER: &[u8] = b"t,op,id,size,align,stream,tag\n";
const FORMS: [Form; 4] = [Form::Csv, Form::CsvGzip, Form::CsvZstd, Form::Recording];
/// Events that are looked at: a packed input of 4 KiB can hold millions, all alike.
const MOST: usize = 20_000;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).and_then(|()| packer.finish()).expect("a vector takes everything")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("a vector takes everything")
}

fn packed(data: &[u8]) -> Vec<u8> {
    let Some((how, rest)) = data.split_first() else { return Vec::new() };
    let csv = || [HEADER, rest].concat();
    match how % 6 {
        0 => rest.to_vec(),
        1 => csv(),
        2 => gzip(&csv()),
        3 => zstd(&csv()),
        // Version 1, then a frame with these records.
        4 => [&MAGIC[..], &[1], &zstd(rest)].concat(),
        _ => gzip(rest),
    }
}

/// What a trace says: the events with their texts in words, since numbers of texts may change.
type Content = Vec<(Event, String, String)>;

/// Everything up to the end, or the one error. `None` when there is more than will be looked at.
fn read(bytes: &[u8]) -> Option<Result<Content, TraceError>> {
    let mut content = Vec::new();
    let ended = read_trace(bytes, |event, texts| {
        let text = |id| texts.get(id).unwrap_or_else(|| panic!("text {id} is known")).to_string();
        content.push((*event, text(event.tag), text(event.site)));
        content.len() <= MOST
    });
    if let Err(error) = ended? {
        return Some(Err(error));
    }
    assert!(!content.is_empty(), "a trace without events is an error");
    Some(Ok(content))
}

/// Writes a trace in a form; `None` when the form cannot hold all of it.
fn write(content: &Content, form: Form) -> Option<Vec<u8>> {
    let mut texts = Texts::default();
    let mut writer = Writer::new("output", form, Vec::new()).expect("a vector takes everything");
    for (event, tag, site) in content {
        let lost = bug("replay_loses_tag") && tag.len() > 1;
        let tag = texts.intern(if lost { "" } else { tag }).ok()?;
        let site = texts.intern(site).ok()?;
        writer.write(&Event { tag, site, ..*event }, &texts).ok()?;
    }
    if writer.left_out() + writer.shortened() > 0 {
        return None;
    }
    let mut bytes = writer.finish().expect("a vector takes everything");
    if bug("replay_loses_byte") && bytes.len() % 8 == 0 {
        bytes.pop();
    }
    Some(bytes)
}

/// Without the numbers of texts, which are the reader's own.
fn words(content: &Content) -> Content {
    content.iter().map(|(event, tag, site)| (Event { tag: 0, site: 0, ..*event }, tag.clone(), site.clone())).collect()
}

fuzz_target!(|data: &[u8]| {
    let input = packed(data);
    let Some(result) = read(&input) else { return };
    let content = match result {
        Ok(content) => content,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("input") && text.len() < 4096, "one clear error: {text}");
            return;
        }
    };
    for form in FORMS {
        let Some(bytes) = write(&content, form) else { continue };
        let back = read(&bytes).expect("as many events as before").expect("what was written can be read");
        assert_eq!(words(&back), words(&content), "{form:?}");
        if form == Form::Csv && input.starts_with(HEADER) {
            assert_eq!(bytes, input, "a CSV comes back to the byte");
        }
    }
});
