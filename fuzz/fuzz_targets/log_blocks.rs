//! Logs of any blocks with the right checksums, and a superblock that names them: read as the form says, or refused with the
//! error that the form says. The model below reads them by its own lines.
// sanitizer: none
// seeded-env: log_ends_groups
// seeded-env: log_forgets_gone
// seeded-env: log_takes_tables
#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Arbitrary;
use cap::Cap;
use libfuzzer_sys::fuzz_target;
use std::alloc::System;
use std::collections::BTreeMap;
use terrace_file::{ALIGN, StoreError, StoreFile};
use terrace_fuzz::{bug, store};
use terrace_tests::disk::Contents;
use terrace_tests::disk::hands::{BLOCKS, PAGES, RECORDS, seal};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const IDENTITY: [u8; 16] = [0x5a; 16];
const GENERATION: u32 = 3;
/// Parts and slabs have smaller numbers.
const PARTS: u32 = 1 << 24;
const SLABS: u32 = 3 << 30;

#[derive(Arbitrary, Debug)]
struct Input {
    blocks: Vec<Block>,
    durable: u8,
}

#[derive(Arbitrary, Debug)]
struct Block {
    last: bool,
    /// Which copies are bad: one, the other, both.
    bad: u8,
    /// Of another generation, place or store.
    other: u8,
    acked: u8,
    records: Vec<Record>,
}

#[derive(Arbitrary, Clone, Debug)]
enum Record {
    Piece {
        object: u8,
        part: Number,
        slab: Number,
        page: Number,
        bytes: Number,
    },
    Meta {
        object: u8,
        byte: u8,
        length: u16,
    },
    Gone {
        object: u8,
    },
    /// No record.
    Other(u8),
}

/// Small numbers, and some of any size.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Number(u8, u32);

impl Number {
    fn get(self) -> u32 {
        if self.0 < 200 { u32::from(self.0) } else { self.1 >> (self.0 % 32) }
    }
}

#[derive(Default)]
struct Object {
    meta: Vec<u8>,
    parts: BTreeMap<u32, u32>,
}

impl Record {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Piece { object, part, slab, page, bytes } => {
                out.push(1);
                out.extend(u64::from(object).to_le_bytes());
                [part, slab, page, bytes].iter().for_each(|number| out.extend(number.get().to_le_bytes()));
                out.extend(0u32.to_le_bytes());
            }
            Self::Meta { object, byte, length } => {
                let length = length % 300;
                out.push(2);
                out.extend(u64::from(object).to_le_bytes());
                out.extend(length.to_le_bytes());
                out.resize(out.len() + usize::from(length), byte);
            }
            Self::Gone { .. } if bug("log_forgets_gone") => {}
            Self::Gone { object } => {
                out.push(3);
                out.extend(u64::from(object).to_le_bytes());
            }
            Self::Other(tag) => out.push(tag.max(4)),
        }
    }

    /// False when it makes no sense.
    fn apply(&self, world: &mut BTreeMap<u64, Object>) -> bool {
        match *self {
            Self::Piece { object, part, slab, bytes, .. } => {
                if part.get() >= PARTS || slab.get() >= SLABS || bytes.get() == 0 {
                    return false;
                }
                world.entry(object.into()).or_default().parts.insert(part.get(), bytes.get());
            }
            Self::Meta { object, byte, length } => {
                let meta = vec![byte; usize::from(length % 300)];
                world.insert(object.into(), Object { meta, parts: BTreeMap::new() });
            }
            Self::Gone { object } => _ = world.remove(&object.into()),
            Self::Other(_) => return false,
        }
        true
    }
}

impl Block {
    /// As many of its records as fit.
    fn fitting(&self) -> (Vec<u8>, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for record in &self.records {
            let mut with = bytes.clone();
            record.encode(&mut with);
            if with.len() > ALIGN - RECORDS {
                break;
            }
            (bytes, count) = (with, count + 1);
        }
        (bytes, count)
    }

    fn write(&self, at: u64, page: &mut [u8]) {
        let (records, _) = self.fitting();
        let generation = GENERATION + u32::from(self.other == 1);
        let last = self.last || bug("log_ends_groups");
        page[..8].copy_from_slice(b"terrace\x1a");
        page[8..12].copy_from_slice(&2u32.to_le_bytes());
        page[12..16].copy_from_slice(&generation.to_le_bytes());
        page[20..24].copy_from_slice(&u32::from(last).to_le_bytes());
        page[24..32].copy_from_slice(&(at + u64::from(self.other == 2)).to_le_bytes());
        page[32..40].copy_from_slice(&u64::from(self.acked).to_le_bytes());
        page[40..44].copy_from_slice(&(records.len() as u32).to_le_bytes());
        page[48..64].copy_from_slice(&IDENTITY.map(|byte| byte ^ u8::from(self.other == 3)));
        page[RECORDS..RECORDS + records.len()].copy_from_slice(&records);
        seal(StoreFile::Log(GENERATION), page);
    }

