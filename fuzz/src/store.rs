//! A small store on a simulated disk, for targets that write its files.
//!
//! Promises upward: a directory is opened, read, written and opened again; what does not end, what breaks an invariant, and
//! memory beyond the cap and 64 MiB are panics or aborts.
//! Asks from below: [`Cap`] as the global allocator of the target.

use cap::Cap;
use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use terrace_file::{ALIGN, Change, FramePool, Store, StoreError};
use terrace_tests::Random;
use terrace_tests::disk::hands::{self, SMALL};
use terrace_tests::disk::{Contents, SimDisk, World};

/// Memory that a store may take beyond its cap.
const BESIDE: usize = 64 << 20;

/// Bytes of the disk.
const DISK: u64 = 64 << 20;

/// What is read of a store: objects with their meta data, and parts with the first byte and the length of each that can be read.
pub type Seen = BTreeMap<u64, (Vec<u8>, BTreeMap<u32, Option<(u8, usize)>>)>;

fn frames() -> FramePool {
    static FRAMES: OnceLock<FramePool> = OnceLock::new();
    FRAMES.get_or_init(hands::frames).clone()
}

/// An empty disk.
pub fn empty() -> World {
    on(Contents::new())
}

/// A disk with these files.
pub fn on(contents: Contents) -> World {
    World::new(SimDisk::holding(DISK, contents), frames(), Random::new(1))
}

/// Runs something with no more memory than a store under [`SMALL`] may take.
pub fn bounded<T>(allocator: &Cap<System>, work: impl FnOnce() -> T) -> T {
    let limit = allocator.allocated() + SMALL.cap as usize + BESIDE;
    allocator.set_limit(limit).expect("more than is allocated");
    let done = work();
    allocator.set_limit(usize::MAX).expect("no limit");
    done
}

/// Opens a store, and drives what it began to an end when it is refused.
///
/// # Errors
/// The store's.
pub fn open(world: &mut World) -> Result<Store, StoreError> {
    let opened = hands::try_open(world);
    if opened.is_err() {
        world.settle().expect("it ends");
    }
    opened
}

/// Reads everything. Parts that cannot be read are `None`.
pub fn read(world: &mut World, store: &Store) -> Seen {
    let mut seen = Seen::new();
    for id in store.objects() {
        let object = store.object(id).expect("it is listed");
        let mut parts = BTreeMap::new();
        for (part, piece) in object.parts.iter() {
            let got = world.run(store.get(piece)).expect("it ends");
            let read = got.ok().map(|frame| {
                let bytes = &frame[..piece.bytes()];
                let first = bytes.first().copied().unwrap_or(0);
                // Ours are of one byte each: another mixture is no piece that was put.
                (if bytes.iter().all(|byte| *byte == first) { first } else { !first }, piece.bytes())
            });
            parts.insert(part, read);
        }
        seen.insert(id, (object.meta.to_vec(), parts));
    }
    seen
}

/// Puts a piece of one byte; `None` where there is no room.
pub fn put(world: &mut World, store: &Store, byte: u8, bytes: usize) -> Option<std::sync::Arc<terrace_file::Piece>> {
    let mut frame = world.frames.take(bytes.next_multiple_of(ALIGN)).ok()?;
    frame[..bytes].fill(byte);
    world.run(store.put(frame, bytes)).expect("it ends").result.ok()
}

/// Writes, tidies and closes a store: whatever was found, this ends, and the invariants hold.
pub fn use_and_close(world: &mut World, store: Store) {
    let piece = put(world, &store, 9, ALIGN);
    let piece = piece.into_iter().map(|piece| Change::Piece { object: 1 << 40, part: 0, piece });
    let changes = std::iter::once(Change::Meta { object: 1 << 40, meta: vec![9; 9] }).chain(piece);
    // Refused where there is no room, or a log has no number left.
    let _ = world.run(store.commit(changes.collect())).expect("it ends");
    let _ = world.run(store.compact()).expect("it ends");
    store.check().unwrap_or_else(|broken| panic!("{broken}"));
    hands::close(world, store);
}
