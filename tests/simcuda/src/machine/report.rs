//! What callers did wrong.
//!
//! Upward: one line each, `kind: what happened, with addresses, streams and operations`, oldest first.

/// Kinds of wrong use. The word begins the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An operation on memory that was freed or unmapped.
    UseAfterFree,
    /// Memory of a stream-ordered allocation used where the allocation may not be done.
    UseBeforeAllocation,
    /// Memory freed or unmapped while an operation on it may still run.
    FreeWhilePending,
    /// A call for an object of another context or device.
    WrongContext,
    /// An operation past the ends of its memory.
    OutOfBounds,
    /// An access that `cuMemSetAccess` or its like did not allow.
    NoAccess,
    /// Something freed, unmapped or released again.
    DoubleFree,
    /// A handle that is destroyed, of another kind, or invented.
    BadHandle,
    /// Two operations touch the same bytes, one writes, and neither comes before the other.
    Race,
    /// The host waited for streams that are held.
    HeldTooLong,
}

impl Fault {
    fn word(self) -> &'static str {
        match self {
            Fault::UseAfterFree => "use-after-free",
            Fault::UseBeforeAllocation => "use-before-allocation",
            Fault::FreeWhilePending => "free-while-pending",
            Fault::WrongContext => "wrong-context",
            Fault::OutOfBounds => "out-of-bounds",
            Fault::NoAccess => "no-access",
            Fault::DoubleFree => "double-free",
            Fault::BadHandle => "bad-handle",
            Fault::Race => "race",
            Fault::HeldTooLong => "held-too-long",
        }
    }
}

/// So many lines say enough; those past it are counted.
const LINES: usize = 200;

/// The findings so far.
#[derive(Default)]
pub struct Report {
    lines: Vec<String>,
    /// Findings past [`LINES`].
    more: usize,
}

impl Report {
    /// Enters a finding.
    pub fn add(&mut self, fault: Fault, text: impl AsRef<str>) {
        if self.lines.len() < LINES {
            self.lines.push(format!("{}: {}", fault.word(), text.as_ref()));
        } else {
            self.more += 1;
        }
    }

    /// All findings, a line each.
    pub fn text(&self) -> String {
        let mut text = self.lines.join("\n");
        if self.more > 0 {
            text.push_str(&format!("\nand {} more", self.more));
        }
        text
    }
}
