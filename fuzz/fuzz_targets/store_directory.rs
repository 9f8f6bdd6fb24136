//! Directories of stores that were damaged, or written by an enemy with the right checksums. Damage: what was durable is read as
//! it was last, or there is a typed error. Anything: it ends, invariants hold, and memory is bounded.
// sanitizer: none
// seeded-env: directory_older_state
// seeded-env: directory_reads_lost_bytes
#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Arbitrary;
use cap::Cap;
use libfuzzer_sys::fuzz_target;
use std::alloc::System;
use std::sync::OnceLock;
use terrace_file::{ALIGN, Change, StoreFile};
use terrace_fuzz::{bug, store};
use terrace_tests::disk::Contents;
use terrace_tests::disk::hands::{close, keep, log, open, seal};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

#[derive(Arbitrary, Debug)]
struct Input {
    base: u8,
    steps: Vec<Step>,
}

/// A file, by its place in the directory, and a page of it.
type Page = (u8, u8);

#[derive(Arbitrary, Clone, Debug)]
enum Step {
    Flip(Page, u16),
    Zero(Page),
    Swap(Page, Page),
    Cut(Page),
    Delete(u8),
    // From here on an enemy.
    /// Bytes of a page at a place in units of four, with the right checksum then.
    Forge(Page, u8, [u8; 4]),
    /// The same in both copies of a log's block.
    ForgeBoth(Page, u8, [u8; 4]),
    Rename(u8, Name),
    Copy(u8, Name),
    Stray(Name, u8, u8),
    /// A file as it was earlier.
    Older(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Name {
    Superblock,
    Log(u8),
    FarLog(u32),
    Slab(u8),
    FarSlab(u32),
}

impl From<Name> for StoreFile {
    fn from(name: Name) -> Self {
        match name {
            Name::Superblock => Self::Superblock,
            Name::Log(number) => Self::Log(number.into()),
            Name::FarLog(number) => Self::Log(number),
            Name::Slab(number) => Self::Slab(number.into()),
            Name::FarSlab(number) => Self::Slab(number),
        }
    }
}

/// A directory, what a store finds in it, and an earlier state of it.
struct Base {
    files: Contents,
    earlier: Contents,
    seen: store::Seen,
}

/// Some directories that stores leave.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let mut world = store::empty();
        let mut stages = Vec::new();
        for stage in 0..3u64 {
            let opened = open(&mut world);
            stages.push(world.disk.contents());
            for object in 0..3 {
                keep(&mut world, &opened, 10 * stage + object, stage as u8 + 1);
                let piece = store::put(&mut world, &opened, stage as u8 + 1, 5000).expect("room");
                let change = |part| Change::Piece { object: 10 * stage, part, piece: piece.clone() };
                world.run(opened.commit(vec![change(object as u32), change(7)])).expect("it ends").expect("durable");
            }
            close(&mut world, opened);
            stages.push(world.disk.contents());
        }
        let base = |files: Contents, earlier: &Contents| {
            let mut world = store::on(files.clone());
            let opened = open(&mut world);
            let seen = store::read(&mut world, &opened);
            close(&mut world, opened);
            Base { files, earlier: earlier.clone(), seen }
        };
        let mut bases: Vec<Base> = (1..6).map(|at| base(stages[at].clone(), &stages[at - 1])).collect();
        // The old log could not be removed.
        let mut both = stages[5].clone();
        for (file, bytes) in &stages[3] {
            both.entry(*file).or_insert_with(|| bytes.clone());
        }
        bases.push(base(both, &stages[3]));
        // Nor could the log that became full: the next one has the last group in its snapshot.
        let mut world = store::on(stages[5].clone());
        let opened = open(&mut world);
        let (full, mut filled) = (log(&world), Contents::new());
        while log(&world) == full {
            filled = world.disk.contents();
            keep(&mut world, &opened, 0, 9);
        }
        close(&mut world, opened);
        let mut followed = world.disk.contents();
        followed.insert(full, filled[&full].clone());
        bases.push(base(followed, &filled));
        // A log that was begun and not named yet.
        let mut begun = stages[5].clone();
        let mut world = store::on(begun.clone());
        let opened = open(&mut world);
        let file = log(&world);
        begun.insert(file, world.disk.contents()[&file].clone());
        close(&mut world, opened);
        bases.push(base(begun, &stages[5]));
        bases
    })
}

struct Damage {
    files: Contents,
    /// Pages and files that are not as they were.
    cost: usize,
    /// An enemy was at work: anything may be read.
    forged: bool,
}

impl Damage {
    fn file(&self, which: u8) -> Option<StoreFile> {
        let count = self.files.len().max(1);
        self.files.keys().nth(usize::from(which) % count).copied()
    }

    fn page(&mut self, (file, page): Page) -> Option<(StoreFile, &mut [u8])> {
        let file = self.file(file)?;
        let bytes = self.files.get_mut(&file)?;
        let pages = bytes.len() / ALIGN;
        let at = usize::from(page) % pages.max(1) * ALIGN;
        Some((file, bytes.get_mut(at..at + ALIGN)?))
    }

