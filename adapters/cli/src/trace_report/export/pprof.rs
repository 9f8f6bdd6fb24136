//! The format of pprof: allocations and live memory by tag and call site, as heap profiles have them.
//!
//! Promises upward: `go tool pprof` and `pprof` open it. Sample types: alloc_objects, alloc_space, inuse_objects, inuse_space.
//! Asks from below: sums by call site; gzip. The format: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use super::{frames, sums};
use crate::trace_report::trace::Trace;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::io::{self, Write};

/// A protobuf message: fields of numbers, bytes and packed numbers, which is all that a profile needs.
#[derive(Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut inner = Self::default();
        values.into_iter().for_each(|value| inner.varint(value));
        self.bytes(field, &inner.0);
    }
}

/// The table of texts: number 0 is empty.
struct Strings {
    numbers: HashMap<String, u64>,
    texts: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        self.numbers.insert(text.to_owned(), number);
        self.texts.push(text.to_owned());
        number
    }
}

/// The file's bytes.
pub fn pprof(trace: &Trace) -> io::Result<Vec<u8>> {
    let mut profile = ProtobufMessage::default();
    let mut strings = Strings { numbers: HashMap::from([(String::new(), 0)]), texts: vec![String::new()] };
    for (kind, unit) in
        [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    {
        profile.bytes(1, &value_type(&mut strings, kind, unit));
    }
    let mut functions: HashMap<String, u64> = HashMap::new();
    let mut stacks: Vec<_> = sums(trace, trace.events.len()).into_iter().collect();
    stacks.sort_by_key(|(stack, _)| *stack);
    for (stack, sum) in stacks {
        // Locations begin with the innermost.
        let locations = frames(trace, stack).into_iter().rev().map(|frame| {
            let next = functions.len() as u64 + 1;
            *functions.entry(frame).or_insert(next)
        });
        let mut sample = ProtobufMessage::default();
        sample.packed(1, locations.collect::<Vec<_>>());
        sample.packed(2, [sum.allocations, sum.allocated_bytes, sum.live_blocks, sum.live_bytes]);
        profile.bytes(2, &sample.0);
    }
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    functions.sort_by_key(|(_, id)| *id);
    for (_, id) in &functions {
        let (mut line, mut location) = (ProtobufMessage::default(), ProtobufMessage::default());
        line.number(1, *id);
        location.number(1, *id);
        location.bytes(4, &line.0);
        profile.bytes(4, &location.0);
    }
    for (name, id) in &functions {
        let mut function = ProtobufMessage::default();
        let name = strings.number(name);
        function.number(1, *id);
        function.number(2, name);
        function.number(3, name);
        profile.bytes(5, &function.0);
    }
    profile.number(10, trace.duration_us.saturating_mul(1000));
    let period = value_type(&mut strings, "space", "bytes");
    profile.bytes(11, &period);
    profile.number(12, 1);
    let inuse = strings.number("inuse_space");
    profile.number(14, inuse);
    // The texts come last, since all numbers are known by then.
    strings.texts.iter().for_each(|text| profile.bytes(6, text.as_bytes()));
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&profile.0)?;
    packed.finish()
}

fn value_type(strings: &mut Strings, kind: &str, unit: &str) -> Vec<u8> {
    let mut message = ProtobufMessage::default();
    message.number(1, strings.number(kind));
    message.number(2, strings.number(unit));
    message.0
}
