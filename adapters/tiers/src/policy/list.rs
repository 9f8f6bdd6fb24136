//! Doubly linked lists over one table of nodes; each id is in at most one list.
//!
//! Promises upward: every call is O(1) but one `begin_round` in 2^32; only an id higher than any before allocates
//! memory.
//! Asks from below: nothing.
//!
//! Invariants: a node's `list` is the list it is in, or [`NO_LIST`]; `bytes` and `len` of a list are the sums over its
//! nodes; the links of a node in no list are meaningless.

/// No node.
const NONE: u32 = u32::MAX;
const NO_LIST: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The neighbour towards the front, which was inserted later; `NONE` at the front.
    newer: u32,
    /// The neighbour towards the back, which was inserted earlier; `NONE` at the back.
    older: u32,
    bytes: u64,
    list: u8,
    /// Number of uses that the policy has counted.
    uses: u8,
    /// The round in which the node was last marked as visited; 0 for none.
    visited: u32,
}

/// Bytes that a policy's table takes for each member.
pub(crate) const NODE_BYTES: usize = size_of::<Node>();

const EMPTY: Node = Node { newer: NONE, older: NONE, bytes: 0, list: NO_LIST, uses: 0, visited: 0 };

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
    len: usize,
    bytes: u64,
}

/// `N` lists over one table.
#[derive(Debug)]
pub(super) struct Lists<const N: usize> {
    nodes: Vec<Node>,
    ends: [Ends; N],
    /// Number of the current round, from 1 on.
    round: u32,
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Self {
        Self { nodes: Vec::new(), ends: [Ends { front: NONE, back: NONE, len: 0, bytes: 0 }; N], round: 0 }
    }
}

impl<const N: usize> Lists<N> {
    /// Returns the list that an id is in, if any.
    pub(super) fn list(&self, id: u32) -> Option<usize> {
        let node = self.nodes.get(id as usize)?;
        (node.list != NO_LIST).then_some(node.list as usize)
    }

    /// Inserts an id that is in no list at the front of a list, with no uses.
    pub(super) fn push_front(&mut self, list: usize, id: u32, bytes: u64) {
        self.push(list, id, bytes, true);
    }

    /// Inserts an id that is in no list at the back of a list, with no uses.
    pub(super) fn push_back(&mut self, list: usize, id: u32, bytes: u64) {
        self.push(list, id, bytes, false);
    }

    fn push(&mut self, list: usize, id: u32, bytes: u64, front: bool) {
        if self.nodes.len() <= id as usize {
            self.nodes.resize(id as usize + 1, EMPTY);
        }
        let ends = self.ends[list];
        let (newer, older) = if front { (NONE, ends.front) } else { (ends.back, NONE) };
        self.nodes[id as usize] = Node { newer, older, bytes, list: list as u8, uses: 0, visited: 0 };
        self.link(list, newer, older, id, id);
        self.ends[list].len += 1;
        self.ends[list].bytes += bytes;
    }

    /// Removes an id from its list and returns the id's bytes; `None` if it is in no list.
    pub(super) fn remove(&mut self, id: u32) -> Option<u64> {
        let list = self.list(id)?;
        let Node { newer, older, bytes, .. } = self.nodes[id as usize];
        self.link(list, newer, older, older, newer);
        self.nodes[id as usize].list = NO_LIST;
        self.ends[list].len -= 1;
        self.ends[list].bytes -= bytes;
        Some(bytes)
    }

    /// Links `after` as the neighbour behind `newer`, and `before` as the one in front of `older`. Where `newer` or
    /// `older` is `NONE`, links it as the front or the back of the list.
    fn link(&mut self, list: usize, newer: u32, older: u32, after: u32, before: u32) {
        match newer {
            NONE => self.ends[list].front = after,
            _ => self.nodes[newer as usize].older = after,
        }
        match older {
            NONE => self.ends[list].back = before,
            _ => self.nodes[older as usize].newer = before,
        }
    }

    /// The id at the back: the oldest.
    pub(super) fn back(&self, list: usize) -> Option<u32> {
        Some(self.ends[list].back).filter(|id| *id != NONE)
    }

    /// The neighbour of an id towards the front.
    pub(super) fn newer(&self, id: u32) -> Option<u32> {
        Some(self.nodes[id as usize].newer).filter(|id| *id != NONE)
    }

    /// Uses of an id that is in a list.
    pub(super) fn uses(&mut self, id: u32) -> &mut u8 {
        &mut self.nodes[id as usize].uses
    }

    /// Begins a round in which no member is visited yet. When the round's number wraps, after 2^32 rounds, all nodes
    /// are reset, so that no old visit counts for a new round.
    pub(super) fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.nodes.iter_mut().for_each(|node| node.visited = 0);
            self.round = 1;
        }
    }

    /// Marks an id in a list as visited.
    pub(super) fn mark_visited(&mut self, id: u32) {
        self.nodes[id as usize].visited = self.round;
    }

    /// Whether an id was marked as visited in the current round.
    pub(super) fn is_visited(&self, id: u32) -> bool {
        self.nodes[id as usize].visited == self.round
    }

    /// Number of ids in a list and their total bytes.
    pub(super) fn totals(&self, list: usize) -> (usize, u64) {
        (self.ends[list].len, self.ends[list].bytes)
    }
}
