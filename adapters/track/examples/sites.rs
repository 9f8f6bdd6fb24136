//! Prints a live block with the calls that led to it. Build ids and offsets need no symbols here.
//!
//! ```text
//! RUSTFLAGS="-C force-frame-pointers=yes" cargo run -p terrace-track --example sites
//! addr2line -f -i -e target/debug/examples/sites OFFSET
//! ```

use std::hint::black_box;
use terrace_track::{Stamp, TrackMode, Tracker, tag};

#[inline(never)]
fn load_layer(tracker: &Tracker, layer: u64) -> Stamp {
    black_box(tracker.allocated(0x7000_0000 + layer * 4096, 4096, 0))
}

#[inline(never)]
fn load_model(tracker: &Tracker) -> [Stamp; 2] {
    let _tag = tag("weights");
    black_box([load_layer(tracker, 0), load_layer(tracker, 1)])
}

fn main() {
    let tracker = Tracker::new("model", &["device 0"]);
    tracker.set_mode(TrackMode::Sites);
    let stamps = load_model(&tracker);
    print!("{}", tracker.live());
    for (layer, stamp) in stamps.into_iter().enumerate() {
        tracker.freed(stamp, 0x7000_0000 + layer as u64 * 4096, 4096);
    }
}
