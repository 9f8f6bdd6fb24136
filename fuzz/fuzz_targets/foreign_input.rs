//! Snapshots of PyTorch and logs of RMM: events or one error, never a panic, memory within 64 MiB and 16 times the file; and what a
//! program did comes back as it was.
//!
//! The first byte says what the rest is: a file as it is, or steps of a program, which are written as a log or as a snapshot, and
//! then damaged.
// sanitizer: none
// seeded-env: foreign_loses_free
// seeded-env: foreign_cuts_size
// seeded-env: foreign_takes_memory
#![no_main]
#![forbid(unsafe_code)]

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use std::alloc::System;
use std::hint::black_box;
use terrace::engine::event::Kind;
use terrace::recording::TraceError;
use terrace_fuzz::{bug, read_trace};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Events that are looked at.
const MOST: usize = 20_000;

/// What is left when memory ends.
const LEAST: usize = 64 << 20;

/// Bytes of memory for a byte of the file.
const TIMES: usize = 16;

/// Blocks of the program, by the place that each has.
const PLACES: u8 = 32;

/// An allocation, or the free of the block (no bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProgramStep {
    address: u64,
    bytes: u64,
    stream: u8,
}

/// What a program does: three bytes are a place, a size and a stream; a block that is live there is freed.
fn program(data: &[u8]) -> Vec<ProgramStep> {
    let mut live = [0; PLACES as usize];
    let steps = data.as_chunks::<3>().0.iter().map(|&[place, size, stream]| {
        let place = place % PLACES;
        let old = &mut live[usize::from(place)];
        let bytes = if *old == 0 { 1 + u64::from(size) * 100 } else { 0 };
        *old = bytes;
        ProgramStep { address: 0x7000_0000 + u64::from(place) * 0x10000, bytes, stream: stream % 4 }
    });
    steps.collect()
}

/// What is written of a step's size; `None` for a step that is lost.
fn told(step: &ProgramStep, size: u64) -> Option<u64> {
    if bug("foreign_loses_free") && step.bytes == 0 && step.stream == 3 {
        return None;
    }
    Some(if bug("foreign_cuts_size") { size & 0xfff } else { size })
}

/// The sizes of all steps: of a free, what its block had.
fn sizes(steps: &[ProgramStep]) -> Vec<u64> {
    let mut live = std::collections::HashMap::new();
    let size = |step: &ProgramStep| {
        let old = live.insert(step.address, step.bytes);
        if step.bytes > 0 { step.bytes } else { old.unwrap_or(0) }
    };
    steps.iter().map(size).collect()
}

/// As RMM logs it.
fn log(steps: &[ProgramStep]) -> Vec<u8> {
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for (step, size) in steps.iter().zip(sizes(steps)) {
        let Some(size) = told(step, size) else { continue };
        let action = if step.bytes > 0 { "allocate" } else { "free" };
        text += &format!("1,15:47:02.841961,{action},{:#x},{size},{:#x}\n", step.address, step.stream);
    }
    text.into_bytes()
}

/// A text of a pickle.
fn text(pickle: &mut Vec<u8>, text: &str) {
    pickle.push(b'X');
    pickle.extend((text.len() as u32).to_le_bytes());
    pickle.extend(text.bytes());
}

/// A number of a pickle.
fn number(pickle: &mut Vec<u8>, number: u64) {
    pickle.extend([0x8a, 8]);
    pickle.extend(number.to_le_bytes());
}

/// As PyTorch pickles it, on its second device.
fn snapshot(steps: &[ProgramStep]) -> Vec<u8> {
    let mut pickle = vec![0x80, 2, b'}', b'('];
    text(&mut pickle, "segments");
    pickle.push(b']');
    text(&mut pickle, "device_traces");
    pickle.extend(b"](](");
    for (at, (step, size)) in steps.iter().zip(sizes(steps)).enumerate() {
        let Some(size) = told(step, size) else { continue };
        pickle.extend(b"}(");
        text(&mut pickle, "action");
        text(&mut pickle, if step.bytes > 0 { "alloc" } else { "free_requested" });
        for (key, value) in
            [("addr", step.address), ("size", size), ("stream", step.stream.into()), ("time_us", at as u64)]
        {
            text(&mut pickle, key);
            number(&mut pickle, value);
        }
        pickle.push(b'u');
    }
    // The end of the history, of the histories, of the dictionary.
    pickle.extend(b"eeu.");
    pickle
}

/// The steps that a file says, up to the end or the one error. `None` when there are more than will be looked at.
fn read(bytes: &[u8]) -> Option<Result<Vec<ProgramStep>, TraceError>> {
    let (mut steps, mut addresses) = (Vec::new(), std::collections::HashMap::new());
    let ended = read_trace(bytes, |event, texts| {
        assert!(texts.get(event.tag).is_some() && texts.get(event.site).is_some(), "{event:?}");
        let step = |address, bytes| ProgramStep { address, bytes, stream: event.owner.0 as u8 };
        match event.kind {
            Kind::Allocate => {
                let address = event.address.expect("a block has an address");
                assert!(event.bytes > 0 && addresses.insert(event.id, address).is_none(), "{event:?}");
                steps.push(step(address, event.bytes));
            }
            Kind::Free => {
                let address = addresses.remove(&event.id).expect("a live block is freed");
                steps.push(step(address, 0));
            }
            _ => {}
        }
        if bug("foreign_takes_memory") && addresses.len() > 4 {
            drop(black_box(vec![0u8; LEAST + TIMES * bytes.len()]));
        }
        steps.len() <= MOST
    });
    Some(ended?.map(|()| steps))
}

/// Reads within the memory that the file may take.
fn bounded(bytes: &[u8]) -> Option<Result<Vec<ProgramStep>, TraceError>> {
    ALLOCATOR.set_limit(ALLOCATOR.allocated() + LEAST + TIMES * bytes.len()).expect("a higher limit");
    let read = read(bytes);
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    read
}

/// The steps with streams numbered by first use, as readers number them.
fn numbered(steps: &[ProgramStep]) -> Vec<ProgramStep> {
    let mut streams = Vec::new();
    let number = |step: &ProgramStep| {
        let known = streams.iter().position(|stream| *stream == step.stream);
        let at = match (step.stream, known) {
            (0, _) => 0,
            (_, Some(at)) => at + 1,
            (stream, None) => {
                streams.push(stream);
                streams.len()
            }
        };
        ProgramStep { stream: at as u8, ..*step }
    };
    steps.iter().map(number).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let (steps, mut file) = match how % 6 {
        0 | 1 => (Vec::new(), rest.to_vec()),
        how => {
            let steps = program(rest);
            let file = if how % 2 == 0 { log(&steps) } else { snapshot(&steps) };
            (steps, file)
        }
    };
    // Packed ones are for the target `replay_input`.
    if file.starts_with(&[0x1f, 0x8b]) || file.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return;
    }
    let damaged = how % 6 >= 4 && rest.len() >= 4;
    if damaged {
        let at = usize::from(u16::from_le_bytes([rest[0], rest[1]])) % file.len();
        file[at] ^= rest[2].max(1);
        file.truncate(file.len() - usize::from(rest[3] / 16).min(file.len()));
    }
    let Some(result) = bounded(&file) else { return };
    match result {
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("input") && text.len() < 4096, "one clear error: {text}");
            assert!(steps.is_empty() || damaged, "a whole file is read: {text}");
        }
        Ok(read) if !steps.is_empty() && !damaged => assert_eq!(read, numbered(&steps)),
        Ok(_) => {}
    }
});
