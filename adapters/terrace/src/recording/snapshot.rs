//! A snapshot of PyTorch's memory as events: `torch.cuda.memory._snapshot()`, as `_dump_snapshot` pickles it.
//!
//! Promises upward: the history of one device in its order; blocks that lived before the history begins come first, so that live
//! bytes are PyTorch's own at every moment.
//! Asks from below: the pickle as a tree; a budget for what is built beside it.
//!
//! | entry of the history | event |
//! | --- | --- |
//! | `alloc`, `free_requested` | allocation (the bytes asked for), free; streams are numbered by first use |
//! | `segment_alloc`, `segment_free`, `segment_map`, `segment_unmap` | the same of a segment |
//! | `oom`, `snapshot`, `annotate`, `user_defined` | a mark |
//! | `free_completed` | none: the block was freed when that was requested |
//!
//! The call site is the innermost Python frames, the tag what `_set_memory_metadata` said or else the innermost annotation open.
//!
//! **Blocks from before.** A history begins when recording is switched on, or when its ring of `max_entries` was full, and blocks
//! are live by then: those whose free it has without an allocation, and those live at the end that it never names. They are
//! allocated at the first moment, by address, with the tag `live`. To leave them out would make every peak too low by the weights
//! of the model; PyTorch's own viewer draws them likewise.

use super::blocks::AddressTable;
use super::error::Problem;
use super::sites::SnapshotTexts;
use super::texts::Texts;
use super::tree::{ByteBudget, PickleTree, PickleValue};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;
use terrace_core::event::{Event, Kind};

/// Alignment of every block of PyTorch.
const ALIGN: u64 = 512;
/// The tag of blocks from before the history.
const BEFORE: &str = "live";
/// Bytes that an address takes in a set, while that grows.
const ADDRESS: u64 = 64;

/// A block from before the history.
#[derive(Debug)]
struct EarlierBlock {
    address: u64,
    bytes: u64,
    stream: u64,
    frames: PickleValue,
}

/// The events of a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotReader {
    tree: PickleTree,
    budget: ByteBudget,
    /// The device's number, and its history.
    number: usize,
    history: PickleValue,
    /// Number of its entries that were read.
    pub(super) read: usize,
    /// Blocks from before, which come first.
    earlier: VecDeque<EarlierBlock>,
    earlier_count: usize,
    /// The allocation whose address another block had: its free comes first.
    next: Option<Event>,
    blocks: AddressTable,
    /// Numbers of segments and mapped ranges, by address.
    segments: HashMap<u64, u64>,
    sites: SnapshotTexts,
    begin: Option<i64>,
    time_us: u64,
    /// Entries of kinds that are not known here.
    unknown: u64,
}

/// The histories that are not empty, with the numbers of their devices.
fn histories(tree: &PickleTree) -> impl Iterator<Item = (usize, PickleValue)> {
    let all = tree.list(tree.get(tree.top, "device_traces")).iter().copied().enumerate();
    all.filter(|(_, history)| !tree.list(*history).is_empty())
}

impl SnapshotReader {
    /// The events of a device, or of the first that has a history.
    pub(super) fn new(tree: PickleTree, budget: ByteBudget, device: Option<u32>) -> Result<Self, Problem> {
        if !tree.is_dict(tree.top) {
            return Err(Problem::NoSnapshot("dictionary"));
        }
        let with = || histories(&tree);
        let found = match device {
            None => with().next(),
            Some(device) => with().find(|(at, _)| *at == device as usize),
        };
        let Some((number, history)) = found else {
            return Err(Problem::NoHistory(device, with().map(|(at, _)| at).take(64).collect()));
        };
        let mut reader = Self {
            sites: SnapshotTexts::new(&tree, number),
            tree,
            budget,
            number,
            history,
            read: 0,
            earlier: VecDeque::new(),
            earlier_count: 0,
            next: None,
            blocks: AddressTable::default(),
            segments: HashMap::new(),
            begin: None,
            time_us: 0,
            unknown: 0,
        };
        reader.find_earlier(number as i64)?;
        Ok(reader)
    }

    /// The devices that have a history.
    pub(super) fn devices(&self) -> Vec<u32> {
        histories(&self.tree).map(|(number, _)| number as u32).collect()
    }

    /// Says what was left out and added.
    pub(super) fn remark(&self, text: &mut String) {
        if self.earlier_count > 0 {
            let _ =
                write!(text, "{} blocks from before the history are allocated at its beginning; ", self.earlier_count);
        }
        let others: Vec<u32> = self.devices().into_iter().filter(|number| *number as usize != self.number).collect();
        if !others.is_empty() {
            let _ = write!(text, "the histories of devices {others:?} are left out; ");
        }
        self.blocks.remark(text);
        if self.unknown > 0 {
            let _ = write!(text, "{} entries of kinds unknown here are left out; ", self.unknown);
        }
    }

    /// The next event; `None` at the end.
    pub(super) fn next(&mut self, texts: &mut Texts) -> Result<Option<Event>, Problem> {
        if let Some(event) = self.next.take() {
            return Ok(Some(event));
        }
        if let Some(block) = self.earlier.pop_front() {
            let site = self.sites.site(&self.tree, block.frames, texts, &mut self.budget)?;
            let (event, tag) = (Event { site, ..Event::default() }, texts.intern(BEFORE)?);
            return self.allocate(Event { tag, ..event }, &block).map(Some);
        }
        loop {
            let Some(&entry) = self.tree.list(self.history).get(self.read) else { return Ok(None) };
            self.read += 1;
            if let Some(event) = self.event(entry, texts)? {
                return Ok(Some(event));
            }
        }
    }

