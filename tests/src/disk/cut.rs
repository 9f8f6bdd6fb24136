//! Power cuts: what the disk holds at the next start.
//!
//! Promises upward: what a sync covered is there; of everything later, also of orders that are still under way, any part may be
//! there, sector by sector and name by name, and of two writes to a sector either one. [`every_cut`] meets every combination
//! of parts, each write whole, not at all, its first half, its second half, up to a bound.

use super::dice::{Dice, Odometer};
use super::image::{Image, Pending, SECTOR, Way};
use super::names::{Change, Names, apply};
use super::{Marks, Planned, SimDisk, State};
use crate::Random;
use std::collections::{BTreeMap, BTreeSet};
use terrace_file::{ALIGN, DiskRequest, StoreFile};

/// What [`every_cut`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// Disks that were made.
    pub made: u64,
    /// Whether these were all combinations.
    pub complete: bool,
}

/// Every disk that a power cut now may leave: all combinations, or the first `bound` of them and then as many random ones.
pub fn every_cut(disk: &SimDisk, bound: u64, random: &mut Random, mut each: impl FnMut(SimDisk)) -> Cuts {
    let mut odometer = Odometer::default();
    for made in 1..=bound {
        each(disk.cut(&mut odometer));
        if !odometer.turn() {
            return Cuts { made, complete: true };
        }
    }
    (0..bound).for_each(|_| each(disk.cut(random)));
    Cuts { made: 2 * bound, complete: false }
}

/// How much survives of what was not synced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// All, in order.
    Everything,
    Nothing,
    /// Anything.
    Some,
}

impl SimDisk {
    /// The disk that a power cut now leaves. Faults that were to come still are.
    pub fn cut(&self, dice: &mut dyn Dice) -> Self {
        let state = self.state();
        let mood = match dice.counted_out() || dice.below(4) > 1 {
            true => Mood::Some,
            false if dice.below(2) == 0 => Mood::Everything,
            false => Mood::Nothing,
        };
        let (mut marks, mut images) = (Marks::default(), Vec::new());
        let mut names = BTreeMap::new();
        for (file, inode, whole) in state.names_left(mood, dice, &mut marks.names_lost) {
            // Those to a file that is gone again, and its name another's, went with it.
            let under_way = match state.names.now.get(&file) {
                Some(now) if *now == inode => state.writes_under_way(file),
                _ => Vec::new(),
            };
            let mut image = state.images[inode].cut(&under_way, mood, dice);
            if !whole && !image.sized {
                let bytes = size_left(image.now.len(), mood, dice);
                image = Image::settled(image.now[..bytes].to_vec(), BTreeSet::new());
            }
            image.sized = true;
            names.insert(file, images.len());
            images.push(image);
        }
        for (file, bytes) in state.creates_under_way(&names, mood, dice) {
            names.insert(file, images.len());
            images.push(Image::settled(vec![0; bytes], BTreeSet::new()));
        }
        let names = Names { now: names.clone(), durable: names, pending: Vec::new() };
        let next = Self::with(state.capacity, names, images, marks);
        let to_come = |planned: &Planned| Planned { at: planned.at.saturating_sub(state.index), ..*planned };
        next.plan(state.plan.iter().map(to_come).collect());
        next
    }
}

/// How much there is of a file that was just made.
fn size_left(bytes: usize, mood: Mood, dice: &mut dyn Dice) -> usize {
    match (mood, dice.counted_out()) {
        (Mood::Everything, _) => bytes,
        (Mood::Nothing, _) => 0,
        (Mood::Some, true) => [bytes, 0][dice.below(2) as usize],
        (Mood::Some, false) => dice.below((bytes / ALIGN) as u64 + 1) as usize * ALIGN,
    }
}

fn happens(mood: Mood, dice: &mut dyn Dice) -> bool {
    match mood {
        Mood::Everything => true,
        Mood::Nothing => false,
        Mood::Some => dice.below(2) == 1,
    }
}

impl State {
    /// Names that are there, and whether each file's size is sure.
    fn names_left(&self, mood: Mood, dice: &mut dyn Dice, lost: &mut u64) -> Vec<(StoreFile, usize, bool)> {
        let mut names = self.names.durable.clone();
        let removes = self.queue.iter().filter_map(|queued| match queued.order {
            DiskRequest::Remove { file } => Some(Change { file, to: None, answered: self.index, promised: false }),
            _ => None,
        });
        let changes: Vec<Change> = self.names.pending.iter().copied().chain(removes).collect();
        for change in &changes {
            if happens(mood, dice) {
                apply(&mut names, change.file, change.to);
            }
        }
        *lost +=
            changes.iter().enumerate().filter(|(at, change)| change.promised && !kept(&names, &changes[*at..])).count()
                as u64;
        let sure = |file, inode| self.names.durable.get(file) == Some(inode) || self.promised(*file, *inode);
        names.iter().map(|(file, inode)| (*file, *inode, sure(file, inode))).collect()
    }

    fn promised(&self, file: StoreFile, inode: usize) -> bool {
        self.names.pending.iter().any(|change| change.promised && (change.file, change.to) == (file, Some(inode)))
    }

