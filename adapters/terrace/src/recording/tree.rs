//! What a pickle is, once it is read: values in one arena, and the memory that they may take.
//!
//! Promises upward: a value that the pickle names several times is kept once, since values name nodes by index; memory is counted
//! before it is taken. Nothing recurses, so that depth costs nothing.
//! Asks from below: nothing.

use super::error::Problem;
use std::cell::Cell;
use std::rc::Rc;

/// Bytes that may be taken whatever the file's size: 64 MiB, less the buffers of the input.
const BUDGET: u64 = 63 << 20;
/// Bytes that may be taken for each byte of the file.
const BUDGET_PER_BYTE: u64 = 16;
/// Entries of a dictionary that a search looks at: those of snapshots have fewer than 20.
const FIELDS_MAX: usize = 64;
/// Memory that a reader may take: 64 MiB, and 16 times what was read of the file as it is stored.
#[derive(Debug)]
pub(super) struct ByteBudget {
    used: u64,
    /// Bytes read of the file.
    read: Rc<Cell<u64>>,
}

impl ByteBudget {
    /// Nothing used yet; `read` counts the file's bytes.
    pub(super) fn new(read: Rc<Cell<u64>>) -> Self {
        Self { used: 0, read }
    }

    /// Counts bytes that are about to be taken.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), Problem> {
        self.used = self.used.saturating_add(bytes);
        let most = BUDGET.saturating_add(self.read.get().saturating_mul(BUDGET_PER_BYTE));
        if self.used > most { Err(Problem::PickleMemory) } else { Ok(()) }
    }

    /// Counts so many items that are about to be taken.
    pub(super) fn charge_for<T>(&mut self, count: usize) -> Result<(), Problem> {
        self.charge(count as u64 * size_of::<T>() as u64)
    }

    /// Makes room for `more` items. While the vector moves, the old memory and the new are both counted.
    pub(super) fn reserve<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Problem> {
        let (old, needed) = (list.capacity(), list.len() + more);
        if needed > old {
            let new = needed.max(2 * old);
            self.charge_for::<T>(new)?;
            list.reserve_exact(new - list.len());
            self.used -= (old * size_of::<T>()) as u64;
        }
        Ok(())
    }

    /// Adds an item, with the memory of its growth counted first.
    pub(super) fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), Problem> {
        self.reserve(list, 1)?;
        list.push(item);
        Ok(())
    }
}

/// A value of a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PickleValue {
    /// `None`, or a key that a dictionary does not have.
    Nothing,
    /// A number.
    Number(i64),
    /// A text, a list or a dictionary: the index of its node.
    Node(u32),
    /// A value whose content no caller asks for: booleans, floating-point and larger numbers, bytes.
    Other,
}

/// A value with parts.
#[derive(Debug)]
pub(super) enum PickleNode {
    /// A text.
    Text(Box<str>),
    /// A list, a tuple or a set.
    List(Vec<PickleValue>),
    /// The entries of a dictionary.
    Dict(Vec<(PickleValue, PickleValue)>),
}

/// All values of a pickle.
#[derive(Debug)]
pub(super) struct PickleTree {
    /// All nodes; values name them by index.
    pub(super) nodes: Vec<PickleNode>,
    /// The value that the pickle is.
    pub(super) top: PickleValue,
}

impl PickleTree {
    fn node(&self, value: PickleValue) -> Option<&PickleNode> {
        match value {
            PickleValue::Node(index) => self.nodes.get(index as usize),
            _ => None,
        }
    }

    /// The text; `None` for a value that is none.
    pub(super) fn text(&self, value: PickleValue) -> Option<&str> {
        match self.node(value) {
            Some(PickleNode::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The items of a list; none for a value that is no list.
    pub(super) fn list(&self, value: PickleValue) -> &[PickleValue] {
        match self.node(value) {
            Some(PickleNode::List(items)) => items,
            _ => &[],
        }
    }

    /// Whether the value is a dictionary.
    pub(super) fn is_dict(&self, value: PickleValue) -> bool {
        matches!(self.node(value), Some(PickleNode::Dict(_)))
    }

    /// The value of a key among a dictionary's first 64.
    pub(super) fn get(&self, dict: PickleValue, key: &str) -> PickleValue {
        let Some(PickleNode::Dict(entries)) = self.node(dict) else { return PickleValue::Nothing };
        let found = entries.iter().take(FIELDS_MAX).find(|(name, _)| self.text(*name) == Some(key));
        found.map_or(PickleValue::Nothing, |(_, value)| *value)
    }

    /// The number of a key.
    pub(super) fn number(&self, dict: PickleValue, key: &str) -> Option<i64> {
        match self.get(dict, key) {
            PickleValue::Number(number) => Some(number),
            _ => None,
        }
    }
}
