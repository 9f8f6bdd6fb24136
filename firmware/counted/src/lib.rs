//! Workloads and programs for heaps, each call counted by the board itself: the emulator's clock goes on by the same time
//! with each instruction (QEMU's `-icount`), so a clock that is read before and after a call counts its instructions.
//!
//! Promises upward: exact, as the two functions of known length show, which a host asks for first: `nothing` takes 2
//! instructions, the call and the return, `ten` takes 12. A host asks line by line, see [`answer`].
//! Asks from below: [`Clock`]; one core, one call at a time.
#![no_std]

mod peers;
mod timed;
mod wide;
mod works;

use core::fmt::{self, Write};
use core::ptr::NonNull;

use measure::calls::{BOUNDED, Calls, FAST, SMALL};
use measure::programs::Run;

use timed::Timed;
pub use timed::{Clock, Known};

/// Memory that every heap gets in turn.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Its first byte.
    pub start: NonNull<u8>,
    /// How many.
    pub bytes: usize,
}

/// The most memory with 16 bits for a granule of 8 bytes.
const NARROW: usize = 1 << 19;

/// A heap that can be asked for.
struct Heap {
    calls: Calls,
    /// The most memory that it can have.
    most: usize,
}

/// Answers a line: `mean HEAP WORK BYTES`, a workload in so many bytes, with `INSTRUCTIONS CALLS REFUSED`; `call HEAP
/// PROGRAM` with `INSTRUCTIONS OUTCOME 0` of the program's last call, where the outcome is that of
/// `tests/src/steps/program.rs`: 0 passed over, 1 done, 2 refused, 3 the heap's own check failed. A program's memory is as
/// much of what it names as there is, and the heap can have. What makes no sense is answered with `?`.
///
/// # Errors
/// Those of `out`.
///
/// # Safety
/// The memory is for heaps alone.
pub unsafe fn answer<C: Clock>(line: &str, memory: Memory, known: &Known, out: &mut impl Write) -> fmt::Result {
    let mut words = line.splitn(3, ' ');
    let numbers = match [words.next(), words.next(), words.next()] {
        // SAFETY: the caller's promise.
        [Some("mean"), Some(heap), Some(work)] => unsafe { mean::<C>(heap, work, memory, known) },
        // SAFETY: the caller's promise.
        [Some("call"), Some(heap), Some(program)] => unsafe { last_call::<C>(heap, program, memory, known) },
        _ => None,
    };
    match numbers {
        Some([first, second, third]) => writeln!(out, "{first} {second} {third}"),
        None => writeln!(out, "?"),
    }
}

/// The heaps by name, and the functions of known length.
fn named(name: &str, known: &Known) -> Option<Heap> {
    let calls = match name {
        "fast" => FAST,
        "bounded" => BOUNDED,
        "small" => SMALL,
        "fast-wide" => wide::FAST,
        "bounded-packed" => wide::BOUNDED,
        "rlsf" => peers::RLSF,
        "talc" => peers::TALC,
        "nothing" => known.nothing,
        "ten" => known.ten,
        _ => return None,
    };
    let most = if matches!(name, "fast" | "bounded" | "small") { NARROW } else { usize::MAX };
    Some(Heap { calls, most })
}

/// # Safety
/// The memory is for heaps alone.
unsafe fn mean<C: Clock>(heap: &str, work: &str, memory: Memory, known: &Known) -> Option<[u64; 3]> {
    let Heap { calls, most } = named(heap, known)?;
    let (work, bytes) = work.split_once(' ')?;
    let bytes = bytes.parse::<usize>().ok().filter(|&bytes| bytes <= most.min(memory.bytes))?;
    // SAFETY: the caller's promise.
    let fresh = unsafe { (calls.fresh)(memory.start, bytes) };
    let sums = works::run(work, bytes, Timed::<C>::new(calls, known))?;
    (fresh && (calls.sound)()).then_some([sums.instructions, sums.calls, sums.refused])
}

/// # Safety
/// The memory is for heaps alone.
unsafe fn last_call<C: Clock>(heap: &str, program: &str, memory: Memory, known: &Known) -> Option<[u64; 3]> {
    let Heap { calls, most } = named(heap, known)?;
    let (arena, program) = program.split_once(" B:")?;
    let bytes = arena.parse::<usize>().ok()?.min(memory.bytes).min(most);
    // SAFETY: the caller's promise. A heap that has no use for so few bytes refuses every request.
    unsafe { (calls.fresh)(memory.start, bytes) };
    let mut run = Run::new(Timed::<C>::new(calls, known));
    let (before, last) = program.trim_end().rsplit_once(' ')?;
    before.split_whitespace().for_each(|call| {
        run.call(call);
    });
    run.caller.start();
    let granted = run.call(last);
    let count = run.caller.last();
    let outcome = match granted {
        _ if !(calls.sound)() => 3,
        None => 0,
        Some(true) => 1,
        Some(false) => 2,
    };
    Some([count.into(), outcome, 0])
}
