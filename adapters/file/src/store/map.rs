//! What is durable: objects, and where their parts lie.
//!
//! Promises upward: a group's changes are worked out beside the map and then put in at once.

use super::block::BlockWriter;
use super::error::StoreError;
use super::piece::Piece;
use super::record::{LogRecord, MAX_META_BYTES, MAX_PARTS};
use super::space::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A durable object: what its owner says of it, and its parts.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// What its owner says of it.
    pub meta: Arc<[u8]>,
    /// Its parts, by number: those that were committed.
    pub parts: BTreeMap<u32, Arc<Piece>>,
}

/// A change to what is durable.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new object in place of any that had this number: without parts so far.
    Meta {
        /// Its number.
        object: u64,
        /// What its owner says of it, at most [`MAX_META_BYTES`] bytes.
        meta: Vec<u8>,
    },
    /// A part of an object, in place of what was there. Of an object that there is not: one without meta data.
    Piece {
        /// Its number.
        object: u64,
        /// Which part, below [`MAX_PARTS`].
        part: u32,
        /// The bytes, which may be other parts as well: they are there once.
        piece: Arc<Piece>,
    },
    /// The object goes.
    Remove {
        /// Its number.
        object: u64,
    },
}

impl Change {
    /// Whether a store with this space takes it.
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

    /// The piece that it makes durable.
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

    /// Puts it on a log.
    pub(super) fn record(&self, writer: &mut BlockWriter) {
        match self {
            Self::Meta { object, meta } => writer.push(&LogRecord::Meta { object: *object, meta }),
            Self::Piece { object, part, piece } => writer.push(&LogRecord::Piece(piece.entry(*object, *part))),
            Self::Remove { object } => writer.push(&LogRecord::Removed { object: *object }),
        }
    }
}

/// Objects as they will be; `None`: gone.
pub(super) type Updates = BTreeMap<u64, Option<Object>>;

/// All durable objects.
#[derive(Debug, Default)]
pub(super) struct ObjectMap {
    pub objects: BTreeMap<u64, Object>,
    /// Bytes of the records that say all of them.
    pub bytes: u64,
}

impl ObjectMap {
    /// The objects that changes touch, as they are after them.
    pub(super) fn after<'a>(&self, changes: impl Iterator<Item = &'a Change>) -> Updates {
        let mut touched = Updates::new();
        for change in changes {
            let id = change.object();
            let object = touched.entry(id).or_insert_with(|| self.objects.get(&id).cloned());
            match change {
                Change::Meta { meta, .. } => *object = Some(Object { meta: meta[..].into(), parts: BTreeMap::new() }),
                Change::Piece { part, piece, .. } => {
                    object.get_or_insert_default().parts.insert(*part, Arc::clone(piece));
                }
                Change::Remove { .. } => *object = None,
            }
        }
        touched
    }

    /// Bytes of the records that say all objects, with these as they will be.
    pub(super) fn bytes_after(&self, touched: &Updates) -> u64 {
        let bytes = |object: Option<&Object>| object.map_or(0, Object::bytes);
        touched.iter().fold(self.bytes, |sum, (id, object)| sum - bytes(self.objects.get(id)) + bytes(object.as_ref()))
    }

    /// Puts them in; what they replace is given back, to be dropped without locks.
    pub(super) fn apply(&mut self, touched: Updates) -> Vec<Option<Object>> {
        self.bytes = self.bytes_after(&touched);
        let put = |(id, object): (u64, Option<Object>)| match object {
            Some(object) => self.objects.insert(id, object),
            None => self.objects.remove(&id),
        };
        touched.into_iter().map(put).collect()
    }

    /// Everything, as a log that begins anew says it; `touched` in place of what is in the map.
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
    /// All that is said of it.
    fn records(&self, object: u64) -> impl Iterator<Item = LogRecord<'_>> {
        let pieces = self.parts.iter().map(move |(part, piece)| LogRecord::Piece(piece.entry(object, *part)));
        std::iter::once(LogRecord::Meta { object, meta: &self.meta }).chain(pieces)
    }

    /// Bytes of that.
    pub(super) fn bytes(&self) -> u64 {
        self.records(0).map(|record| record.length() as u64).sum()
    }
}
