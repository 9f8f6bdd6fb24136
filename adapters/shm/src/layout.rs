//! The format: one page of header in front of the bytes.
//!
//! Promises upward: a header that [`BufferHeader::parse`] accepted has a size, a way and users that make sense.
//! Asks from below: nothing; words come from memory or from a file.
//!
//! All of it are words of 32 bits. Words 0 to 23 never change after the creation; `writing`, `turn` and the table of holders do.

use crate::error::ShmError;
use crate::name::BufferName;

/// Bytes of the header: one page, so that the bytes behind it are aligned to a page.
pub const HEADER_BYTES: usize = 4096;
/// Words of the header.
pub const HEADER_WORDS: usize = HEADER_BYTES / 4;
/// Words that never change after the creation.
pub const FIXED_WORDS: usize = 24;
/// Users other than the owner that a buffer allows at most.
pub const USERS: usize = 8;
/// Holders that a buffer has at most. Their table: 64 slots of 8 words in words 64 to 575.
pub const SLOTS: usize = 64;

/// "TERRASHM", little-endian.
const MAGIC: [u32; 2] = [u32::from_le_bytes(*b"TERR"), u32::from_le_bytes(*b"ASHM")];
/// The version of this format and of the answer through the socket.
pub const VERSION: u32 = 1;

/// The process inside a write lease; 0 for none. A lessee that finds another value died inside.
pub const WRITING: usize = 32;
/// Counts releases of leases: waiters sleep on it.
pub const TURN: usize = 48;

/// Words of one slot: process, two of the time, lease, four that stay 0.
const SLOT_WORDS: usize = 8;
const FIRST_SLOT: usize = 64;

/// Where the word of a holder's process stands; the two halves of its time, and its lease, follow.
pub fn slot_word(slot: u32) -> usize {
    FIRST_SLOT + (slot as usize % SLOTS) * SLOT_WORDS
}

/// How the buffer's memory has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// A sealed memfd, handed over an abstract socket: mapped, never cut short, gone with its last holder.
    Memfd,
    /// A file in `/dev/shm`: copied in and out, also for processes in other network namespaces and other languages.
    File,
}

/// Size, alignment and tag of the elements that a buffer was created for; all 0 for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Bytes of an element.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
    /// FNV-1a of the tag's text.
    pub tag: u64,
}

impl Element {
    /// The fingerprint of a type under a tag.
    pub fn of<T>(tag: &str) -> Self {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let tag = tag.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
        Self { size: size_of::<T>() as u32, align: align_of::<T>() as u32, tag }
    }

    /// For errors.
    pub fn text(&self) -> String {
        match *self == Self::default() {
            true => "no stated type".into(),
            false => format!("{} bytes aligned to {}, tag {:016x}", self.size, self.align, self.tag),
        }
    }
}

/// What of the header never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferHeader {
    /// How the memory has a name.
    pub way: Way,
    /// Bytes behind the header; 1 to `i64::MAX / 2`.
    pub bytes: u64,
    /// What the buffer was created for.
    pub element: Element,
    /// The slot that its creator took.
    pub creator_slot: u32,
    /// The creator's process.
    pub creator_pid: u32,
    /// When it was created, in milliseconds since 1970.
    pub since: u64,
    /// The user whose name it is.
    pub owner: u32,
    /// Users that may open it besides the owner; at most [`USERS`].
    pub users: Vec<u32>,
}

impl BufferHeader {
    /// The words to write.
    pub fn words(&self) -> [u32; FIXED_WORDS] {
        let mut words = [0; FIXED_WORDS];
        let way = if self.way == Way::Memfd { 1 } else { 2 };
        let ([bytes, bytes_high], [tag, tag_high]) = (halves(self.bytes), halves(self.element.tag));
        let [since, since_high] = halves(self.since);
        let (size, align) = (self.element.size, self.element.align);
        let fixed = [
            MAGIC[0],
            MAGIC[1],
            VERSION,
            way,
            bytes,
            bytes_high,
            size,
            align,
            tag,
            tag_high,
            self.creator_slot,
            self.creator_pid,
            since,
            since_high,
            self.owner,
            self.users.len() as u32,
        ];
        words[..16].copy_from_slice(&fixed);
        words.iter_mut().skip(16).zip(&self.users).for_each(|(word, user)| *word = *user);
        words
    }

