//! Reads a pickle (protocols 2 to 5) as plain data: numbers, texts, lists and dictionaries.
//!
//! Promises upward: nothing is run: opcodes that name or call Python objects are an error, as is whatever else plain data does not
//! need. The memo has indices of nodes, so that memory grows with the file and not with what it unfolds to, and is bounded by
//! [`ByteBudget`].
//! Asks from below: unpacked bytes; the tree that values go into.

use super::error::Problem;
use super::input::RecordingInput;
use super::tree::{ByteBudget, PickleNode, PickleTree, PickleValue};

/// The first byte of a pickle of protocol 2 or above: the opcode PROTO. No text begins with it.
pub(super) const PICKLE: u8 = 0x80;
/// The protocols that are read.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 2..=5;
/// Marks open at a time: Python nests snapshots five deep.
const MARKS_MAX: usize = 64;
/// Bytes that an allocation costs beside its content.
const ALLOCATION: u64 = 16;

/// The machine that a pickle is a program for.
struct PickleMachine<'a, 'b> {
    input: &'a mut RecordingInput<'b>,
    budget: &'a mut ByteBudget,
    /// Bytes read of the pickle.
    read: u64,
    nodes: Vec<PickleNode>,
    stack: Vec<PickleValue>,
    /// Heights of the stack at the open marks, rising.
    marks: Vec<usize>,
    /// Values by the number that the pickle gave them; `None` for numbers that it skipped.
    memo: Vec<Option<PickleValue>>,
}

