//! Addresses for drivers whose memory comes in objects: `cl_mem`, `VkDeviceMemory` with a `VkBuffer`, `MTLBuffer`.
//!
//! ```text
//!   take:  object ──insert──► address, of addresses that no pointer has      Backend::take gives the address
//!   copy:  address ──find──► object, offset                                  what the driver's calls take
//! ```
//!
//! All code above a backend counts in addresses, so that arenas, streams, blocks and copies are the same for every driver, and a driver
//! that has addresses pays nothing. A backend of objects keeps an [`ObjectSpace`], and looks addresses up when it makes a call.
//!
//! Promises upward: addresses of objects never overlap, and those that are made up are never used twice; lookups are O(log objects)
//! under a shared lock.
//! Asks from below: nothing.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// First address of objects: 2^48, above all pointers that a system gives unasked (47 bits, or 48 on AArch64).
const FIRST: u64 = 1 << 48;

/// Objects begin at multiples of this, the largest alignment of a block: an offset is aligned as its address is.
const ALIGN: u64 = 2 << 20;

/// Addresses of memory objects, and the way back.
///
/// # Example
/// ```
/// use terrace_device::ObjectSpace;
/// let space = ObjectSpace::new();
/// let address = space.insert("buffer 1", 4096).expect("addresses are left");
/// assert_eq!(space.find(address + 100), Some(("buffer 1", 100)));
/// assert_eq!(space.remove(address), Some("buffer 1"));
/// assert_eq!(space.find(address), None);
/// ```
#[derive(Debug)]
pub struct ObjectSpace<T> {
    table: RwLock<ObjectTable<T>>,
}

#[derive(Debug)]
struct ObjectTable<T> {
    /// By first address: bytes and object. No two overlap.
    objects: BTreeMap<u64, (u64, T)>,
    /// The next address, above all that were given out.
    next: u64,
}

impl<T> Default for ObjectSpace<T> {
    fn default() -> Self {
        Self { table: RwLock::new(ObjectTable { objects: BTreeMap::new(), next: FIRST }) }
    }
}

impl<T: Clone> ObjectSpace<T> {
    /// A space without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives an object of `bytes` bytes an address, a multiple of 2 MiB.
    ///
    /// `None` once addresses reach 2^63; each object takes whole 2 MiB, for ever.
    pub fn insert(&self, object: T, bytes: u64) -> Option<u64> {
        let mut table = self.write();
        let address = table.next;
        let end = address.checked_add(bytes.max(1))?.checked_next_multiple_of(ALIGN)?;
        table.next = Some(end).filter(|&end| end <= 1 << 63)?;
        table.objects.insert(address, (bytes, object));
        Some(address)
    }

    /// Adds an object that the host reaches at `address`, by which it is known from then on.
    ///
    /// Returns false, without effect, if the range overlaps another object or reaches 2^48.
    pub fn insert_at(&self, object: T, address: u64, bytes: u64) -> bool {
        let (mut table, bytes) = (self.write(), bytes.max(1));
        let Some(end) = address.checked_add(bytes).filter(|&end| end <= FIRST) else { return false };
        let below = table.objects.range(..end).next_back();
        let free = below.is_none_or(|(start, (bytes, _))| start + bytes <= address);
        if free {
            table.objects.insert(address, (bytes, object));
        }
        free
    }

    /// Removes the object that begins at `address`.
    pub fn remove(&self, address: u64) -> Option<T> {
        self.write().objects.remove(&address).map(|(_, object)| object)
    }

    /// The object around an address, and the offset in it; `None` outside of all.
    pub fn find(&self, address: u64) -> Option<(T, u64)> {
        let table = self.read();
        let (start, (bytes, object)) = table.objects.range(..=address).next_back()?;
        (address - start < *bytes).then(|| (object.clone(), address - start))
    }

    // The table is consistent between any two statements, also after a panic of `T::clone`.
    fn read(&self) -> RwLockReadGuard<'_, ObjectTable<T>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ObjectTable<T>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, FIRST, ObjectSpace};

    #[test]
    fn objects_are_found_by_every_address_in_them_and_no_other() {
        let space = ObjectSpace::new();
        let addresses = [1, 4096, ALIGN + 1, 0].map(|bytes| space.insert(bytes, bytes).expect("room"));
        assert!(addresses.iter().all(|address| address.is_multiple_of(ALIGN)));
        assert!(addresses.is_sorted() && addresses[3] - addresses[2] == 2 * ALIGN);
        assert_eq!(space.find(addresses[1] + 4095), Some((4096, 4095)));
        assert_eq!(space.find(addresses[1] + 4096), None);
        assert_eq!((space.find(addresses[0] - 1), space.find(addresses[3])), (None, None));
    }

    #[test]
    fn an_address_is_never_given_twice() {
        let space = ObjectSpace::new();
        let first = space.insert((), 64).expect("room");
        assert_eq!((space.remove(first), space.remove(first)), (Some(()), None));
        assert!(space.insert((), 64).is_some_and(|second| second > first));
        assert_eq!(space.insert((), 1 << 63), None, "more than there is");
        assert!(space.insert((), 64).is_some(), "a refused object took no addresses");
    }

    #[test]
    fn an_object_that_the_host_reaches_is_known_by_its_pointer() {
        let space = ObjectSpace::new();
        assert!(space.insert_at("mapped", 0x7000_0000, 4096));
        assert_eq!(space.find(0x7000_0fff), Some(("mapped", 4095)));
        for (address, bytes) in [(0x7000_0fff, 1), (0x6fff_ffff, 2), (FIRST - 1, 2), (u64::MAX, 2)] {
            assert!(!space.insert_at("other", address, bytes), "{address:#x}");
        }
        assert!(space.insert_at("beside", 0x7000_1000, 0) && !space.insert_at("again", 0x7000_1000, 1));
        assert!(!space.insert_at("empty", 0x7000_0000, 0), "an object of no bytes takes no other's place");
        assert_eq!(space.find(0x7000_0000), Some(("mapped", 0)));
    }
}
