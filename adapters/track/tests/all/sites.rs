//! Call sites: build ids and offsets that lead to the function that asked.

use object::{Object, ObjectSymbol};
use std::hint::black_box;
use terrace_track::{StackFrame, Stamp, TrackMode, Tracker};

#[inline(never)]
fn asks_for_memory(tracker: &Tracker) -> Stamp {
    black_box(tracker.allocated(black_box(0x1000), 64, 0))
}

/// The function of this program that has a frame's address.
fn function_of(file: &object::File<'_>, frame: &StackFrame) -> Option<String> {
    let around =
        |symbol: &object::Symbol<'_, '_>| (symbol.address()..symbol.address() + symbol.size()).contains(&frame.offset);
    file.symbols().find(around)?.name().ok().map(String::from)
}

#[test]
fn the_first_frame_is_the_function_that_asked() {
    let tracker = Tracker::new("sites", &["memory"]);
    tracker.set_mode(TrackMode::Sites);
    let stamp = asks_for_memory(&tracker);
    let live = tracker.live();
    tracker.freed(stamp, 0x1000, 64);
    let program = std::env::current_exe().expect("this program");
    let bytes = std::fs::read(&program).expect("this program's file");
    let file = object::File::parse(&*bytes).expect("this program is an object file");
    let build_id = file
        .build_id()
        .expect("notes can be read")
        .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let first = live.blocks[0].stack.first().expect("a caller");
    assert_eq!(first.build_id, build_id, "{first}");
    assert_eq!(first.file.as_deref(), program.to_str());
    let function = function_of(&file, first);
    assert!(function.as_ref().is_some_and(|name| name.contains("asks_for_memory")), "{first}: {function:?}");
    if let Some(id) = build_id {
        assert_eq!(first.to_string(), format!("{id}+{:#x} ({})", first.offset, program.display()));
    }
}

#[test]
fn equal_call_stacks_are_one_and_depths_are_kept() {
    let tracker = Tracker::new("sites", &["memory"]);
    tracker.set_mode(TrackMode::Sites);
    tracker.set_site_depth(1);
    let stamps = [1, 2].map(|key| tracker.allocated(key, 64, 0));
    let live = tracker.live();
    assert!(live.blocks.iter().all(|block| block.stack.len() == 1), "{live}");
    tracker.set_mode(TrackMode::Records);
    let without = tracker.allocated(3, 64, 0);
    assert!(tracker.live().blocks.iter().any(|block| block.key == 3 && block.stack.is_empty()));
    [1, 2].into_iter().zip(stamps).for_each(|(key, stamp)| tracker.freed(stamp, key, 64));
    tracker.freed(without, 3, 64);
}
