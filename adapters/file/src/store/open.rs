//! Opening a store: what is durable is found, what is not is room.
//!
//! Promises upward: nothing is changed before it is known that the files are this store's; what was found is written to a new
//! log, with two good copies, before the old ones go.
//! Asks from below: the logs ([`read`](super::read)).

use super::block::Entry;
use super::error::StoreError;
use super::log::{FRAME, Log};
use super::map::{Map, Object, Touched};
use super::piece::Piece;
use super::read::{self, Contents};
use super::space::Space;
use super::{Shared, StoreOptions};
use crate::disk::{Disk, File};
use crate::frame::{ALIGN, Frame, Frames};
use std::sync::Arc;

/// Files by kind, with their sizes.
struct Found {
    slabs: Vec<(u32, u64)>,
    /// The latest first.
    logs: Vec<(u32, u64)>,
}

/// Opens what is there, or begins anew.
pub(super) async fn open(disk: Arc<dyn Disk>, frames: Frames, options: StoreOptions) -> Result<Shared, StoreError> {
    // seeded: options: options.check()? => ()
    options.check()?;
    let found = find(&*disk)?;
    let log_frame = || async { frames.wait(FRAME).await.map_err(|most| StoreError::TooLarge { asked: FRAME, most }) };
    let mut log_frames = [Some(log_frame().await?), Some(log_frame().await?)];
    let (generation, contents) = latest(&*disk, &found, &mut log_frames).await?;
    let space = Arc::new(Space::new(options.cap));
    // A slab of less than a page was being made when the program was killed.
    // seeded: slab_stump: *bytes >= ALIGN as u64 => true
    let (slabs, stumps): (Vec<_>, Vec<_>) = found.slabs.iter().partition(|(_, bytes)| *bytes >= ALIGN as u64);
    for (slab, bytes) in slabs {
        space.add(slab, bytes, true)?;
    }
    stumps.iter().for_each(|(slab, bytes)| {
        space.skip(*slab);
        space.count(*bytes);
    });
    let log_files = |earlier: bool| {
        let others = found.logs.iter().filter(move |(log, _)| *log != generation && (*log < generation) == earlier);
        others.map(|(log, bytes)| (File::Log(*log), *bytes))
    };
    let mut log = Log {
        generation,
        latest: found.logs.first().map_or(0, |(latest, _)| *latest),
        blocks: contents.blocks,
        ahead: 0,
        next: contents.next,
        whole: contents.whole,
        // Never written on: what a killed program wrote may be in some cache only, and one that was not synced is
        // not made durable by a later sync that says so. The next log says everything anew.
        broken: true,
        limbo: Vec::new(),
        anchor: None,
        spare: None,
        // Not the earlier logs: until the new one is durable, a power cut may bring one of them back.
        garbage: log_files(false).chain(stumps.into_iter().map(|(slab, bytes)| (File::Slab(slab), bytes))).collect(),
        frames: log_frames,
    };
    // This one has lost its end when the power went before its size was durable: as much is counted as is given back with it.
    let counted = |(of, bytes): &(u32, u64)| if *of == generation { log.bytes() } else { *bytes };
    found.logs.iter().for_each(|file| space.count(counted(file)));
    let map = map(contents, &space);
    let bytes = map.bytes;
    let shared = Shared::new(disk, frames, options, space, map);
    log.ahead = shared.blocks_for(bytes);
    shared.space.keep_free(log.reserve(log.ahead));
    shared.record(&mut log, &[], &Touched::new()).await?;
    log.garbage.extend(log_files(true));
    shared.sweep(&mut log).await;
    shared.fit(&mut log).await?;
    shared.lay_by(&mut log).await;
    *shared.log.lock().await = Some(log);
    Ok(shared)
}

fn find(disk: &dyn Disk) -> Result<Found, StoreError> {
    let mut found = Found { slabs: Vec::new(), logs: Vec::new() };
    for (file, bytes) in disk.files()? {
        match file {
            File::Slab(slab) => found.slabs.push((slab, bytes)),
            File::Log(log) => found.logs.push((log, bytes)),
        }
    }
    found.logs.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The latest log that is whole, and what it says. Without any: nothing. Where there is one the directory is ours, and so are
/// all files with such names, whatever was written over them; where there is none, a file that we did not write is another's.
async fn latest(
    disk: &dyn Disk,
    found: &Found,
    frames: &mut [Option<Frame>; 2],
) -> Result<(u32, Contents), StoreError> {
    let mut stranger = None;
    for log in &found.logs {
        let contents = read::read(disk, *log, frames).await?;
        // seeded: log_whole: contents.whole => true
        if contents.whole {
            return Ok((log.0, contents));
        }
        // seeded: log_stranger: contents.stranger => false
        if contents.stranger {
            stranger = Some(StoreError::Foreign { file: File::Log(log.0) });
        }
    }
    if let Some(foreign) = stranger {
        return Err(foreign);
    }
    // seeded: log_gone: found.slabs.first() => None
    match found.slabs.first() {
        // Slabs are made after the first log is whole: it is gone.
        Some((slab, _)) => Err(StoreError::Damaged { file: File::Slab(*slab) }),
        None => Ok((0, Contents::default())),
    }
}

/// Objects, with the room that their pieces take.
fn map(contents: Contents, space: &Arc<Space>) -> Map {
    let mut map = Map::default();
    let mut entries: Vec<Entry> = Vec::new();
    let mut last: Option<(Entry, Arc<Piece>)> = None;
    for (id, raw) in contents.objects {
        entries.extend(raw.parts.into_values());
        map.objects.insert(id, Object { meta: raw.meta.into(), parts: Vec::new() });
    }
    // From the last to the first in each slab, as the space wants them.
    entries.sort_unstable_by_key(|entry| std::cmp::Reverse((entry.slab, entry.page, entry.bytes, entry.crc)));
    for entry in entries {
        // A piece may be part of several objects, or several parts of one.
        let known = last.filter(|(known, _)| known.is_same_piece(&entry));
        let piece = known.map_or_else(|| recover(&entry, space), |(_, piece)| piece);
        map.objects.entry(entry.object).or_default().set(entry.part, Arc::clone(&piece));
        last = Some((entry, piece));
    }
    map.bytes = map.objects.values().map(Object::bytes).sum();
    map
}

/// The piece that a log names, with its room if that is nobody else's.
fn recover(entry: &Entry, space: &Arc<Space>) -> Arc<Piece> {
    let extent = space.claim(entry.slab, u64::from(entry.page) * ALIGN as u64, u64::from(entry.bytes));
    if extent.is_none() {
        // Its number names what is lost: no new slab may have it.
        space.skip(entry.slab);
    }
    Arc::new(Piece::recovered(entry, extent))
}
