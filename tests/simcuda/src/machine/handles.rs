//! Handles: what callers hold in place of objects.
//!
//! Upward: a handle never points anywhere; a stale, foreign or invented one is told apart from a live one, and a
//! destroyed one from one that never was. With `reuse` the newest handle that was destroyed comes again first, as
//! pointers of a heap do: for callers that take a handle for a name.

use std::collections::HashMap;

/// What a handle stands for: the upper bits of its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `CUcontext`.
    Context = 1,
    /// `CUstream`.
    Stream,
    /// `CUevent`.
    Event,
    /// `CUmemoryPool`.
    Pool,
    /// `CUmemGenericAllocationHandle`.
    Physical,
    /// `CUmodule`.
    Module,
    /// `CUfunction`.
    Function,
    /// `CUgraph`.
    Graph,
    /// `CUgraphExec`.
    Exec,
    /// `CUlibrary`.
    Library,
    /// `CUkernel`.
    Kernel,
    /// `CUlinkState`.
    Link,
    /// `CUgreenCtx`.
    Green,
    /// `CUdevResourceDesc`.
    Descriptor,
}

/// Handles are multiples of 16, as pointers are, with the kind above bit 48 and the world's generation above bit 32: no
/// mapping of the process lies there.
const KIND_SHIFT: u32 = 48;
const GENERATION_SHIFT: u32 = 32;
const STEP: u64 = 16;

/// Objects of one kind by their handle.
pub struct Table<T> {
    kind: Kind,
    /// Above all numbers given.
    next: u64,
    /// Below all numbers given.
    first: u64,
    /// Destroyed handles that may come again, newest last.
    free: Option<Vec<u64>>,
    live: HashMap<u64, T>,
}

impl<T> Table<T> {
    /// An empty table.
    pub fn new(kind: Kind, generation: u64, reuse: bool) -> Table<T> {
        let first = ((kind as u64) << KIND_SHIFT) + ((generation & 0xFFFF) << GENERATION_SHIFT) + STEP;
        Table { kind, next: first, first, free: reuse.then(Vec::new), live: HashMap::new() }
    }

    /// Gives the object a handle.
    pub fn insert(&mut self, object: T) -> u64 {
        let handle = self.free.as_mut().and_then(Vec::pop).unwrap_or_else(|| {
            self.next += STEP;
            self.next - STEP
        });
        self.live.insert(handle, object);
        handle
    }

    /// The object.
    pub fn get(&self, handle: u64) -> Option<&T> {
        self.live.get(&handle)
    }

    /// The object, to change.
    pub fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        self.live.get_mut(&handle)
    }

    /// Takes the object out; its handle is destroyed.
    pub fn remove(&mut self, handle: u64) -> Option<T> {
        let object = self.live.remove(&handle)?;
        self.free.iter_mut().for_each(|free| free.push(handle));
        Some(object)
    }

    /// Destroys all that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.live.retain(|_, object| keep(object));
    }

    /// All live objects, oldest handle first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let mut handles: Vec<u64> = self.live.keys().copied().collect();
        handles.sort_unstable();
        handles.into_iter().filter_map(|handle| Some((handle, self.live.get(&handle)?)))
    }

    /// How many live objects are of a kind.
    pub fn count(&self, of_kind: impl Fn(&T) -> bool) -> u64 {
        self.live.values().filter(|object| of_kind(object)).count() as u64
    }

    /// All live objects, to change, in any order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut()
    }

    /// What is the matter with a handle that is not live.
    pub fn fate(&self, handle: u64) -> String {
        let what = format!("{:?}", self.kind).to_lowercase();
        if handle == 0 {
            format!("null in place of a {what}")
        } else if (self.first..self.next).contains(&handle) && handle.is_multiple_of(STEP) {
            format!("{what} {handle:#x}, which was destroyed")
        } else {
            format!("{handle:#x}, which is no {what}")
        }
    }
}
