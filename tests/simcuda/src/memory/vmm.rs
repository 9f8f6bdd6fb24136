//! Addresses, physical memory, and mappings between them.
//!
//! Upward: the rules of `cuMemAddressReserve` and its family, as functions of the [`World`] without any waiting.
//! From below: the arena's file holds physical memory, so that its bytes move with it from mapping to mapping.
//!
//! Rules kept here: sizes and addresses are multiples of the granularity; a mapping shows one whole handle inside one
//! reservation and overlaps no other; a range to unmap or to give access to is made of whole mappings without a gap;
//! addresses are freed as they were reserved, when nothing is mapped; memory counts until it is released and unmapped.

use super::{Arena, Past};
use crate::abi::Outcome;
use crate::abi::attributes::{ACCESS_READ, ACCESS_READ_WRITE};
use crate::abi::codes::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::abi::{Properties, c_int};
use crate::machine::{Fault, World};
use std::collections::BTreeMap;

/// Physical memory.
pub struct Physical {
    /// Its device.
    pub device: usize,
    /// A multiple of the granularity.
    pub bytes: u64,
    /// Where its bytes are in the arena's file.
    pub place: u64,
    /// What it was made with.
    pub properties: Properties,
    /// Created and retained, minus released. The handle works while this is above 0.
    pub references: u64,
    /// Mappings that show it.
    pub mapped: u64,
}

/// A mapping. Its first byte is its key.
pub struct Mapping {
    /// A whole handle.
    pub bytes: u64,
    /// The physical memory.
    pub handle: u64,
    /// Its device.
    pub device: usize,
    /// Where its bytes are in the arena's file.
    pub place: u64,
    /// Rights by device; none until they are set.
    pub access: BTreeMap<usize, c_int>,
}

impl World {
    /// Whether a number is a multiple of the granularity.
    fn granular(&self, number: u64) -> bool {
        number.is_multiple_of(self.profile.granularity)
    }

    /// `cuMemAddressReserve`.
    pub fn reserve(&mut self, bytes: u64, align: u64, hint: u64) -> Outcome<u64> {
        if bytes == 0 || !self.granular(bytes) || (align != 0 && !align.is_power_of_two()) {
            return Err(INVALID_VALUE);
        }
        let reserved: u64 = self.memory.reservations.iter().map(|(start, end)| end - start).sum();
        let limit = self.profile.reservation_limit;
        if limit != 0 && reserved.saturating_add(bytes) > limit {
            return Err(OUT_OF_MEMORY);
        }
        let start = self.memory.take(bytes, align.max(self.profile.granularity), hint)?;
        self.memory.reservations.insert(start, start + bytes);
        Ok(start)
    }

    /// `cuMemAddressFree`.
    pub fn unreserve(&mut self, start: u64, bytes: u64) -> Outcome {
        if self.memory.reservations.get(&start).is_none_or(|end| end - start != bytes) {
            let text = format!("cuMemAddressFree of {start:#x}+{bytes:#x}, which is no reservation");
            let gone = self.memory.past(start).is_some();
            self.report.add(if gone { Fault::DoubleFree } else { Fault::BadHandle }, text);
            return Err(INVALID_VALUE);
        }
        if let Some(mapped) = self.memory.mappings.range(start..start + bytes).map(|(at, _)| *at).next() {
            let text = format!("cuMemAddressFree of {start:#x}+{bytes:#x}, in which {mapped:#x} is mapped");
            self.report.add(Fault::FreeWhilePending, text);
            return Err(INVALID_VALUE);
        }
        self.memory.reservations.remove(&start);
        self.memory.give(start, bytes);
        self.memory.remember(start, bytes, Past::Addresses(start, bytes));
        Ok(())
    }

    /// `cuMemCreate`.
    pub fn create(&mut self, device: usize, bytes: u64, properties: Properties) -> Outcome<u64> {
        if bytes == 0 || !self.granular(bytes) {
            return Err(INVALID_VALUE);
        }
        self.charge(device, bytes)?;
        let Some(place) = self.memory.places.take(bytes, self.profile.granularity, 0) else {
            self.discharge(device, bytes);
            return Err(OUT_OF_MEMORY);
        };
        self.races.ledger.forget(physical(place), bytes);
        let memory = Physical { device, bytes, place, properties, references: 1, mapped: 0 };
        Ok(self.memory.physical.insert(memory))
    }

