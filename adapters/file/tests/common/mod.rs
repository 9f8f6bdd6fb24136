//! A store in a directory, on a disk that the test can fill.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_file::{
    Change, Directory, Disk, DiskRequest, DiskResponse, EngineKind, Executor, FileFault, FileFaultReason, FramePool,
    Piece, ResponseSender, Store, StoreError, StoreFile, StoreOptions,
};

pub const PIECE: usize = 10_000;

/// Opens a store with that engine; `None` if this user may not use io_uring.
pub fn open_by(directory: &Path, kind: EngineKind) -> Option<StoreFixture> {
    open_with(directory, kind, options()).map_err(|error| assert!(kind == EngineKind::IoUring, "{error}")).ok()
}

pub fn options() -> StoreOptions {
    StoreOptions { cap: 8 << 20, slab_bytes: 1 << 20, log_bytes: 64 << 10 }
}

/// A directory on a disk that is full, or whose logs fail to sync, from some moment on.
pub struct FillingDisk {
    directory: Directory,
    pub full: AtomicBool,
    pub stuck: AtomicBool,
}

impl Disk for FillingDisk {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        self.directory.files()
    }

    fn submit(&self, order: DiskRequest, reply: ResponseSender) {
        let refused = match order {
            DiskRequest::Create { file, .. } => {
                self.full.load(Ordering::Relaxed).then_some((file, FileFaultReason::Full))
            }
            DiskRequest::Sync { file: file @ StoreFile::Log(_) } => {
                self.stuck.load(Ordering::Relaxed).then_some((file, FileFaultReason::Device))
            }
            _ => None,
        };
        let Some((file, reason)) = refused else { return self.directory.submit(order, reply) };
        let fault = FileFault { call: "test", file: file.to_string(), offset: 0, code: 0, reason };
        drop(reply.send(DiskResponse::without_frame(Err(fault))));
    }
}

pub struct StoreFixture {
    pub store: Store,
    pub frames: FramePool,
    /// Dropped last: its threads run the store's tasks.
    pub disk: Arc<FillingDisk>,
}

pub fn open_with(path: &Path, kind: EngineKind, options: StoreOptions) -> Result<StoreFixture, StoreError> {
    let (tasks, frames) = (Executor::new(), FramePool::new(8 << 20).expect("memory"));
    let directory = Directory::open(path, kind, &tasks)?;
    let disk = Arc::new(FillingDisk { directory, full: AtomicBool::new(false), stuck: AtomicBool::new(false) });
    let store = Store::open(Arc::clone(&disk) as Arc<dyn Disk>, &tasks, &frames, options).wait()?;
    Ok(StoreFixture { store, frames, disk })
}

pub fn open(path: &Path) -> StoreFixture {
    open_with(path, EngineKind::Best, options()).expect("it opens")
}

impl StoreFixture {
    pub fn put(&self, byte: u8) -> Result<Arc<Piece>, StoreError> {
        let mut frame = self.frames.take(PIECE).expect("room");
        frame[..PIECE].fill(byte);
        self.store.put(frame, PIECE).wait().result
    }

    pub fn holds(&self, piece: &Arc<Piece>, byte: u8) -> bool {
        let frame = self.store.get(piece).wait().expect("it is there");
        frame[..piece.bytes()].iter().all(|&read| read == byte)
    }

    /// Commits an object of one part.
    pub fn keep(&self, object: u64, byte: u8) -> Result<(), StoreError> {
        let piece = self.put(byte)?;
        let meta = Change::Meta { object, meta: vec![byte; 3] };
        self.store.commit(vec![meta, Change::Piece { object, part: 0, piece }]).wait()
    }

    pub fn part(&self, object: u64) -> Arc<Piece> {
        let object = self.store.object(object).expect("it is there");
        Arc::clone(object.parts.get(0).expect("a part"))
    }
}

pub fn names(path: &Path) -> Vec<StoreFile> {
    let entries = std::fs::read_dir(path).expect("a directory");
    entries.filter_map(|entry| StoreFile::from_name(entry.expect("an entry").file_name().to_str()?)).collect()
}

pub fn on_disk(path: &Path) -> u64 {
    names(path).iter().map(|file| path.join(file.to_string()).metadata().expect("a file").len()).sum()
}
