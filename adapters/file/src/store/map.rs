//! The durable objects, and changes to them.
//!
//! Promises upward: the map applies the changes of a group all at once, after they are durable.

use super::block::BlockWriter;
use super::error::StoreError;
use super::piece::Piece;
use super::record::{LogRecord, MAX_META_BYTES, MAX_PARTS, META_BYTES, PIECE_BYTES};
use super::space::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A durable object: meta data and parts.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// The meta data that the last [`Change::Meta`] set; empty if none did.
    pub meta: Arc<[u8]>,
    /// The committed parts.
    pub parts: ObjectParts,
}

/// The parts of an object, in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub struct ObjectParts(Parts);

/// Most objects have one part: a table for it would take ten times its bytes.
#[derive(Clone, Debug, Default)]
enum Parts {
    #[default]
    None,
    One(u32, Arc<Piece>),
    Many(BTreeMap<u32, Arc<Piece>>),
}

impl ObjectParts {
    /// The piece that is a part, by the part's number; `None` if there is no such part.
    pub fn get(&self, part: u32) -> Option<&Arc<Piece>> {
        match &self.0 {
            Parts::None => None,
            Parts::One(one, piece) => (*one == part).then_some(piece),
            Parts::Many(parts) => parts.get(&part),
        }
    }

    /// The numbers of the parts, and the pieces.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Piece>)> {
        let (one, many) = match &self.0 {
            Parts::None => (None, None),
            Parts::One(part, piece) => (Some((*part, piece)), None),
            Parts::Many(parts) => (None, Some(parts)),
        };
        one.into_iter().chain(many.into_iter().flatten().map(|(part, piece)| (*part, piece)))
    }

    /// Number of parts.
    pub fn count(&self) -> usize {
        match &self.0 {
            Parts::None => 0,
            Parts::One(..) => 1,
            Parts::Many(parts) => parts.len(),
        }
    }

    /// Sets a part, in place of any part with this number.
    pub(super) fn insert(&mut self, part: u32, piece: Arc<Piece>) {
        self.0 = match std::mem::take(&mut self.0) {
            Parts::None => Parts::One(part, piece),
            Parts::One(one, _) if one == part => Parts::One(part, piece),
            Parts::One(one, first) => Parts::Many(BTreeMap::from([(one, first), (part, piece)])),
            Parts::Many(mut parts) => {
                parts.insert(part, piece);
                Parts::Many(parts)
            }
        };
    }
}

/// One of the changes that a commit makes durable.
#[derive(Clone, Debug)]
pub enum Change {
    /// Creates an object without parts, in place of any object with this number.
    Meta {
        /// The object's number.
        object: u64,
        /// The meta data, at most [`MAX_META_BYTES`] bytes.
        meta: Vec<u8>,
    },
    /// Sets a part of an object, in place of the part's earlier bytes.
    ///
    /// Creates the object, without meta data, if it does not exist.
    Piece {
        /// The object's number.
        object: u64,
        /// The part's number, below [`MAX_PARTS`].
        part: u32,
        /// The part's bytes. One piece may serve as several parts; it is stored once.
        piece: Arc<Piece>,
    },
    /// Removes an object.
    Remove {
        /// The object's number.
        object: u64,
    },
}

impl Change {
    /// Checks that a store with this space may commit the change.
    ///
    /// # Errors
    /// [`StoreError::MetaTooLong`], [`StoreError::BadOptions`], [`StoreError::OtherPiece`].
    pub(super) fn check(&self, space: &Arc<Space>) -> Result<(), StoreError> {
        match self {
            Self::Meta { meta, .. } if meta.len() > MAX_META_BYTES => {
                Err(StoreError::MetaTooLong { bytes: meta.len(), most: MAX_META_BYTES })
            }
            Self::Piece { part, .. } if *part >= MAX_PARTS => {
                Err(StoreError::BadOptions("an object has 2^24 parts at most"))
            }
            // seeded: piece_of_another_kept: !piece.is_in(space) => false
            Self::Piece { piece, .. } if !piece.is_in(space) => Err(StoreError::OtherPiece),
            _ => Ok(()),
        }
    }

    /// The piece that the change makes durable, if any.
    pub(super) fn piece(&self) -> Option<&Arc<Piece>> {
        match self {
            Self::Piece { piece, .. } => Some(piece),
            Self::Meta { .. } | Self::Remove { .. } => None,
        }
    }

    fn object(&self) -> u64 {
        match self {
            Self::Meta { object, .. } | Self::Piece { object, .. } | Self::Remove { object } => *object,
        }
    }

