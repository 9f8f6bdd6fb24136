//! Hands on a small store's disk: what a test does to files behind the store's back.
//!
//! Promises upward: files are changed durably, and the disk holds what they are for what should be there; [`seal`] writes
//! checksums by the documented form, not by the library's code, so that a change of the form is noticed.

use super::{Contents, Odometer, SimDisk, World};
use crate::Random;
use std::sync::Arc;
use terrace_file::{ALIGN, Change, Disk, DiskRequest, FramePool, Store, StoreError, StoreFile, StoreOptions};

/// Logs of 8 blocks; the first has the snapshot.
pub const SMALL: StoreOptions = StoreOptions { cap: (512 + 64) << 10, slab_bytes: 64 << 10, log_bytes: 64 << 10 };

/// Blocks of a log in front of its mirror.
pub const BLOCKS: u64 = 8;

/// Pages of a superblock.
pub const PAGES: usize = 16;

/// Those that are floors.
pub const FLOORS: [u64; 2] = [0, 15];

/// Those that are marks.
pub const MARKS: [u64; 2] = [7, 8];

/// Where the records of a block begin.
pub const RECORDS: usize = 64;

/// Memory for [`SMALL`].
///
/// # Panics
/// When the system has no memory.
pub fn frames() -> FramePool {
    FramePool::new(4 << 20).expect("a mapping")
}

/// An empty disk with room for two such stores.
pub fn world(seed: u64, frames: &FramePool) -> World {
    World::new(SimDisk::new(2 * SMALL.cap), frames.clone(), Random::new(seed))
}

/// Opens the store.
///
/// # Errors
/// The store's.
///
/// # Panics
/// When it never ends.
pub fn try_open(world: &mut World) -> Result<Store, StoreError> {
    let disk = Arc::clone(&world.disk) as Arc<dyn Disk>;
    let join = Store::open(disk, &world.tasks, &world.frames, SMALL);
    world.run(join).expect("it ends")
}

/// Opens the store.
///
/// # Panics
/// When it does not open.
pub fn open(world: &mut World) -> Store {
    try_open(world).expect("it opens")
}

/// Drops the store; what it began ends.
///
/// # Panics
/// When that does not end.
pub fn close(world: &mut World, store: Store) {
    drop(store);
    world.settle().expect("it ends");
}

/// Makes an object durable, by a group that fills most of a block.
///
/// # Panics
/// When that fails.
pub fn keep(world: &mut World, store: &Store, object: u64, byte: u8) {
    let long = |which| Change::Meta { object: which, meta: vec![byte; 1000] };
    let changes = vec![long(object), long(object), long(object)];
    world.run(store.commit(changes)).expect("it ends").expect("durable");
}

/// The first byte of what [`keep`] made durable.
pub fn first_byte(store: &Store, object: u64) -> Option<u8> {
    Some(store.object(object)?.meta[0])
}

/// The latest log that was written to.
///
/// # Panics
/// When there is none.
pub fn log(world: &World) -> StoreFile {
    let contents = world.disk.contents();
    let written =
        contents.iter().filter(|(file, bytes)| matches!(file, StoreFile::Log(_)) && bytes.iter().any(|&b| b != 0));
    *written.map(|(file, _)| file).max().expect("there is a log")
}

/// A page of a file.
///
/// # Panics
/// When there is no such page.
pub fn block(world: &World, file: StoreFile, at: u64) -> Vec<u8> {
    world.disk.contents()[&file][at as usize * ALIGN..][..ALIGN].to_vec()
}

/// Writes over a page, durably.
///
/// # Panics
/// When there is no such page.
pub fn overwrite(world: &mut World, file: StoreFile, at: u64, bytes: &[u8]) {
    let mut frame = world.frames.take(ALIGN).expect("room");
    frame[..ALIGN].copy_from_slice(bytes);
    let order = DiskRequest::Write { file, offset: at * ALIGN as u64, bytes: ALIGN, frame };
    for order in [order, DiskRequest::Sync { file }] {
        world.ask(order).expect("answered").result.expect("done");
    }
}

/// Removes a file, durably.
///
/// # Panics
/// When that fails.
pub fn remove(world: &mut World, file: StoreFile) {
    for order in [DiskRequest::Remove { file }, DiskRequest::SyncDirectory] {
        world.ask(order).expect("answered").result.expect("done");
    }
}

/// The same disk once more, with everything that is on it.
pub fn fork(world: &World) -> World {
    World::new(world.disk.cut(&mut Odometer::default()), world.frames.clone(), world.random.clone())
}

/// A disk with these files once more.
pub fn with(world: &World, contents: Contents) -> World {
    World::new(SimDisk::holding(2 * SMALL.cap, contents), world.frames.clone(), world.random.clone())
}

/// Puts the right checksum into a block of a log, or a page of a superblock.
pub fn seal(file: StoreFile, bytes: &mut [u8]) {
    let crc = match file {
        StoreFile::Superblock => 12..16,
        StoreFile::Log(_) | StoreFile::Slab(_) => 44..48,
    };
    let sum = crc32fast::hash(&[&bytes[..crc.start], &bytes[crc.end..]].concat());
    bytes[crc].copy_from_slice(&sum.to_le_bytes());
}

/// Has a change in both copies of a block of the latest log, with the right checksum: as a later version may write it, or a
/// mistake of ours, or an enemy.
pub fn forge(world: &mut World, at: u64, change: impl FnOnce(&mut [u8])) {
    let file = log(world);
    let mut bytes = block(world, file, at);
    change(&mut bytes);
    seal(file, &mut bytes);
    overwrite(world, file, at, &bytes);
    overwrite(world, file, at + BLOCKS, &bytes);
}

/// The store of three objects, the last of them made durable after the log was begun.
///
/// # Panics
/// When it does not work.
pub fn kept(seed: u64) -> World {
    let mut world = world(seed, &frames());
    let store = open(&mut world);
    (1..=3).for_each(|object| keep(&mut world, &store, object, object as u8));
    close(&mut world, store);
    world
}

/// Why it does not open.
///
/// # Panics
/// When the opening never ends.
pub fn refusal(world: &mut World) -> Option<StoreError> {
    try_open(world).map(drop).err()
}

/// It is refused, and the directory is as it was.
///
/// # Panics
/// When that is not so.
pub fn refused_unchanged(mut world: World, error: &StoreError) {
    let before = world.disk.contents();
    assert_eq!(refusal(&mut world).as_ref(), Some(error));
    assert!(world.disk.contents() == before, "{error:?}: something was changed");
}

/// The same files without one, or with another.
pub fn changed(world: &World, change: impl FnOnce(&mut Contents)) -> World {
    let mut contents = world.disk.contents();
    change(&mut contents);
    with(world, contents)
}
