//! How a buffer is created and opened.
//!
//! Promises upward: what is opened is what was asked for: its user, its size, its type; or a typed error.
//! Asks from below: the socket, the memory, the file.

use crate::backing::{Backing, BackingMemory};
use crate::buffer::SharedBuffer;
use crate::error::ShmError;
use crate::file::ShmFile;
use crate::layout::{BufferHeader, Element, HEADER_BYTES, USERS, Way};
use crate::locks::LockFile;
use crate::memory::{SealedMemory, reopen};
use crate::name::BufferName;
use crate::server::serve;
use crate::shared::{OpenBuffer, milliseconds, take_slot};
use crate::socket::{NameSearch, fetch, listen};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// How long an opener waits for a holder's answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// What longer patience is cut to: a day, which every clock can add.
const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Options for creating and opening shared buffers.
///
/// # Example
/// ```
/// use terrace_shm::{SharedBuffer, Way};
/// let name = format!("options-{}", std::process::id());
/// let options = SharedBuffer::options().way(Way::Memfd).element::<f32>("samples v1");
/// let made = options.create(&name, 4096)?;
/// assert_eq!(options.open(&name)?.bytes(), 4096);
/// assert!(SharedBuffer::options().element::<u8>("pixels").open(&name).is_err());
/// # Ok::<(), terrace_shm::ShmError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ShmOptions {
    way: Option<Way>,
    element: Option<Element>,
    expected: Option<usize>,
    users: Vec<u32>,
    owner: Option<u32>,
    patience: Option<Duration>,
}

impl SharedBuffer {
    /// Options for creating and opening.
    pub fn options() -> ShmOptions {
        ShmOptions::default()
    }

    /// Creates a sealed buffer of `bytes` zeros: [`ShmOptions::create`].
    ///
    /// # Errors
    /// As [`ShmOptions::create`].
    pub fn create(name: &str, bytes: usize) -> Result<Self, ShmError> {
        Self::options().create(name, bytes)
    }

    /// Opens a buffer of this user's, in either way: [`ShmOptions::open`].
    ///
    /// # Errors
    /// As [`ShmOptions::open`].
    pub fn open(name: &str) -> Result<Self, ShmError> {
        Self::options().open(name)
    }
}

impl ShmOptions {
    /// The way to create with, and the only one to open.
    ///
    /// Unless set, [`Way::Memfd`] to create, and both to open, memfd first.
    pub fn way(mut self, way: Way) -> Self {
        self.way = Some(way);
        self
    }

    /// The type of the elements, which creator and openers must share.
    ///
    /// Size, alignment and the caller's tag are compared.
    pub fn element<T>(mut self, tag: &str) -> Self {
        self.element = Some(Element::of::<T>(tag));
        self
    }

    /// The size in bytes that an opener expects.
    pub fn expect_bytes(mut self, bytes: usize) -> Self {
        self.expected = Some(bytes);
        self
    }

    /// Allows one more user: to open what is created here, and as the holder of what is opened here.
    ///
    /// At most 8, and under [`Way::Memfd`] only.
    pub fn allow_user(mut self, uid: u32) -> Self {
        self.users.push(uid);
        self
    }

    /// The user whose buffer is opened; this process's own unless set.
    pub fn owner(mut self, uid: u32) -> Self {
        self.owner = Some(uid);
        self
    }

    /// How long an opener waits for a holder's answer; 2 seconds unless set, a day at most.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Creates a buffer of `bytes` zeros. Takes the time to reserve the memory.
    ///
    /// # Errors
    /// [`Name`](ShmError::Name), [`Exists`](ShmError::Exists), [`Squatted`](ShmError::Squatted), [`Foreign`](ShmError::Foreign)
    /// for a name that cannot be taken; [`Size`](ShmError::Size), [`NoMemory`](ShmError::NoMemory), [`Users`](ShmError::Users)
    /// for what a buffer cannot be;
    /// [`NoProc`](ShmError::NoProc); [`System`](ShmError::System), also for memory that is not there.
    pub fn create(&self, name: &str, bytes: usize) -> Result<SharedBuffer, ShmError> {
        let name = BufferName::new(name)?;
        let owner = rustix::process::geteuid().as_raw();
        let search = self.search(&name, owner);
        if bytes == 0 || bytes > isize::MAX as usize / 2 {
            return Err(ShmError::Size { name: name.text(), bytes: bytes as u64 });
        }
        let way = self.way.unwrap_or(Way::Memfd);
        let most = if way == Way::Memfd { USERS } else { 0 };
        if self.users.len() > most {
            return Err(ShmError::Users { name: name.text(), users: self.users.len(), most });
        }
        let header = BufferHeader {
            way,
            bytes: bytes as u64,
            element: self.element.clone().unwrap_or_default(),
            creator_slot: 0,
            creator_pid: std::process::id(),
            since: milliseconds(),
            owner,
            users: self.users.clone(),
        };
        match way {
            Way::Memfd => create_sealed(&search, header),
            Way::File => create_file(&search, header),
        }
    }

