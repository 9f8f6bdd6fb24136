//! A list of calls to a heap, and how it travels to the process that makes them.
//!
//! As text, `4096 B: #1=100 #2=8@64 free#1 resize#2=16 fill=32 thin=2 #3=100`: block 1 of 100 bytes, block 2 at an
//! alignment of 64, and so on.
//!
//! Promises upward: every list of bytes of the right length is a program, and every program can be run: a call that
//! makes no sense (a block that is not there) is passed over, so that any change of a program gives a program.
//! Asks from below: nothing.

use std::fmt;
use std::str::FromStr;

/// Blocks that a program can name.
pub const SLOTS: usize = 64;
/// Bytes of a call on its way.
const CALL: usize = 8;

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Asks for a block; it is kept in a slot, which must be empty.
    Allocate {
        /// Below 64.
        slot: u8,
        /// log2 of the alignment.
        align: u8,
        /// Bytes, at least 1.
        bytes: u32,
    },
    /// Gives the block of a slot back.
    Free {
        /// Below 64.
        slot: u8,
    },
    /// Makes the block of a slot larger or smaller where it is.
    Resize {
        /// Below 64.
        slot: u8,
        /// Bytes, at least 1.
        bytes: u32,
    },
    /// Asks for blocks of this size until one is refused; they are kept apart from the slots.
    Fill {
        /// Bytes, at least 1.
        bytes: u32,
    },
    /// Gives every n-th block of the fills back.
    Thin {
        /// At least 1.
        every: u32,
    },
}

/// What a counted call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It made no sense: nothing was called.
    Skipped,
    /// A block, or yes.
    Done,
    /// No block, or no.
    Refused,
    /// The heap's own check failed afterwards.
    Broken,
}

/// A heap's memory and the calls; the last one is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Bytes of the heap's memory.
    pub arena: u32,
    /// In order.
    pub calls: Vec<Call>,
}

impl Outcome {
    /// As a byte.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// From a byte.
    pub fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Skipped,
            1 => Self::Done,
            2 => Self::Refused,
            _ => Self::Broken,
        }
    }
}

impl Program {
    /// The largest memory.
    pub const LARGEST: u32 = 16 << 20;

    /// As bytes: the memory's size, the number of calls, the calls.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.arena.to_le_bytes().to_vec();
        bytes.extend((self.calls.len() as u32).to_le_bytes());
        bytes.extend(self.calls.iter().flat_map(|call| call.bytes()));
        bytes
    }

    /// Reads what [`Program::bytes`] wrote; `None` at the end of the stream.
    pub fn read(from: &mut impl std::io::Read) -> Option<Self> {
        let [arena, count] = [number(from)?, number(from)?];
        let mut calls = Vec::new();
        for _ in 0..count {
            let mut bytes = [0; CALL];
            from.read_exact(&mut bytes).ok()?;
            calls.push(Call::of(bytes));
        }
        Some(Self { arena: arena.min(Self::LARGEST), calls })
    }
}

fn number(from: &mut impl std::io::Read) -> Option<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).ok()?;
    Some(u32::from_le_bytes(bytes))
}

impl Call {
    fn bytes(self) -> [u8; CALL] {
        let (kind, slot, align, number) = match self {
            Self::Allocate { slot, align, bytes } => (0, slot, align, bytes),
            Self::Free { slot } => (1, slot, 0, 0),
            Self::Resize { slot, bytes } => (2, slot, 0, bytes),
            Self::Fill { bytes } => (3, 0, 0, bytes),
            Self::Thin { every } => (4, 0, 0, every),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, slot, align, 0, a, b, c, d]
    }

    fn of([kind, slot, align, _, a, b, c, d]: [u8; CALL]) -> Self {
        let (slot, number) = (slot % SLOTS as u8, u32::from_le_bytes([a, b, c, d]).max(1));
        match kind {
            0 => Self::Allocate { slot, align: align.min(30), bytes: number },
            1 => Self::Free { slot },
            2 => Self::Resize { slot, bytes: number },
            3 => Self::Fill { bytes: number },
            _ => Self::Thin { every: number },
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { slot, align: 3, bytes } => write!(f, "#{slot}={bytes}"),
            Self::Allocate { slot, align, bytes } => write!(f, "#{slot}={bytes}@{}", 1u64 << align),
            Self::Free { slot } => write!(f, "free#{slot}"),
            Self::Resize { slot, bytes } => write!(f, "resize#{slot}={bytes}"),
            Self::Fill { bytes } => write!(f, "fill={bytes}"),
            Self::Thin { every } => write!(f, "thin={every}"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B:", self.arena)?;
        self.calls.iter().try_for_each(|call| write!(f, " {call}"))
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u32>().map_err(|error| format!("{text}: {error}"));
        let slot = |text: &str| number(text).map(|slot| (slot % SLOTS as u32) as u8);
        if let Some(name) = text.strip_prefix("free#") {
            return Ok(Self::Free { slot: slot(name)? });
        }
        let (what, value) = text.split_once('=').ok_or_else(|| format!("not a call: {text}"))?;
        match (what, what.split_once('#')) {
            ("fill", _) => Ok(Self::Fill { bytes: number(value)?.max(1) }),
            ("thin", _) => Ok(Self::Thin { every: number(value)?.max(1) }),
            (_, Some(("resize", name))) => Ok(Self::Resize { slot: slot(name)?, bytes: number(value)?.max(1) }),
            (_, Some(("", name))) => {
                let (bytes, align) = value.split_once('@').unwrap_or((value, "8"));
                let align = number(align)?.max(1).ilog2() as u8;
                Ok(Self::Allocate { slot: slot(name)?, align, bytes: number(bytes)?.max(1) })
            }
            _ => Err(format!("not a call: {text}")),
        }
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (arena, calls) = text.split_once(" B:").ok_or("a program begins with the bytes of its memory and ` B:`")?;
        let arena = arena.trim().parse::<u32>().map_err(|error| format!("{arena}: {error}"))?;
        let calls = calls.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { arena: arena.min(Self::LARGEST), calls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_survives_its_journey() {
        let calls = vec![
            Call::Allocate { slot: 63, align: 12, bytes: u32::MAX },
            Call::Free { slot: 0 },
            Call::Resize { slot: 5, bytes: 1 },
            Call::Fill { bytes: 7 },
            Call::Thin { every: 2 },
        ];
        let program = Program { arena: 4096, calls };
        let mut stream: Vec<u8> = program.bytes();
        stream.extend(program.bytes());
        let mut stream = &stream[..];
        assert_eq!(Program::read(&mut stream).as_ref(), Some(&program));
        assert_eq!(Program::read(&mut stream).as_ref(), Some(&program));
        assert_eq!(Program::read(&mut stream), None);
        assert_eq!(program.to_string(), "4096 B: #63=4294967295@4096 free#0 resize#5=1 fill=7 thin=2");
        assert_eq!(program.to_string().parse().as_ref(), Ok(&program));
    }

    #[test]
    fn text_that_is_no_program_is_refused() {
        for text in ["", "x B:", "8 B: frees#1", "8 B: #1", "8 B: #x=1", "8 B: grow#1=1", "8 B: fill=-1"] {
            assert!(text.parse::<Program>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_out_of_range_become_calls_that_can_be_run() {
        assert_eq!(Call::of([0, 200, 99, 0, 0, 0, 0, 0]), Call::Allocate { slot: 8, align: 30, bytes: 1 });
        assert_eq!(Call::of([250, 0, 0, 0, 0, 0, 0, 0]), Call::Thin { every: 1 });
    }
}
