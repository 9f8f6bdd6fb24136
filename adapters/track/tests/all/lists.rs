//! What lists print, and what they are as JSON.

use std::time::Duration;
use terrace_track::{LiveList, StackFrame, TrackMode, TrackedBlock, Tracker, tag};

fn list() -> LiveList {
    let frame = StackFrame { build_id: Some("ab12".into()), file: Some("/bin/program".into()), offset: 0x1234 };
    let block = TrackedBlock {
        id: 7,
        key: 0x7f00_0000,
        bytes: 4096,
        age: Duration::from_millis(1500),
        tag: "kv\x1b[2J".into(),
        location: "device 0".into(),
        stack: vec![frame],
    };
    let resolution = Duration::from_millis(4);
    LiveList { name: "pool".into(), blocks: vec![block], resolution, unrecorded: 0 }
}

#[test]
fn a_list_prints_as_a_table_without_control_characters() {
    let said = list().to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "pool: 1 live block, 4096 bytes; ages in steps of 4ms");
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(words, ["1.500s", "4096", "kv\u{fffd}[2J", "device", "0", "0x7f000000", "7"]);
    assert_eq!(lines[3].trim(), "at ab12+0x1234 (/bin/program)");
    assert_eq!(LiveList::default().to_string(), ": 0 live blocks, 0 bytes\n");
}

#[test]
fn a_table_of_tags_has_a_row_for_each_and_one_for_all() {
    let tracker = Tracker::new("pool", &["device 0"]);
    tracker.set_mode(TrackMode::Counters);
    let _ = tracker.allocated(1, 10, 0);
    let _tag = tag("a row");
    let _ = tracker.allocated(2, 32, 0);
    let said = tracker.by_tag().to_string();
    let rows: Vec<Vec<&str>> = said.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["a", "row", "32", "32", "32", "1", "0"]);
    assert_eq!(rows[1], ["(no", "tag)", "10", "10", "10", "1", "0"]);
    assert_eq!(rows[2], ["all", "42", "42", "42", "2", "0"]);
}

#[test]
fn a_place_of_its_own_is_asked_for_when_the_list_is_made() {
    let moved = |key| (key == 1).then(|| String::from("elsewhere"));
    let tracker = Tracker::new("pool", &["first", "second"]).locate_by(moved);
    tracker.set_mode(TrackMode::Records);
    let _ = (tracker.allocated(1, 10, 0), tracker.allocated(2, 10, 1));
    let mut live = tracker.live();
    live.blocks.sort_by_key(|block| block.key);
    let places: Vec<&str> = live.blocks.iter().map(|block| &*block.location).collect();
    assert_eq!(places, ["elsewhere", "second"]);
}

#[cfg(feature = "serde")]
#[test]
fn lists_are_json_and_back() {
    let text = serde_json::to_string(&list()).expect("plain values");
    assert_eq!(serde_json::from_str::<LiveList>(&text).ok(), Some(list()));
    assert!(text.contains("\"location\":\"device 0\"") && text.contains("\"build_id\":\"ab12\""), "{text}");
}