    /// Checks words that another process wrote.
    pub fn parse(words: &[u32; FIXED_WORDS], name: &BufferName) -> Result<Self, ShmError> {
        let damaged = |what| ShmError::Damaged { name: name.text(), what };
        if words[..2] != MAGIC {
            return Err(ShmError::Foreign { name: name.text(), what: "its memory does not begin as a header does" });
        }
        if words[2] != VERSION {
            return Err(ShmError::Foreign { name: name.text(), what: "its format is of another version" });
        }
        let way = match words[3] {
            1 => Way::Memfd,
            2 => Way::File,
            _ => return Err(damaged("no such way")),
        };
        let bytes = whole(words[4], words[5]);
        let users = words[15] as usize;
        if bytes == 0 || bytes > i64::MAX as u64 / 2 {
            return Err(damaged("an impossible size"));
        }
        if users > USERS || words[10] as usize >= SLOTS {
            return Err(damaged("more users or holders than there can be"));
        }
        Ok(Self {
            way,
            bytes,
            element: Element { size: words[6], align: words[7], tag: whole(words[8], words[9]) },
            creator_slot: words[10],
            creator_pid: words[11],
            since: whole(words[12], words[13]),
            owner: words[14],
            users: words[16..16 + users].to_vec(),
        })
    }

    /// Bytes of memory or file, with the header.
    pub fn whole_bytes(&self) -> u64 {
        self.bytes + HEADER_BYTES as u64
    }
}

/// A 64-bit number as two words, low first.
pub fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// The number of two words.
pub fn whole(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_was_written() {
        let element = Element::of::<u64>("counts");
        let users = vec![7, 8];
        let (since, owner) = (u64::MAX - 1, 1000);
        let header = BufferHeader {
            way: Way::File,
            bytes: 1 << 40,
            element,
            creator_slot: 3,
            creator_pid: 9,
            since,
            owner,
            users,
        };
        let name = BufferName::new("x").unwrap();
        assert_eq!(BufferHeader::parse(&header.words(), &name).unwrap(), header);
    }

    #[test]
    fn random_words_never_panic_and_seldom_pass() {
        let name = BufferName::new("x").unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..20_000 {
            let mut words: [u32; FIXED_WORDS] = std::array::from_fn(|_| random.u32(..));
            if round % 2 == 0 {
                words[..4].copy_from_slice(&[MAGIC[0], MAGIC[1], VERSION, random.u32(0..4)]);
            }
            if let Ok(header) = BufferHeader::parse(&words, &name) {
                assert!(header.users.len() <= USERS && header.bytes > 0 && header.whole_bytes() > 4096);
            }
        }
    }

    #[test]
    fn sizes_that_no_memory_has_are_damage() {
        let name = BufferName::new("x").unwrap();
        for bytes in [0, u64::MAX, u64::MAX - 4095, 1 << 63, i64::MAX as u64] {
            let mut words = [0; FIXED_WORDS];
            words[..6].copy_from_slice(&[MAGIC[0], MAGIC[1], VERSION, 1, halves(bytes)[0], halves(bytes)[1]]);
            assert!(matches!(BufferHeader::parse(&words, &name), Err(ShmError::Damaged { .. })), "{bytes}");
        }
    }

    #[test]
    fn the_table_of_holders_lies_inside_the_header() {
        assert!(slot_word(SLOTS as u32 - 1) + SLOT_WORDS <= HEADER_WORDS && TURN < FIRST_SLOT);
    }
}
