//! What streams were given and have done, and whether two pieces of work may meet on the same bytes.

use super::State;
use super::clock::Clock;
use std::collections::VecDeque;

/// A stream.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Pieces of work put on it, and done.
    pub(super) issued: u64,
    pub(super) done: u64,
    /// Everything that comes before what is put on it next.
    pub(super) before: Clock,
    /// For each piece not done: what must be done first.
    needs: VecDeque<Clock>,
    pub(super) capturing: bool,
}

/// A place in a stream.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) stream: u64,
    /// Everything up to this piece of work,
    pub(super) work: u64,
    /// and what came before it, also on other streams.
    pub(super) before: Clock,
}

impl Line {
    /// The end of a stream as it is now.
    pub(super) fn mark(&self, stream: u64) -> Mark {
        Mark { stream, work: self.issued, before: self.before.clone() }
    }
}

/// Bytes that a piece of work uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    from: u64,
    to: u64,
    stream: u64,
    work: u64,
}

impl State {
    /// Puts a piece of work on a stream.
    pub(super) fn launch(&mut self, stream: u64, ranges: &[(u64, u64)]) {
        let seen = self.seen.clone();
        let Some(line) = self.lines.get_mut(&stream) else {
            self.broken.push(format!("work on stream {stream}, which does not exist"));
            return;
        };
        line.before.join(&seen);
        let before = line.before.clone();
        line.issued += 1;
        let work = line.issued;
        line.before.reach(stream, work);
        line.needs.push_back(before.clone());
        for &(from, bytes) in ranges {
            let access = Access { from, to: from + bytes, stream, work };
            if !self.ground.is_backed(from, bytes) {
                self.broken.push(format!("work {work} of stream {stream} uses {from:#x}, where there is no memory"));
            }
            let meets = |other: &&Access| other.from < access.to && access.from < other.to;
            if let Some(other) = self.accesses.iter().filter(meets).find(|other| other.work > before.get(other.stream))
            {
                let Access { stream: first, work: earlier, .. } = other;
                self.broken.push(format!(
                    "reuse before done: work {work} of stream {stream} and work {earlier} of stream {first} \
                     use {from:#x}, and nothing orders them"
                ));
            }
            self.accesses.push(access);
        }
    }

    /// Lets a stream do its next piece of work.
    pub(super) fn advance(&mut self, stream: u64) -> bool {
        let ready = self.lines.get(&stream).and_then(|line| line.needs.front()).is_some_and(|needs| {
            let done = |other| self.lines.get(&other).map_or(u64::MAX, |line| line.done);
            needs.iter().all(|(other, work)| other == stream || done(other) >= work)
        });
        if ready && let Some(line) = self.lines.get_mut(&stream) {
            line.needs.pop_front();
            line.done += 1;
        }
        ready
    }

    /// Lets everything be done up to a piece of work of a stream, and what it waits for.
    pub(super) fn finish(&mut self, stream: u64, work: u64) {
        while let Some(line) = self.lines.get(&stream).filter(|line| line.done < line.issued.min(work)) {
            let needs = line.needs.front().cloned().unwrap_or_default();
            for (other, work) in needs.iter().filter(|(other, _)| *other != stream) {
                self.finish(other, work);
            }
            if !self.advance(stream) {
                self.broken.push(format!("stream {stream} waits for itself"));
                return;
            }
        }
    }

    /// The host sees that a stream came this far, and with it all that had to be done before.
    pub(super) fn see(&mut self, mark: &Mark) {
        self.seen.join(&mark.before);
        self.seen.reach(mark.stream, mark.work);
        self.accesses.retain(|access| access.work > self.seen.get(access.stream));
    }

    /// Memory goes: nothing in flight may use it.
    pub(super) fn leave(&mut self, from: u64, bytes: u64) {
        let meets = |access: &&Access| access.from < from + bytes && from < access.to;
        if let Some(access) = self.accesses.iter().find(meets) {
            let Access { stream, work, .. } = access;
            self.broken.push(format!("{from:#x} goes while work {work} of stream {stream} may still use it"));
        }
    }
}
