//! Call sites and tags of a snapshot's entries, as texts.
//!
//! Promises upward: frames and metadata that entries share become a text once; texts are bounded.
//! Asks from below: the pickle as a tree; annotations in order of time.

use super::error::Problem;
use super::texts::Texts;
use super::tree::{ByteBudget, PickleTree, PickleValue};
use std::collections::HashMap;
use terrace_core::event::TEXT_MAX;

/// Frames that a call site names: from an operation of `torch.nn` through its module to the program's own function.
const FRAMES: usize = 4;
/// Frames that are looked at: those of C++ lie below Python's.
const FRAMES_MAX: usize = 128;
/// Bytes of a frame's text. Longer paths lose their beginning.
const FRAME_MAX: usize = 200;
/// Annotations open at a time that are remembered.
const OPEN_MAX: usize = 64;
/// Bytes that a node's number takes in the map, while that grows, and a text beside its characters.
const OVERHEAD: u64 = 128;

/// What was made of the nodes of a snapshot so far.
#[derive(Debug)]
pub(super) struct SnapshotTexts {
    /// Texts by the node that they were made of.
    texts: HashMap<u32, u32>,
    annotations: PickleValue,
    /// Number of annotations passed.
    passed: usize,
    /// Names of the annotations open.
    open: Vec<PickleValue>,
    device: i64,
}

impl SnapshotTexts {
    /// Nothing made yet.
    pub(super) fn new(tree: &PickleTree, device: usize) -> Self {
        let annotations = tree.get(tree.top, "external_annotations");
        Self { texts: HashMap::new(), annotations, passed: 0, open: Vec::new(), device: device as i64 }
    }

    /// The text of a call site.
    pub(super) fn site(
        &mut self,
        tree: &PickleTree,
        frames: PickleValue,
        texts: &mut Texts,
        budget: &mut ByteBudget,
    ) -> Result<u32, Problem> {
        self.text_of(frames, texts, budget, || site_of(tree, tree.list(frames)))
    }

    /// The text of a tag: what the program said, or else the innermost annotation open at this time.
    pub(super) fn tag(
        &mut self,
        tree: &PickleTree,
        said: PickleValue,
        now: i64,
        texts: &mut Texts,
        budget: &mut ByteBudget,
    ) -> Result<u32, Problem> {
        self.pass(tree, now);
        let said =
            if tree.text(said).is_some_and(|text| !text.is_empty()) { Some(said) } else { self.open.last().copied() };
        let Some(said) = said else { return Ok(0) };
        self.text_of(said, texts, budget, || cut(tree.text(said).unwrap_or(""), TEXT_MAX).into())
    }

    fn text_of(
        &mut self,
        value: PickleValue,
        texts: &mut Texts,
        budget: &mut ByteBudget,
        make: impl FnOnce() -> String,
    ) -> Result<u32, Problem> {
        let PickleValue::Node(node) = value else { return Ok(0) };
        if let Some(&text) = self.texts.get(&node) {
            return Ok(text);
        }
        let (text, known) = (make(), texts.len());
        budget.charge(OVERHEAD)?;
        let id = texts.intern(&text)?;
        if texts.len() > known {
            budget.charge(text.len() as u64 + OVERHEAD)?;
        }
        self.texts.insert(node, id);
        Ok(id)
    }

    /// Opens and closes the annotations up to a time.
    fn pass(&mut self, tree: &PickleTree, now: i64) {
        while let Some(&annotation) = tree.list(self.annotations).get(self.passed) {
            if tree.number(annotation, "time_us").is_none_or(|time| time > now) {
                return;
            }
            self.passed += 1;
            let name = tree.get(annotation, "name");
            if tree.number(annotation, "device").is_some_and(|device| device != self.device) {
                continue;
            }
            match tree.text(tree.get(annotation, "stage")) {
                Some("START") if self.open.len() < OPEN_MAX => self.open.push(name),
                Some("END") => {
                    let of_name = |open: &PickleValue| tree.text(*open) == tree.text(name);
                    if let Some(at) = self.open.iter().rposition(of_name) {
                        self.open.remove(at);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The innermost frames of Python, or where there are none, the named ones of C++.
fn site_of(tree: &PickleTree, frames: &[PickleValue]) -> String {
    let frames = &frames[..frames.len().min(FRAMES_MAX)];
    let text = |frame: &PickleValue, key| tree.text(tree.get(*frame, key)).unwrap_or("");
    // Calls of modules go through two functions that say nothing.
    let python = |frame: &&PickleValue| {
        let file = text(frame, "filename");
        let told = !matches!(text(frame, "name"), "_call_impl" | "_wrapped_call_impl");
        told && (file.ends_with(".py") || file.starts_with('<'))
    };
    // The recorder itself stands innermost.
    let named = |frame: &&PickleValue| {
        let name = text(frame, "name");
        !matches!(name, "" | "??") && !name.contains("torch::unwind") && !name.contains("CapturedTraceback")
    };
    let line = |frame: &PickleValue| {
        let (name, file) = (text(frame, "name"), text(frame, "filename"));
        let line = tree.number(*frame, "line").unwrap_or(0);
        format!("{} ({}:{line})", cut(name, FRAME_MAX), tail(file, FRAME_MAX))
    };
    let mut lines: Vec<String> = frames.iter().filter(python).take(FRAMES).map(line).collect();
    if lines.is_empty() {
        lines = frames
            .iter()
            .filter(named)
            .take(FRAMES)
            .map(|frame| cut(text(frame, "name"), FRAME_MAX).to_owned())
            .collect();
    }
    lines.join(" < ")
}

/// At most the first `max` bytes.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// At most the last `max` bytes.
fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}
