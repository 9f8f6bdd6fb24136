//! The format of speedscope: live bytes by tag and call site, at the peak and at the end.
//!
//! Promises upward: <https://www.speedscope.app> opens it: two profiles, weights in bytes.
//! Asks from below: sums by call site. The format: <https://www.speedscope.app/file-format-schema.json>.

use super::{frames, sums};
use crate::trace_report::data::TraceData;
use crate::trace_report::trace::Trace;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The file's text.
pub fn speedscope(trace: &Trace, data: &TraceData) -> Vec<u8> {
    let (mut names, mut numbers) = (Vec::new(), HashMap::new());
    let peak = data.timeline.live_bytes.iter().position(|live| *live == data.peak_live_bytes);
    let peak = peak.map_or(trace.events.len(), |at| data.timeline.event[at] as usize + 1);
    let mut profile = |name: &str, events: usize| -> Value {
        let mut live: Vec<_> = sums(trace, events).into_iter().filter(|(_, sum)| sum.live_bytes > 0).collect();
        live.sort_by_key(|(stack, _)| *stack);
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for (stack, sum) in live {
            let numbered = frames(trace, stack).into_iter().map(|frame| {
                *numbers.entry(frame.clone()).or_insert_with(|| {
                    names.push(json!({"name": frame}));
                    names.len() - 1
                })
            });
            samples.push(numbered.collect::<Vec<_>>());
            weights.push(sum.live_bytes);
        }
        let end: u64 = weights.iter().sum();
        json!({"type": "sampled", "name": name, "unit": "bytes", "startValue": 0, "endValue": end, "samples": samples, "weights": weights})
    };
    let profiles = [profile("live at the peak", peak), profile("live at the end", trace.events.len())];
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": format!("terrace {}", env!("CARGO_PKG_VERSION")),
        "name": data.name,
        "activeProfileIndex": 0,
        "shared": {"frames": names},
        "profiles": profiles,
    });
    let mut text = file.to_string().into_bytes();
    text.push(b'\n');
    text
}