    fn step(&mut self, step: &Step, earlier: &Contents) -> Option<()> {
        self.cost += 1;
        self.forged |=
            !matches!(step, Step::Flip(..) | Step::Zero(_) | Step::Swap(..) | Step::Cut(_) | Step::Delete(_));
        match *step {
            Step::Flip(page, bit) => {
                let bit = usize::from(bit) % (ALIGN * 8);
                self.page(page)?.1[bit / 8] ^= 1 << (bit % 8);
            }
            Step::Zero(page) => self.page(page)?.1.fill(0),
            Step::Swap(one, other) => {
                let first = self.page(one)?.1.to_vec();
                let second = self.page(other)?.1.to_vec();
                self.page(other)?.1.copy_from_slice(&first);
                self.page(one)?.1.copy_from_slice(&second);
                self.cost += 1;
            }
            Step::Cut((file, page)) => {
                let file = self.file(file)?;
                let bytes = self.files.get_mut(&file)?;
                bytes.truncate(usize::from(page) % (bytes.len() / ALIGN).max(1) * ALIGN);
            }
            Step::Delete(file) => _ = self.files.remove(&self.file(file)?),
            Step::Forge(page, at, bytes) => {
                let (file, page) = self.page(page)?;
                page[usize::from(at) * 4..][..4].copy_from_slice(&bytes);
                seal(file, page);
            }
            Step::ForgeBoth((which, page), at, new) => {
                let file = self.file(which)?;
                let bytes = self.files.get_mut(&file)?;
                let half = bytes.len() / 2 / ALIGN * ALIGN;
                for start in [0, half] {
                    let first = start + usize::from(page) % (half / ALIGN).max(1) * ALIGN;
                    let page = bytes.get_mut(first..first + ALIGN)?;
                    page[usize::from(at) * 4..][..4].copy_from_slice(&new);
                    seal(file, page);
                }
            }
            Step::Rename(file, to) => {
                let bytes = self.files.remove(&self.file(file)?)?;
                self.files.insert(to.into(), bytes);
            }
            Step::Copy(file, to) => {
                let bytes = self.files.get(&self.file(file)?)?.clone();
                self.files.insert(to.into(), bytes);
            }
            Step::Stray(name, pages, byte) => {
                _ = self.files.insert(name.into(), vec![byte; usize::from(pages % 40) * ALIGN]);
            }
            Step::Older(file) => {
                let file = self.file(file)?;
                self.files.insert(file, earlier.get(&file)?.clone());
            }
        }
        Some(())
    }

    /// Whether what was durable must be read as it was last. Not when all files of a store but its superblock are gone, which is
    /// how a store begins; and four pages may hold all that is known of a group: its two copies, and two marks.
    fn is_told(&self) -> bool {
        !self.forged && self.cost < 4 && self.files.keys().any(|file| *file != StoreFile::Superblock)
    }
}

/// With the bug: the superblock of a store that keeps no evidence.
fn forgetful(files: &mut Contents) {
    let pages = files.get_mut(&StoreFile::Superblock).into_iter().flat_map(|bytes| bytes.chunks_exact_mut(ALIGN));
    for page in pages {
        page[40..64].fill(0);
        seal(StoreFile::Superblock, page);
    }
}

fuzz_target!(|input: Input| {
    let bases = bases();
    let base = &bases[usize::from(input.base) % bases.len()];
    let mut damage = Damage { files: base.files.clone(), cost: 0, forged: false };
    for step in input.steps.iter().take(12) {
        let _ = damage.step(step, &base.earlier);
    }
    if bug("directory_older_state") {
        forgetful(&mut damage.files);
    }
    let told = damage.is_told();
    let mut world = store::on(damage.files);
    store::bounded(&ALLOCATOR, || {
        let Ok(opened) = store::open(&mut world) else { return };
        let seen = store::read(&mut world, &opened);
        if told {
            assert!(seen.keys().eq(base.seen.keys()), "{:?}, should be {:?}", seen.keys(), base.seen.keys());
            for (id, (meta, parts)) in &seen {
                let (should, all) = &base.seen[id];
                assert_eq!(meta, should, "object {id}");
                assert!(parts.keys().eq(all.keys()), "object {id}: {parts:?}, should be {all:?}");
                for (part, read) in parts {
                    let believed = bug("directory_reads_lost_bytes") && read.is_none();
                    let right = read.is_none_or(|_| *read == all[part]) && !believed;
                    assert!(right, "object {id}, part {part}: {read:?}, should be {:?}", all[part]);
                }
            }
        }
        store::use_and_close(&mut world, opened);
        let again = store::open(&mut world);
        if told {
            let again = again.expect("what it wrote it reads");
            assert!(seen.keys().all(|id| again.object(*id).is_some()));
            close(&mut world, again);
        }
    });
});