/// Reads the pickle that the input begins with. `place` is the offset of the opcode that is being read.
pub(super) fn read(
    input: &mut RecordingInput<'_>,
    budget: &mut ByteBudget,
    place: &mut u64,
) -> Result<PickleTree, Problem> {
    let (nodes, stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut machine = PickleMachine { input, budget, read: 0, nodes, stack, marks, memo };
    *place = 0;
    let [first, protocol] = machine.bytes()?;
    if first != PICKLE || !PROTOCOLS.contains(&protocol) {
        return Err(Problem::PickleProtocol(protocol));
    }
    loop {
        *place = machine.read;
        let [opcode] = machine.bytes()?;
        if opcode == b'.' {
            let top = machine.pop()?;
            return Ok(PickleTree { nodes: machine.nodes, top });
        }
        machine.step(opcode)?;
    }
}

impl PickleMachine<'_, '_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        self.input.exact(&mut bytes)?;
        self.read += N as u64;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u64, Problem> {
        self.bytes().map(|[byte]| byte.into())
    }

    fn u32(&mut self) -> Result<u64, Problem> {
        self.bytes().map(|bytes| u32::from_le_bytes(bytes).into())
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Carries out one opcode.
    fn step(&mut self, opcode: u8) -> Result<(), Problem> {
        match opcode {
            b'(' if self.marks.len() == MARKS_MAX => Err(Problem::Pickle("more than 64 values are open at once")),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.since_mark().map(|from| self.stack.truncate(from)),
            b'2' => self.top().and_then(|value| self.push(value)),
            b'N' => self.push(PickleValue::Nothing),
            // NEWTRUE, NEWFALSE, BINFLOAT.
            0x88 | 0x89 => self.push(PickleValue::Other),
            b'G' => self.u64().and_then(|_| self.push(PickleValue::Other)),
            b'K' => self.u8().and_then(|number| self.push(PickleValue::Number(number as i64))),
            b'M' => self.bytes().and_then(|bytes| self.push(PickleValue::Number(u16::from_le_bytes(bytes).into()))),
            b'J' => self.bytes().and_then(|bytes| self.push(PickleValue::Number(i32::from_le_bytes(bytes).into()))),
            // LONG1, LONG4.
            0x8a => self.u8().and_then(|length| self.long(length)),
            0x8b => self.u32().and_then(|length| self.long(length)),
            // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8.
            0x8c => self.u8().and_then(|length| self.text(length)),
            b'X' => self.u32().and_then(|length| self.text(length)),
            0x8d => self.u64().and_then(|length| self.text(length)),
            // SHORT_BINBYTES, BINBYTES, BINBYTES8, BYTEARRAY8.
            b'C' => self.u8().and_then(|length| self.skip(length)),
            b'B' => self.u32().and_then(|length| self.skip(length)),
            0x8e | 0x96 => self.u64().and_then(|length| self.skip(length)),
            // EMPTY_LIST, EMPTY_TUPLE, EMPTY_SET, EMPTY_DICT.
            b']' | b')' | 0x8f => self.push_node(PickleNode::List(Vec::new())),
            b'}' => self.push_node(PickleNode::Dict(Vec::new())),
            // TUPLE, FROZENSET; TUPLE1 to TUPLE3.
            b't' | 0x91 => self.since_mark().and_then(|from| self.list(from)),
            0x85..=0x87 => self.height(usize::from(opcode - 0x84)).and_then(|from| self.list(from)),
            // APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS.
            b'a' => self.height(1).and_then(|from| self.append(from)),
            b'e' | 0x90 => self.since_mark().and_then(|from| self.append(from)),
            b's' => self.height(2).and_then(|from| self.set(from)),
            b'u' => self.since_mark().and_then(|from| self.set(from)),
            // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET.
            b'q' => self.u8().and_then(|index| self.put(index)),
            b'r' => self.u32().and_then(|index| self.put(index)),
            0x94 => self.put(self.memo.len() as u64),
            b'h' => self.u8().and_then(|index| self.recall(index)),
            b'j' => self.u32().and_then(|index| self.recall(index)),
            // FRAME: a length, which a reader of a stream does not need.
            0x95 => self.u64().map(drop),
            other => Err(Problem::PickleOpcode(other)),
        }
    }

    fn push(&mut self, value: PickleValue) -> Result<(), Problem> {
        self.budget.push(&mut self.stack, value)
    }

    fn push_node(&mut self, node: PickleNode) -> Result<(), Problem> {
        let index = u32::try_from(self.nodes.len()).map_err(|_| Problem::PickleMemory)?;
        self.budget.charge(ALLOCATION)?;
        self.budget.push(&mut self.nodes, node)?;
        self.push(PickleValue::Node(index))
    }

    /// The height of the stack less `count` values, none of which lies below a mark.
    fn height(&self, count: usize) -> Result<usize, Problem> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let height = self.stack.len().checked_sub(count).filter(|height| *height >= floor);
        height.ok_or(Problem::Pickle("an opcode takes more values than there are"))
    }

    fn since_mark(&mut self) -> Result<usize, Problem> {
        self.marks.pop().ok_or(Problem::Pickle("an opcode looks for a mark, and there is none"))
    }

    fn top(&self) -> Result<PickleValue, Problem> {
        self.height(1).map(|at| self.stack[at])
    }

    fn pop(&mut self) -> Result<PickleValue, Problem> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    /// A number of so many bytes, little-endian, in two's complement.
    fn long(&mut self, length: u64) -> Result<(), Problem> {
        if length > 8 {
            return self.skip(length);
        }
        let (mut bytes, length) = ([0; 8], length as usize);
        self.input.exact(&mut bytes[..length])?;
        self.read += length as u64;
        let unused = 64 - 8 * length as u32;
        let number = if length == 0 { 0 } else { i64::from_le_bytes(bytes) << unused >> unused };
        self.push(PickleValue::Number(number))
    }

    fn text(&mut self, length: u64) -> Result<(), Problem> {
        self.budget.charge(length)?;
        let mut bytes = vec![0; length as usize];
        self.input.exact(&mut bytes)?;
        self.read += length;
        // Python writes lone surrogates, which UTF-8 does not have: a replacement takes at most three bytes for one.
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                self.budget.charge(3 * length)?;
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            }
        };
        self.push_node(PickleNode::Text(text.into()))
    }

    /// Passes over the bytes of a value that no caller asks for.
    fn skip(&mut self, length: u64) -> Result<(), Problem> {
        let (mut left, mut piece) = (length, [0; 4096]);
        while left > 0 {
            let now = left.min(piece.len() as u64);
            self.input.exact(&mut piece[..now as usize])?;
            left -= now;
        }
        self.read += length;
        self.push(PickleValue::Other)
    }

    /// Makes a list of the values of the stack from a height on.
    fn list(&mut self, from: usize) -> Result<(), Problem> {
        self.budget.charge_for::<PickleValue>(self.stack.len() - from)?;
        let items = self.stack.split_off(from);
        self.push_node(PickleNode::List(items))
    }

    /// Moves the values from a height on into the list below them.
    fn append(&mut self, from: usize) -> Result<(), Problem> {
        let node = self.below(from)?;
        let Some(PickleNode::List(items)) = self.nodes.get_mut(node) else {
            return Err(Problem::Pickle("values are appended to what is no list"));
        };
        self.budget.reserve(items, self.stack.len() - from)?;
        items.extend(self.stack.drain(from..));
        Ok(())
    }

    /// Moves the keys and values from a height on into the dictionary below them.
    fn set(&mut self, from: usize) -> Result<(), Problem> {
        let node = self.below(from)?;
        let Some(PickleNode::Dict(entries)) = self.nodes.get_mut(node) else {
            return Err(Problem::Pickle("keys are set in what is no dictionary"));
        };
        let (pairs, rest) = self.stack[from..].as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Problem::Pickle("a key without a value"));
        }
        self.budget.reserve(entries, pairs.len())?;
        entries.extend(pairs.iter().map(|&[key, value]| (key, value)));
        self.stack.truncate(from);
        Ok(())
    }

    /// The node right below a height.
    fn below(&self, from: usize) -> Result<usize, Problem> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match from.checked_sub(1).filter(|at| *at >= floor).map(|at| self.stack[at]) {
            Some(PickleValue::Node(node)) => Ok(node as usize),
            _ => Err(Problem::Pickle("an opcode adds to a value that is not there")),
        }
    }

    fn put(&mut self, index: u64) -> Result<(), Problem> {
        let (value, index) = (self.top()?, index as usize);
        if index >= self.memo.len() {
            let more = index + 1 - self.memo.len();
            self.budget.reserve(&mut self.memo, more)?;
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(value);
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Result<(), Problem> {
        let known = self.memo.get(index as usize).copied().flatten();
        known.ok_or(Problem::Pickle("a value of the memo that was not put there")).and_then(|value| self.push(value))
    }
}

/// The name of an opcode that names or calls Python objects.
pub(super) fn name_of_code(opcode: u8) -> Option<&'static str> {
    let name = match opcode {
        b'c' => "GLOBAL",
        b'i' => "INST",
        b'o' => "OBJ",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        0x81 => "NEWOBJ",
        0x82..=0x84 => "EXT",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        _ => return None,
    };
    Some(name)
}