    /// Appends the log record of the change to `writer`.
    pub(super) fn record(&self, writer: &mut BlockWriter) {
        match self {
            Self::Meta { object, meta } => writer.push(&LogRecord::Meta { object: *object, meta }),
            Self::Piece { object, part, piece } => writer.push(&LogRecord::Piece(piece.entry(*object, *part))),
            Self::Remove { object } => writer.push(&LogRecord::Removed { object: *object }),
        }
    }
}

/// The objects that a group changes, by number, as they are after the group; `None` if removed.
pub(super) type Updates = BTreeMap<u64, Option<Object>>;

/// All durable objects.
#[derive(Debug, Default)]
pub(super) struct ObjectMap {
    pub objects: BTreeMap<u64, Object>,
    /// Total bytes of the log records in a snapshot of these objects.
    pub bytes: u64,
}

impl ObjectMap {
    /// The objects that the changes touch, as they will be after the changes.
    pub(super) fn after<'a>(&self, changes: impl Iterator<Item = &'a Change>) -> Updates {
        let mut touched = Updates::new();
        for change in changes {
            let id = change.object();
            let object = touched.entry(id).or_insert_with(|| self.objects.get(&id).cloned());
            match change {
                Change::Meta { meta, .. } => {
                    *object = Some(Object { meta: meta[..].into(), parts: ObjectParts::default() });
                }
                Change::Piece { part, piece, .. } => {
                    object.get_or_insert_default().parts.insert(*part, Arc::clone(piece));
                }
                Change::Remove { .. } => *object = None,
            }
        }
        touched
    }

    /// Total bytes of the log records in a snapshot after the updates.
    pub(super) fn bytes_after(&self, touched: &Updates) -> u64 {
        let bytes = |object: Option<&Object>| object.map_or(0, Object::bytes);
        touched.iter().fold(self.bytes, |sum, (id, object)| sum - bytes(self.objects.get(id)) + bytes(object.as_ref()))
    }

    /// Applies updates, and returns the replaced objects. The caller must drop those after unlocking the map.
    pub(super) fn apply(&mut self, touched: Updates) -> Vec<Option<Object>> {
        self.bytes = self.bytes_after(&touched);
        let put = |(id, object): (u64, Option<Object>)| match object {
            Some(object) => self.objects.insert(id, object),
            None => self.objects.remove(&id),
        };
        touched.into_iter().map(put).collect()
    }

    /// The records of all objects after the updates: the first group of a new log.
    pub(super) fn snapshot(&self, touched: &Updates) -> BlockWriter {
        let mut writer = BlockWriter::default();
        let kept = self.objects.iter().filter(|(id, _)| !touched.contains_key(id));
        let new = touched.iter().filter_map(|(id, object)| Some((id, object.as_ref()?)));
        for (id, object) in kept.chain(new) {
            object.records(*id).for_each(|record| writer.push(&record));
        }
        writer
    }
}

impl Object {
    /// The records of the object in a snapshot.
    fn records(&self, object: u64) -> impl Iterator<Item = LogRecord<'_>> {
        let pieces = self.parts.iter().map(move |(part, piece)| LogRecord::Piece(piece.entry(object, part)));
        std::iter::once(LogRecord::Meta { object, meta: &self.meta }).chain(pieces)
    }

    /// Total bytes of the object's records in a snapshot.
    pub(super) fn bytes(&self) -> u64 {
        META_BYTES + self.meta.len() as u64 + PIECE_BYTES * self.parts.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::PieceEntry;
    use super::*;

    #[test]
    fn parts_come_in_the_order_of_their_numbers_and_a_later_one_replaces_an_earlier_one() {
        let space = Arc::new(Space::new(1 << 20));
        let piece = |crc| {
            let entry = PieceEntry { object: 1, part: 0, slab: 1, page: 0, bytes: 7, crc };
            Arc::new(Piece::recovered(&entry, Err(false), &space))
        };
        let mut object = Object { meta: [1, 2, 3][..].into(), ..Object::default() };
        let mut expected = BTreeMap::new();
        for (part, crc) in [(5, 1), (5, 2), (9, 3), (2, 4), (9, 5)] {
            object.parts.insert(part, piece(crc));
            expected.insert(part, crc);
            assert_eq!(
                object.parts.iter().map(|(part, piece)| (part, piece.crc)).collect::<BTreeMap<_, _>>(),
                expected
            );
            assert!(object.parts.iter().map(|(part, _)| part).is_sorted());
            assert_eq!(object.parts.count(), expected.len());
            assert_eq!(object.bytes(), object.records(1).map(|record| record.length() as u64).sum::<u64>());
            assert!(expected.iter().all(|(part, crc)| object.parts.get(*part).is_some_and(|piece| piece.crc == *crc)));
            assert!(object.parts.get(1).is_none());
        }
    }
}