    /// The event of an entry; `None` for one that says nothing new.
    fn event(&mut self, entry: PickleValue, texts: &mut Texts) -> Result<Option<Event>, Problem> {
        let (tree, budget) = (&self.tree, &mut self.budget);
        let action = tree.text(tree.get(entry, "action")).ok_or(Problem::NoSnapshot("action in an entry"))?;
        // Before 2.2 entries have no time: they are a microsecond apart.
        let now = tree.number(entry, "time_us").unwrap_or(self.read as i64);
        let begin = *self.begin.get_or_insert(now);
        self.time_us = self.time_us.max(u64::try_from(now.saturating_sub(begin)).unwrap_or(0));
        let number = |key| tree.number(entry, key).map_or(0, |number| number as u64);
        let (address, bytes, stream) = (number("addr"), number("size"), number("stream"));
        let segment = match action {
            "alloc" | "free_requested" => None,
            "segment_alloc" => Some(Kind::Take),
            "segment_free" => Some(Kind::GiveBack),
            "segment_map" => Some(Kind::Map),
            "segment_unmap" => Some(Kind::Unmap),
            "oom" | "snapshot" | "annotate" | "user_defined" => Some(Kind::Mark),
            "free_completed" => return Ok(None),
            _ => {
                self.unknown += 1;
                return Ok(None);
            }
        };
        let frames = tree.get(entry, "frames");
        let site = self.sites.site(tree, frames, texts, budget)?;
        let said = tree.get(entry, "user_metadata");
        let tag = self.sites.tag(tree, said, now, texts, budget)?;
        let event = Event { time_us: self.time_us, site, tag, ..Event::default() };
        match segment {
            None if action == "alloc" => {
                self.allocate(event, &EarlierBlock { address, bytes, stream, frames }).map(Some)
            }
            None => Ok(self.blocks.free(address).map(|id| Event {
                kind: Kind::Free,
                id,
                address: Some(address),
                owner: self.blocks.owner(stream),
                ..event
            })),
            Some(Kind::Mark) => {
                let tag = if event.tag == 0 || action == "oom" { texts.intern(action)? } else { event.tag };
                Ok(Some(Event { kind: Kind::Mark, bytes, tag, ..event }))
            }
            Some(kind) => {
                budget.charge(ADDRESS)?;
                let next = self.segments.len() as u64;
                let id = *self.segments.entry(address).or_insert(next);
                let owner = self.blocks.owner(stream);
                Ok(Some(Event { kind, id, address: Some(address), bytes, owner, ..event }))
            }
        }
    }

    /// The allocation of a block; the free of the block before it, where the history lost that.
    fn allocate(&mut self, event: Event, block: &EarlierBlock) -> Result<Event, Problem> {
        self.budget.charge(AddressTable::BLOCK)?;
        let (id, old) = self.blocks.allocate(block.address);
        let owner = self.blocks.owner(block.stream);
        let address = Some(block.address);
        let new = Event { kind: Kind::Allocate, id, address, bytes: block.bytes, align: ALIGN, owner, ..event };
        Ok(match old {
            None => new,
            Some(old) => {
                self.next = Some(new);
                Event { kind: Kind::Free, id: old, bytes: 0, align: 0, ..new }
            }
        })
    }

    /// Finds the blocks from before the history: see the [module](self).
    fn find_earlier(&mut self, device: i64) -> Result<(), Problem> {
        let (tree, budget) = (&self.tree, &mut self.budget);
        let (mut seen, mut earlier) = (HashSet::new(), Vec::new());
        let block = |of, key, bytes, stream: Option<i64>| {
            Some(EarlierBlock {
                address: tree.number(of, key)? as u64,
                bytes: u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)?,
                stream: stream.unwrap_or(0) as u64,
                frames: PickleValue::Nothing,
            })
        };
        for &entry in tree.list(self.history) {
            let freed = match tree.text(tree.get(entry, "action")) {
                Some("alloc") => false,
                Some("free_requested") => true,
                _ => continue,
            };
            let bytes = tree.number(entry, "size").unwrap_or(0);
            let Some(found) = block(entry, "addr", bytes, tree.number(entry, "stream")) else { continue };
            budget.charge(ADDRESS)?;
            if seen.insert(found.address) && freed {
                budget.charge(AddressTable::BLOCK)?;
                earlier.push(found);
            }
        }
        for &segment in tree.list(tree.get(tree.top, "segments")) {
            if tree.number(segment, "device").unwrap_or(0) != device {
                continue;
            }
            let mut at = tree.number(segment, "address").unwrap_or(0);
            for &part in tree.list(tree.get(segment, "blocks")) {
                // Before 2.1 blocks have no address: they lie one behind the other.
                let address = tree.number(part, "address").unwrap_or(at) as u64;
                let size = tree.number(part, "size").unwrap_or(0);
                at = at.saturating_add(size);
                let live = tree.text(tree.get(part, "state")) == Some("active_allocated");
                budget.charge(ADDRESS)?;
                if !live || !seen.insert(address) {
                    continue;
                }
                let bytes = tree.number(part, "requested_size").filter(|bytes| *bytes > 0).unwrap_or(size);
                budget.charge(AddressTable::BLOCK)?;
                if let Some(found) = block(segment, "address", bytes, tree.number(segment, "stream")) {
                    earlier.push(EarlierBlock { address, frames: tree.get(part, "frames"), ..found });
                }
            }
        }
        earlier.sort_by_key(|block| block.address);
        self.earlier_count = earlier.len();
        self.earlier = earlier.into();
        Ok(())
    }
}