    /// `cuMemRelease`.
    pub fn release(&mut self, handle: u64) -> Outcome {
        let Some(memory) = self.memory.physical.get_mut(handle).filter(|memory| memory.references > 0) else {
            let text = format!("cuMemRelease of {}", self.memory.physical.fate(handle));
            self.report.add(Fault::DoubleFree, text);
            return Err(INVALID_VALUE);
        };
        memory.references -= 1;
        self.drop_unused(handle);
        Ok(())
    }

    /// Frees physical memory that nobody holds, nothing shows and no descriptor keeps.
    pub fn drop_unused(&mut self, handle: u64) {
        if self.memory.physical.get(handle).is_none_or(|memory| memory.references + memory.mapped > 0)
            || self.memory.exports.iter().any(|export| export.handle == handle)
        {
            return;
        }
        let Some(memory) = self.memory.physical.remove(handle) else { return };
        Arena::get().into_iter().for_each(|arena| arena.punch(memory.place, memory.bytes));
        self.memory.places.give(memory.place, memory.place + memory.bytes);
        self.races.ledger.forget(physical(memory.place), memory.bytes);
        self.discharge(memory.device, memory.bytes);
    }

    /// `cuMemMap`.
    pub fn map(&mut self, start: u64, bytes: u64, handle: u64) -> Outcome {
        let Some(memory) = self.memory.physical.get(handle).filter(|memory| memory.references > 0) else {
            let text = format!("cuMemMap of {}", self.memory.physical.fate(handle));
            self.report.add(Fault::BadHandle, text);
            return Err(INVALID_VALUE);
        };
        let (device, place, whole) = (memory.device, memory.place, memory.bytes);
        let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let reserved = self.memory.reservations.range(..=start).next_back().is_some_and(|(_, past)| *past >= end);
        let below = self.memory.mappings.range(..end).next_back();
        let free = below.is_none_or(|(at, mapping)| at + mapping.bytes <= start);
        if bytes == 0 || bytes != whole || !self.granular(start) || !reserved || !free {
            return Err(INVALID_VALUE);
        }
        self.memory.mappings.insert(start, Mapping { bytes, handle, device, place, access: BTreeMap::new() });
        self.memory.physical.get_mut(handle).into_iter().for_each(|memory| memory.mapped += 1);
        self.memory.remember_nothing(start, end);
        self.races.ledger.forget(start, bytes);
        Ok(())
    }

    /// First bytes of the mappings that make up a range: whole ones without a gap.
    pub fn whole_mappings(&self, start: u64, bytes: u64) -> Outcome<Vec<u64>> {
        let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let mut found = Vec::new();
        let mut at = start;
        while at < end {
            let mapping = self.memory.mappings.get(&at).ok_or(INVALID_VALUE)?;
            found.push(at);
            at += mapping.bytes;
        }
        if at == end && bytes > 0 { Ok(found) } else { Err(INVALID_VALUE) }
    }

    /// Takes a mapping away. No operation on it runs.
    pub fn unmap(&mut self, start: u64) {
        let Some(mapping) = self.memory.mappings.remove(&start) else { return };
        Arena::shut(start, mapping.bytes);
        self.races.ledger.forget(start, mapping.bytes);
        self.memory.remember(start, mapping.bytes, Past::Mapping(start, mapping.bytes));
        self.memory.physical.get_mut(mapping.handle).into_iter().for_each(|memory| memory.mapped -= 1);
        self.drop_unused(mapping.handle);
    }

    /// `cuMemSetAccess` for one device.
    pub fn set_access(&mut self, starts: &[u64], device: usize, flags: c_int) -> Outcome {
        for start in starts {
            let Some(mapping) = self.memory.mappings.get_mut(start) else { continue };
            let before = rights(mapping);
            mapping.access.insert(device, flags);
            let after = rights(mapping);
            let (bytes, place) = (mapping.bytes, mapping.place);
            if before == after {
                continue;
            }
            let arena = Arena::get().ok_or(OUT_OF_MEMORY)?;
            let done = match after {
                0 => arena.close(*start, bytes),
                rights => arena.map(*start, bytes, place, rights == ACCESS_READ_WRITE),
            };
            if !done {
                return Err(OUT_OF_MEMORY);
            }
        }
        Ok(())
    }

    /// The mapping that has this byte.
    pub fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.memory.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((*start, mapping))
    }
}

/// What the process may do with a mapping: the most that any device may.
fn rights(mapping: &Mapping) -> c_int {
    mapping.access.values().fold(0, |all, flags| all | *flags) & (ACCESS_READ | ACCESS_READ_WRITE)
}

/// The number under which the ledger of accesses knows a byte of physical memory: above all addresses.
pub fn physical(place: u64) -> u64 {
    1 << 63 | place
}