    fn is_bad(&self, copy: u8) -> bool {
        self.bad & (1 << copy) != 0 && self.bad < 64
    }

    fn is_none(&self) -> bool {
        (1..=3).contains(&self.other) || (self.is_bad(0) && self.is_bad(1))
    }
}

fn files(input: &Input) -> Contents {
    let half = BLOCKS as usize * ALIGN;
    let mut log = vec![0; 2 * half];
    for (at, block) in input.blocks.iter().enumerate().take(BLOCKS as usize) {
        for copy in 0..2 {
            let page = &mut log[usize::from(copy) * half + at * ALIGN..][..ALIGN];
            block.write(at as u64, page);
            if block.is_bad(copy) {
                page[100] ^= 1;
            }
        }
    }
    let mut page = vec![0; ALIGN];
    page[..8].copy_from_slice(b"terrace\x1b");
    page[8..12].copy_from_slice(&2u32.to_le_bytes());
    page[16..32].copy_from_slice(&IDENTITY);
    page[32..40].copy_from_slice(&7u64.to_le_bytes());
    page[40..44].copy_from_slice(&GENERATION.to_le_bytes());
    page[48..56].copy_from_slice(&BLOCKS.to_le_bytes());
    page[56..64].copy_from_slice(&u64::from(input.durable % 9).to_le_bytes());
    seal(StoreFile::Superblock, &mut page);
    Contents::from([(StoreFile::Log(GENERATION), log), (StoreFile::Superblock, page.repeat(PAGES))])
}

/// What the form says: objects, or that the log is damaged, or is another store's.
fn model(input: &Input) -> Result<BTreeMap<u64, Object>, StoreError> {
    let file = StoreFile::Log(GENERATION);
    let damaged = Err(StoreError::Damaged { file });
    let blocks = &input.blocks[..input.blocks.len().min(BLOCKS as usize)];
    // Either copy of the first block.
    if let Some(first) = blocks.first()
        && first.other == 3
        && !(first.is_bad(0) && first.is_bad(1))
    {
        return Err(StoreError::OtherStore { file });
    }
    let (mut world, mut next, mut at) = (BTreeMap::new(), 0, 0);
    while at < blocks.len() && !blocks[at].is_none() {
        at += 1;
        if blocks[at - 1].last {
            for block in &blocks[next..at] {
                let (_, count) = block.fitting();
                if !block.records[..count].iter().all(|record| record.apply(&mut world)) {
                    return damaged;
                }
            }
            next = at;
        }
    }
    let hole = blocks[at..].iter().any(|block| {
        // Later blocks are looked for in the first copy.
        !block.is_bad(0) && !(1..=3).contains(&block.other) && usize::from(block.acked) > next
    });
    if next == 0 || next < usize::from(input.durable % 9) || hole {
        return damaged;
    }
    Ok(world)
}

fuzz_target!(|input: Input| {
    let mut world = store::on(files(&input));
    store::bounded(&ALLOCATOR, || match (store::open(&mut world), model(&input)) {
        (Ok(opened), Ok(expected)) => {
            let is: Vec<u64> = opened.objects();
            assert_eq!(is, expected.keys().copied().collect::<Vec<_>>());
            for (id, (meta, parts)) in store::read(&mut world, &opened) {
                let should = &expected[&id];
                assert_eq!(meta, should.meta);
                assert!(parts.keys().eq(should.parts.keys()), "{parts:?} {:?}", should.parts);
                assert!(parts.values().all(Option::is_none), "there are no slabs");
                if bug("log_takes_tables") {
                    let last = parts.keys().max().map_or(0, |last| *last as usize);
                    drop(std::hint::black_box(vec![Some(1u64); last]));
                }
            }
            store::use_and_close(&mut world, opened);
            store::open(&mut world).map(drop).expect("what it wrote it reads");
        }
        (Err(is), Err(should)) => assert_eq!(is, should),
        // Logs that are full of them would have to grow beyond the cap.
        (Err(StoreError::CapTooSmall { .. }), Ok(_)) => {}
        (is, should) => panic!("{is:?}, should be {:?}", should.map(|world| world.len())),
    });
});
