//! Writes the events of a tracker into a recording: names of blocks become ids, tags and call stacks become texts.
//!
//! Promises upward: what is written so far replays without an error, whatever the tracker knew of blocks before; after a
//! failing write the file ends with the last frame that is whole.
//! Asks from below: events in their order.

use super::SIZE_MAX;
use super::blocks::AddressTable;
use super::error::TraceError;
use super::partial::Partial;
use super::recorder::{RecordedFile, RecorderError};
use super::texts::Texts;
use super::writer::{Form, Writer};
use std::collections::HashMap;
use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_core::event::{Event, Kind, TEXT_MAX};
use terrace_track::{Origin, StackFrame, Tag, Tracker};

/// The file of a recording while it is written.
pub(super) struct EventLog {
    path: PathBuf,
    partial: Partial,
    /// The same file as the writer's, at the same position.
    file: File,
    /// `None` after a failing write.
    writer: Option<Writer<File>>,
    tracker: Arc<Tracker>,
    /// Live blocks by the keys that the tracker has for them.
    blocks: AddressTable,
    texts: Texts,
    /// Texts of tags, and of call sites by their numbers.
    tags: HashMap<Tag, u32>,
    sites: HashMap<u32, u32>,
    /// Number of events written.
    events: u64,
    /// Bytes of the file up to the end of its last whole frame, and the number of events in these.
    whole: (u64, u64),
}

impl EventLog {
    pub(super) fn create(tracker: &Arc<Tracker>, path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let fail = |error| TraceError::io(&*name, error);
        let (partial, out) = Partial::create(path).map_err(fail)?;
        let file = out.try_clone().map_err(fail)?;
        let writer = Some(Writer::new(&name, Form::Recording, out)?);
        Ok(Self {
            path: path.into(),
            partial,
            file,
            writer,
            tracker: Arc::clone(tracker),
            blocks: AddressTable::default(),
            texts: Texts::default(),
            tags: HashMap::new(),
            sites: HashMap::new(),
            events: 0,
            whole: (0, 0),
        })
    }

    /// Writes events, and a frame's end, after which the file is whole.
    pub(super) fn write(&mut self, events: &[(Origin, Event)]) -> Result<(), TraceError> {
        // The writer leaves `self` for the call, and stays away if that fails.
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        for (origin, event) in events {
            self.event(&mut writer, *origin, event)?;
        }
        self.writer = Some(writer.next_frame()?);
        // A pipe has no position, and nothing that could be cut off again.
        self.whole = (self.file.stream_position().unwrap_or(0), self.events);
        Ok(())
    }

    fn event(&mut self, writer: &mut Writer<File>, origin: Origin, event: &Event) -> Result<(), TraceError> {
        let mut event = *event;
        let found = match event.kind {
            Kind::Allocate => {
                let (id, old) = self.blocks.allocate(event.id);
                if let Some(id) = old {
                    // A thread that freed it had not seen the recorder yet.
                    self.put(writer, &Event { kind: Kind::Free, id, time_us: event.time_us, ..Event::default() })?;
                }
                event.tag = self.tag(origin.tag());
                event.site = self.site(origin);
                // Readers refuse 0 and what is above SIZE_MAX.
                event.bytes = event.bytes.clamp(1, SIZE_MAX);
                Some(id)
            }
            Kind::Free => self.blocks.free(event.id),
            _ => self.blocks.find(event.id),
        };
        found.map_or(Ok(()), |id| self.put(writer, &Event { id, ..event }))
    }

    fn put(&mut self, writer: &mut Writer<File>, event: &Event) -> Result<(), TraceError> {
        self.events += 1;
        writer.write(event, &self.texts)
    }

    /// The text of a tag; none once texts take too much memory.
    fn tag(&mut self, tag: Tag) -> u32 {
        let texts = &mut self.texts;
        *self.tags.entry(tag).or_insert_with(|| texts.intern(tag.name()).unwrap_or(0))
    }

    /// The text of a call site; none once texts take too much memory.
    fn site(&mut self, origin: Origin) -> u32 {
        let (texts, tracker) = (&mut self.texts, &self.tracker);
        let text = || texts.intern(&site_of(&tracker.stack_of(origin))).unwrap_or(0);
        if origin.site() == 0 { 0 } else { *self.sites.entry(origin.site()).or_insert_with(text) }
    }

    /// Ends the file: whole, or after a failing write with what was whole before.
    pub(super) fn finish(mut self, written: Result<(), TraceError>) -> Result<RecordedFile, RecorderError> {
        let path = self.path.clone();
        let ended = written.and_then(|()| self.writer.take().map_or(Ok(()), |writer| writer.finish().map(drop)));
        let (bytes, events) = self.whole;
        let failed = match ended {
            Ok(()) => match self.partial.keep() {
                Ok(()) => return Ok(RecordedFile { path, events: self.events }),
                Err(error) => (TraceError::io(path.display().to_string(), error), 0),
            },
            Err(error) => {
                let is_kept = events > 0 && self.file.set_len(bytes).is_ok() && self.partial.keep().is_ok();
                (error, if is_kept { events } else { 0 })
            }
        };
        Err(RecorderError::File { error: failed.0, events: failed.1 })
    }
}

/// The text of a call stack, innermost call first.
fn site_of(stack: &[StackFrame]) -> String {
    let frame = |frame: &StackFrame| {
        let file = frame.file.as_deref().and_then(|file| Path::new(file).file_name());
        format!("{}+{:#x}", file.unwrap_or_default().to_string_lossy(), frame.offset)
    };
    let mut text = stack.iter().map(frame).collect::<Vec<_>>().join(" < ");
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    text
}
