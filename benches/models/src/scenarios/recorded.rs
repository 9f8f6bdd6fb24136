//! Scenarios out of recordings.
//!
//! Promises upward: a recording's steps in its order; a resized block is a new one, allocated before the old one goes, since
//! device memory is not resized.
//! Asks from below: checked events, each with its slot, as a reader of recordings gives them.

use super::{Scenario, Step};
use std::collections::HashMap;
use terrace_core::event::{Event, Kind};

impl Scenario {
    /// What was recorded, but blocks of less than `least` bytes: on a device those scalars would not be allocated.
    ///
    /// # Example
    /// ```
    /// use terrace_core::event::{Event, Kind};
    /// use terrace_models::scenarios::Scenario;
    /// let event = |kind, bytes| Event { kind, bytes, ..Event::default() };
    /// let events = [(event(Kind::Allocate, 4096), Some(0)), (event(Kind::Allocate, 8), Some(1)), (event(Kind::Free, 0), Some(0))];
    /// assert_eq!(Scenario::recorded("example", 17, events).steps.len(), 2);
    /// ```
    pub fn recorded(
        name: impl Into<String>,
        least: u64,
        events: impl IntoIterator<Item = (Event, Option<u32>)>,
    ) -> Self {
        let mut places = Places::default();
        let mut steps = Vec::new();
        for (event, slot) in events {
            let Some(block) = slot else { continue };
            let (bytes, stream) = (event.bytes, event.owner.0);
            match event.kind {
                Kind::Allocate if bytes >= least => {
                    steps.push(Step::Allocate { slot: places.fill(block), bytes, stream: places.stream(stream) });
                }
                Kind::Reallocate => {
                    let Some(old) = places.take(block) else { continue };
                    steps.push(Step::Allocate { slot: places.fill(block), bytes, stream: places.stream(stream) });
                    steps.push(Step::Free { slot: old });
                    places.empty.push(old);
                }
                Kind::Free => {
                    let Some(old) = places.take(block) else { continue };
                    steps.push(Step::Free { slot: old });
                    places.empty.push(old);
                }
                _ => {}
            }
        }
        Self::new(name, steps)
    }
}

/// Which slot holds which block of the recording, and which stream is whose.
#[derive(Default)]
struct Places {
    /// By the recording's slot.
    of: Vec<Option<u32>>,
    /// Slots of the scenario that are empty.
    empty: Vec<u32>,
    /// Slots so far.
    count: u32,
    streams: HashMap<u32, u32>,
}

impl Places {
    fn fill(&mut self, block: u32) -> u32 {
        let slot = self.empty.pop().unwrap_or(self.count);
        self.count = self.count.max(slot + 1);
        self.of.resize(self.of.len().max(block as usize + 1), None);
        self.of[block as usize] = Some(slot);
        slot
    }

    fn take(&mut self, block: u32) -> Option<u32> {
        self.of.get_mut(block as usize)?.take()
    }

    fn stream(&mut self, owner: u32) -> u32 {
        let next = self.streams.len() as u32;
        *self.streams.entry(owner).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::Owner;

    #[test]
    fn a_resize_is_a_new_block_and_streams_are_dense() {
        let event = |kind, bytes, owner| Event { kind, bytes, owner: Owner(owner), ..Event::default() };
        let events = [
            (event(Kind::Allocate, 100, 7), Some(0)),
            (event(Kind::Reallocate, 200, 9), Some(0)),
            (event(Kind::Free, 0, 9), Some(0)),
            (event(Kind::Allocate, 300, 7), Some(0)),
        ];
        let scenario = Scenario::recorded("resized", 1, events);
        assert_eq!(
            scenario.steps,
            [
                Step::Allocate { slot: 0, bytes: 100, stream: 0 },
                Step::Allocate { slot: 1, bytes: 200, stream: 1 },
                Step::Free { slot: 0 },
                Step::Free { slot: 1 },
                Step::Allocate { slot: 1, bytes: 300, stream: 0 },
            ]
        );
        assert_eq!((scenario.peak, scenario.slots, scenario.streams), (300, 2, 2));
    }
}