    fn writes_under_way(&self, file: StoreFile) -> Vec<Pending> {
        let writes = self.queue.iter().filter_map(|queued| match &queued.order {
            DiskRequest::Write { file: of, offset, bytes, frame } if *of == file => {
                let (first, bytes) = (*offset as usize / SECTOR, frame[..*bytes].to_vec());
                Some(Pending { first, bytes, answered: self.index, promised: false, way: Way::Right })
            }
            _ => None,
        });
        let bytes = self.names.now.get(&file).map_or(0, |&inode| self.images[inode].now.len());
        writes.filter(|write| write.first * SECTOR + write.bytes.len() <= bytes).collect()
    }

    fn creates_under_way(
        &self,
        there: &BTreeMap<StoreFile, usize>,
        mood: Mood,
        dice: &mut dyn Dice,
    ) -> Vec<(StoreFile, usize)> {
        let mut made = Vec::new();
        for queued in &self.queue {
            if let DiskRequest::Create { file, bytes } = queued.order
                && !there.contains_key(&file)
                && happens(mood, dice)
            {
                made.push((file, size_left(bytes as usize, mood, dice)));
            }
        }
        made
    }
}

/// Whether a name is as the first of these changes, or a later one of the same name, made it.
fn kept(names: &BTreeMap<StoreFile, usize>, changes: &[Change]) -> bool {
    let file = changes[0].file;
    changes.iter().any(|change| change.file == file && names.get(&file).copied() == change.to)
}

impl Image {
    /// What is left, and of it what should be otherwise.
    fn cut(&self, under_way: &[Pending], mood: Mood, dice: &mut dyn Dice) -> Self {
        let mut writes: Vec<&Pending> = self.pending.iter().chain(under_way).collect();
        let mut left = Self::settled(self.durable.clone(), self.rotten.clone());
        left.sized = self.sized;
        if mood == Mood::Some && meet(&writes) {
            shuffle(&mut writes, dice);
        }
        if mood != Mood::Nothing {
            writes.iter().for_each(|write| left.keep(write, mood, dice));
        }
        self.betrayed(under_way, &mut left);
        left.damaged = left.rotten.clone();
        left
    }

    /// Keeps some sectors of a write.
    fn keep(&mut self, write: &Pending, mood: Mood, dice: &mut dyn Dice) {
        let sectors = write.bytes.len() / SECTOR;
        let kept = if mood == Mood::Everything { Kept::Whole } else { Kept::any(sectors, dice) };
        if write.way == Way::Lost {
            return;
        }
        for (index, bytes) in write.bytes.chunks_exact(SECTOR).enumerate() {
            let sector = write.first + index;
            if kept.has(index, dice) {
                self.durable[sector * SECTOR..][..SECTOR].copy_from_slice(bytes);
                self.now[sector * SECTOR..][..SECTOR].copy_from_slice(bytes);
                match write.way {
                    Way::Stray => _ = self.rotten.insert(sector),
                    _ => _ = self.rotten.remove(&sector),
                }
            }
        }
    }

    /// Marks the sectors that a sync had promised, and that hold neither what it promised nor anything later.
    fn betrayed(&self, under_way: &[Pending], left: &mut Self) {
        for (at, write) in self.pending.iter().enumerate().filter(|(_, write)| write.promised) {
            for sector in write.first..write.first + write.bytes.len() / SECTOR {
                let mut later = self.pending[at..].iter().chain(under_way);
                let is = &left.durable[sector * SECTOR..][..SECTOR];
                if !later.any(|write| write.way == Way::Right && write.sector(sector) == Some(is)) {
                    left.rotten.insert(sector);
                }
            }
        }
    }
}

impl Pending {
    /// What it writes to a sector.
    fn sector(&self, sector: usize) -> Option<&[u8]> {
        self.bytes.chunks_exact(SECTOR).nth(sector.checked_sub(self.first)?)
    }
}

/// Which sectors of a write are kept.
enum Kept {
    None,
    Whole,
    /// The first so many.
    First(usize),
    /// All after these.
    After(usize),
    /// Each or not.
    Any,
}

impl Kept {
    fn any(sectors: usize, dice: &mut dyn Dice) -> Self {
        let options = if sectors > 1 { 4 } else { 2 };
        let half = |dice: &mut dyn Dice| match dice.counted_out() {
            true => sectors / 2,
            false => dice.below(sectors as u64) as usize,
        };
        match dice.below(if dice.counted_out() { options } else { options + 1 }) {
            0 => Self::None,
            1 => Self::Whole,
            2 if options == 4 => Self::First(half(dice)),
            3 if options == 4 => Self::After(half(dice)),
            _ => Self::Any,
        }
    }

    fn has(&self, index: usize, dice: &mut dyn Dice) -> bool {
        match *self {
            Self::None => false,
            Self::Whole => true,
            Self::First(sectors) => index < sectors,
            Self::After(sectors) => index >= sectors,
            Self::Any => dice.below(2) == 1,
        }
    }
}

/// Whether two writes touch the same sector.
fn meet(writes: &[&Pending]) -> bool {
    let ends = |write: &Pending| (write.first, write.first + write.bytes.len() / SECTOR);
    let mut places: Vec<_> = writes.iter().map(|write| ends(write)).collect();
    places.sort_unstable();
    places.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

/// Any order; counted out, only that of the answers and its reverse.
fn shuffle<T>(items: &mut [T], dice: &mut dyn Dice) {
    if dice.counted_out() {
        if dice.below(2) == 1 {
            items.reverse();
        }
        return;
    }
    for at in (1..items.len()).rev() {
        items.swap(at, dice.below(at as u64 + 1) as usize);
    }
}
