//! Makes room in a tier for all that waits for it at once, and ahead of demand.
//!
//! The first request that waits has its room made by `queue` or `move_request`. For those behind it, and for as many
//! bytes as are granted in a sixteenth of the time between two ticks, the tier is emptied here, as far as buffers can leave
//! into free room of the next lower tier: so that a disk has many copies in flight, and a request that comes next finds
//! room. Nothing is granted here: requests keep their order.
//!
//! Cost: O(1) while neither many bytes come nor requests wait; else as a search for room.

use super::eviction::VictimSearch;
use super::queue::QueueState;
use super::types::Medium;
use super::{EventContext, EvictionCause, Ledger, Tier};

/// Number of waiting requests, and of waiting moves, for which room is made at once.
const WAITING: usize = 256;

/// The room made ahead is one part in this many of the bytes that come between two ticks: what comes in 16 ms at the
/// default interval of 250 ms, in which a disk completes several batches of writes.
const SHARE: u64 = 16;

/// Most room that is made ahead: one part in this many of the tier's capacity.
const MOST_AHEAD: u64 = 8;

/// At most one part in this many of the tier's capacity leaves at a time for requests behind the first.
const MOST_LEAVING: u64 = 2;

impl Ledger {
    /// Begins to evict buffers for the requests and moves that wait behind the first ones, and ahead of demand.
    pub(super) fn evict_ahead(&mut self, queue_state: QueueState, context: &mut EventContext<'_>) {
        for tier in self.all_tiers() {
            // A file tier keeps its clean copies: they make demotions from above free.
            if self.tiers[usize::from(tier)].medium == Medium::File {
                continue;
            }
            let wanted = self.waiting_bytes(tier, queue_state).saturating_add(self.headroom(tier));
            let state = &self.tiers[usize::from(tier)];
            let need = state.shortfall(wanted.min(state.capacity / MOST_LEAVING));
            if wanted == 0 || need == 0 || state.failed_ahead {
                continue;
            }
            let (requester, next_tier_only, spare_kept, spare_unused, single) = (None, true, true, true, false);
            let search = VictimSearch { tier, need, requester, next_tier_only, spare_kept, spare_unused, single };
            let plan = self.select_victims(search, context.lease_status);
            self.commit(tier, plan, EvictionCause::Ahead, context);
            let state = &mut self.tiers[usize::from(tier)];
            state.failed_ahead = state.shortfall(wanted.min(state.capacity / MOST_LEAVING)) > 0;
        }
    }

    /// Bytes of requests and moves that wait for room in a tier.
    fn waiting_bytes(&self, tier: Tier, queue_state: QueueState) -> u64 {
        let hint = self.queue.front().map(|first| first.hint.tier);
        let requests = self.queue.iter().take(WAITING).filter(|request| Some(request.hint.tier) == hint);
        let requests = requests.filter(|_| queue_state == QueueState::MakingRoom(tier)).map(|request| request.bytes);
        let moves = self.move_queues[1].iter().take(WAITING).filter_map(|id| {
            let buffer = &self.buffers[self.buffers.find(*id).ok()?];
            buffer.pending_move.filter(|request| request.to == tier).map(|_| buffer.bytes)
        });
        requests.chain(moves).map(|bytes| self.footprint(tier, bytes)).fold(0, u64::saturating_add)
    }

    /// Bytes to keep free in a tier, by the bytes that came to it lately.
    fn headroom(&self, tier: Tier) -> u64 {
        let state = &self.tiers[usize::from(tier)];
        let demand = state.demand[0].max(state.demand[1]);
        if demand < self.ahead_from { 0 } else { (demand / SHARE).min(state.capacity / MOST_AHEAD) }
    }
}