    /// Opens a buffer that a living process holds.
    ///
    /// # Errors
    /// [`NotFound`](ShmError::NotFound), and what stands at the name instead: [`Squatted`](ShmError::Squatted),
    /// [`Refused`](ShmError::Refused), [`Foreign`](ShmError::Foreign), [`Silent`](ShmError::Silent),
    /// [`Damaged`](ShmError::Damaged), [`CutShort`](ShmError::CutShort), [`OtherSize`](ShmError::OtherSize),
    /// [`OtherType`](ShmError::OtherType), [`Full`](ShmError::Full), [`NoProc`](ShmError::NoProc), [`System`](ShmError::System).
    pub fn open(&self, name: &str) -> Result<SharedBuffer, ShmError> {
        let name = BufferName::new(name)?;
        let search = self.search(&name, self.owner.unwrap_or_else(|| rustix::process::geteuid().as_raw()));
        match self.way {
            Some(Way::Memfd) => self.open_sealed(&search),
            Some(Way::File) => self.open_file(&search),
            None => match self.open_sealed(&search) {
                Err(ShmError::NotFound { .. }) => self.open_file(&search),
                told => told,
            },
        }
    }

    /// Opens a buffer, or creates it where there is none.
    ///
    /// What is opened must have `bytes` bytes and this user as owner.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(&self, name: &str, bytes: usize) -> Result<SharedBuffer, ShmError> {
        // What another user owns cannot be created here.
        let opens = Self { owner: None, ..self.clone().expect_bytes(bytes) };
        loop {
            match opens.open(name) {
                Err(ShmError::NotFound { .. }) => {}
                told => return told,
            }
            match self.create(name, bytes) {
                // Another process was faster.
                Err(ShmError::Exists { .. }) => {}
                told => return told,
            }
        }
    }

    fn search<'a>(&'a self, name: &'a BufferName, owner: u32) -> NameSearch<'a> {
        NameSearch {
            name,
            owner,
            users: &self.users,
            patience: self.patience.unwrap_or(PATIENCE).min(LONGEST_PATIENCE),
        }
    }

    fn open_sealed(&self, search: &NameSearch<'_>) -> Result<SharedBuffer, ShmError> {
        let received = fetch(search)?;
        let memory = SealedMemory::open(search.name, received.memory)?;
        let (file, whole_bytes) = (memory.file(), memory.whole_bytes() as u64);
        let backing = Backing { memory: BackingMemory::Sealed(memory), name: search.name.clone(), whole_bytes };
        let header = self.accepted(search, &backing)?;
        let locks = LockFile::new(Arc::new(reopen(file.as_fd())?));
        let slot = take_slot(&backing, &locks, milliseconds())?;
        let mut buffer = OpenBuffer::new(backing, header, locks, slot);
        buffer.served = Some(serve(received.listener, file, &buffer.header)?);
        Ok(SharedBuffer::new(buffer))
    }

    fn open_file(&self, search: &NameSearch<'_>) -> Result<SharedBuffer, ShmError> {
        let file = ShmFile::open(search)?;
        let (locks, whole_bytes) = (file.locks(), file.length());
        let backing = Backing { memory: BackingMemory::File(file), name: search.name.clone(), whole_bytes };
        let header = self.accepted(search, &backing)?;
        let slot = take_slot(&backing, &locks, milliseconds())?;
        Ok(SharedBuffer::new(OpenBuffer::new(backing, header, locks, slot)))
    }

    /// The header, if it is what this opener expects.
    fn accepted(&self, search: &NameSearch<'_>, backing: &Backing) -> Result<BufferHeader, ShmError> {
        let header = backing.header()?;
        if header.owner != search.owner {
            return Err(ShmError::Damaged { name: backing.name.text(), what: "it states another owner" });
        }
        let name = || backing.name.text();
        if let Some(asked) = self.expected.map(|asked| asked as u64).filter(|asked| *asked != header.bytes) {
            return Err(ShmError::OtherSize { name: name(), asked, found: header.bytes });
        }
        match &self.element {
            Some(asked) if *asked != header.element => {
                Err(ShmError::OtherType { name: name(), asked: asked.text(), found: header.element.text() })
            }
            _ => Ok(header),
        }
    }
}

fn create_sealed(search: &NameSearch<'_>, header: BufferHeader) -> Result<SharedBuffer, ShmError> {
    let memory = SealedMemory::create(search.name, header.whole_bytes())?;
    let (file, whole_bytes) = (memory.file(), header.whole_bytes());
    let backing = Backing { memory: BackingMemory::Sealed(memory), name: search.name.clone(), whole_bytes };
    backing.format(&header)?;
    let locks = LockFile::new(Arc::new(reopen(file.as_fd())?));
    let slot = take_slot(&backing, &locks, header.since)?;
    let mut buffer = OpenBuffer::new(backing, header, locks, slot);
    // The last step: from now on openers find all of it.
    let listener = listen(search)?;
    buffer.served = Some(serve(listener, file, &buffer.header)?);
    Ok(SharedBuffer::new(buffer))
}

fn create_file(search: &NameSearch<'_>, header: BufferHeader) -> Result<SharedBuffer, ShmError> {
    let file = ShmFile::create(search, header.whole_bytes())?;
    let locks = file.locks();
    let backing =
        Backing { memory: BackingMemory::File(file), name: search.name.clone(), whole_bytes: header.whole_bytes() };
    backing.format(&header)?;
    let slot = take_slot(&backing, &locks, header.since)?;
    if let BackingMemory::File(file) = &backing.memory {
        // The last step: from now on openers find all of it.
        file.link(search)?;
    }
    Ok(SharedBuffer::new(OpenBuffer::new(backing, header, locks, slot)))
}

const _: () = assert!(HEADER_BYTES == crate::pages::PAGE_BYTES);
