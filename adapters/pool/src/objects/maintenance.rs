//! What keeps a pool at its bounds: idle objects that go, and objects that are made ahead.
//!
//! Promises upward: the objects that were returned longest ago go first; nothing goes below `least`; an object that is used again
//! while this runs stays.
//! Asks from below: stamps of [`Places`](crate::places::Places), which order returns, and cost no clock.
//!
//! A stamp says in which order objects came back, not when. So maintenance notes the clock beside the latest stamp, and knows of
//! a stamp that it came before a time: an object has been idle at least since the first note above its stamp.

use super::error::ObjectError;
use super::inner::ObjectPoolState;
use super::stats::count;
use crate::places::ReturnStamp;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Notes within one retention time: an object stays a sixteenth of it longer at most.
const NOTES: u32 = 16;

/// Times at which maintenance ran, each with the latest stamp given until then.
#[derive(Debug, Default)]
pub struct History {
    notes: VecDeque<(Instant, ReturnStamp)>,
}

impl History {
    /// Notes that all stamps up to `latest` were given before `now`; returns the latest stamp that is older than `idle`.
    fn note(&mut self, now: Instant, latest: ReturnStamp, idle: Duration) -> Option<ReturnStamp> {
        let due = self.notes.back().is_none_or(|(last, _)| now.duration_since(*last) >= idle / NOTES);
        if due {
            self.notes.push_back((now, latest));
        }
        let old = |(time, _): &(Instant, ReturnStamp)| now.duration_since(*time) >= idle;
        while self.notes.len() > 1 && self.notes.get(1).is_some_and(old) {
            self.notes.pop_front();
        }
        self.notes.front().filter(|note| old(note)).map(|(_, stamp)| *stamp)
    }
}

/// What one maintenance did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Maintenance {
    /// Objects dropped because they were idle longer than the retention time.
    pub expired: u32,
    /// Objects dropped as the least recently used of more than `keep` idle ones.
    pub evicted: u32,
    /// Objects made, up to `least`.
    pub made: u32,
    /// Why fewer were made than were missing.
    pub failure: Option<ObjectError>,
}

impl<T> ObjectPoolState<T> {
    /// Drops what has expired and what is too much, and makes what is missing.
    pub fn maintain(&self) -> Maintenance {
        // Also where nothing expires: it orders what threads returned before against what they return after.
        let latest = self.places.tick();
        let expired = self.bounds.idle.map_or(0, |idle| {
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            let cutoff = history.note(Instant::now(), latest, idle);
            drop(history);
            let old = |stamp| cutoff.is_some_and(|cutoff| stamp <= cutoff);
            self.drop_oldest(u32::MAX, old, &self.counters.expired)
        });
        let evicted = self.trim_to(self.bounds.keep);
        let (made, failure) = self.make_missing();
        self.settle_if_asked();
        Maintenance { expired, evicted, made, failure }
    }

    /// Drops idle objects, the least recently used first, until at most `idle` are left.
    ///
    /// Returns how many it dropped.
    pub fn trim_to(&self, idle: u32) -> u32 {
        let surplus = self.places.idle_count().saturating_sub(idle);
        let evicted = if surplus == 0 { 0 } else { self.drop_oldest(surplus, |_| true, &self.counters.evicted) };
        self.settle_if_asked();
        evicted
    }

    /// Drops at most `count` of the idle objects whose stamps are `old`, in the order of their return; leaves `least`.
    fn drop_oldest(&self, most: u32, old: impl Fn(ReturnStamp) -> bool, counter: &AtomicU64) -> u32 {
        let mut idle = self.places.idle_slots();
        idle.retain(|&(stamp, _)| old(stamp));
        idle.sort_unstable();
        idle.truncate(most.min(self.places.existing().saturating_sub(self.bounds.least)) as usize);
        let mut dropped = 0;
        for slot in self.places.take_these(&idle) {
            count(counter);
            self.drop_idle(slot);
            dropped += 1;
        }
        dropped
    }

    /// Makes objects until `least` exist.
    pub(super) fn make_missing(&self) -> (u32, Option<ObjectError>) {
        let mut made = 0;
        while self.places.existing() < self.bounds.least && !self.places.is_closed() {
            let Some(slot) = self.places.take_vacant() else { break };
            match self.fill(slot) {
                Ok(()) => made += 1,
                Err(failure) => return (made, Some(failure)),
            }
        }
        (made, None)
    }
}
