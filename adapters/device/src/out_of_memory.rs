//! Why a request found no memory, and what would have served it.
//!
//! Promises upward: plain values of one moment; showing them makes no driver call.
//! Asks from below: nothing. The pool fills them in.

use crate::fault::{Fault, FaultReason};
use std::fmt;
use terrace_core::Cause;

/// A request that found no memory, and the state of the pool at that moment. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes requested.
    pub asked: u64,
    /// Size of the largest free block.
    pub largest_free: u64,
    /// Bytes reserved from the driver.
    pub reserved: u64,
    /// Bytes in live blocks.
    pub in_use: u64,
    /// Limit of the bytes reserved from the driver; 0: no limit.
    pub capacity: u64,
    /// Bytes of the device that this pool holds: `reserved`, and what its graphs' pools have.
    pub held: u64,
    /// What the device has free, and what others hold of it; `None` where the driver does not say.
    pub device: Option<DeviceShare>,
    /// Tags with the most live bytes, the largest first, at most three; none while the tracker is off.
    pub tags: Vec<(String, u64)>,
    /// Why the request failed.
    pub cause: Cause,
    /// The driver's refusal, if the pool asked it for more memory.
    pub fault: Option<Fault>,
    /// One change that would have served the request; `None` where memory is not what it lacked, or is the host's.
    pub remedy: Option<Remedy>,
}

/// How a device's memory is divided at one moment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    /// What nothing holds.
    pub free: u64,
    /// What neither is free nor belongs to this pool: other programs and libraries, and the driver itself.
    pub others: u64,
}

/// A change that would have served a request which found no memory. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// More records of blocks: a larger `DeviceOptions::blocks`.
    MoreBlocks,
    /// Pages instead of segments: enough is free, but in pieces.
    Pages,
    /// A capacity of at least so many bytes, which the device has.
    Capacity(u64),
    /// So many bytes less held by others.
    Others(u64),
    /// So many bytes less in live blocks.
    Less(u64),
}

impl OutOfMemory {
    /// Share of the free bytes that lie outside the largest free block, 0 to 1; 0 when nothing is free.
    pub fn fragmentation(&self) -> f64 {
        match self.reserved.saturating_sub(self.in_use) {
            0 => 0.0,
            free => free.saturating_sub(self.largest_free) as f64 / free as f64,
        }
    }

    /// The change that would have served. Memory comes in multiples of `unit`, a power of two; in segments that could be pages, if
    /// `could_page`.
    pub(crate) fn judge(&self, unit: u64, could_page: bool) -> Option<Remedy> {
        if self.cause == Cause::OutOfSlots {
            return Some(Remedy::MoreBlocks);
        }
        let device = self.device?;
        if self.fault.is_some_and(|fault| fault.reason != FaultReason::OutOfMemory) {
            return None;
        }
        let needed = self.asked.checked_next_multiple_of(unit)?;
        let free = self.reserved.saturating_sub(self.in_use);
        let left = if self.capacity == 0 { u64::MAX } else { self.capacity.saturating_sub(self.reserved) };
        if could_page && free.saturating_add(left.min(device.free)) >= needed {
            return Some(Remedy::Pages);
        }
        if left < needed && device.free >= needed {
            return Some(Remedy::Capacity(self.reserved + needed));
        }
        let lacking = needed.saturating_sub(device.free);
        if left >= needed && lacking > 0 && device.others >= lacking {
            return Some(Remedy::Others(lacking));
        }
        Some(Remedy::Less(self.asked - self.largest_free.min(self.asked - 1)))
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, largest_free, reserved, in_use, capacity, .. } = self;
        write!(f, "out of device memory: asked for {asked} bytes, the largest free block has {largest_free}; ")?;
        write!(f, "{in_use} bytes are in use, {reserved} taken from the driver")?;
        if *capacity != 0 {
            write!(f, " of at most {capacity}")?;
        }
        write!(f, "; {:.0} % of what is free lies in smaller pieces", 100.0 * self.fragmentation())?;
        if let Some(DeviceShare { free, others }) = self.device {
            write!(f, "; the device has {free} free, others hold {others}")?;
        }
        for (at, (tag, bytes)) in self.tags.iter().enumerate() {
            let tag = if tag.is_empty() { "no tag" } else { tag.as_str() };
            write!(f, "{} `{tag}` {bytes}", if at == 0 { "; the largest tags:" } else { "," })?;
        }
        if let Some(fault) = self.fault {
            write!(f, "; the driver said: {fault}")?;
        }
        self.remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MoreBlocks => write!(f, "no record left for a block: raise DeviceOptions::blocks"),
            Self::Pages => {
                write!(f, "pages would have served it: set DeviceOptions::origin to PoolOrigin::Auto or Pages")
            }
            Self::Capacity(bytes) => write!(f, "a capacity of {bytes} would have served it"),
            Self::Others(bytes) => write!(f, "{bytes} bytes less held by others would have served it, or the fallback"),
            Self::Less(bytes) => {
                write!(f, "free {bytes} bytes more, beside each other or as pages, or turn the fallback on")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn refused() -> OutOfMemory {
        OutOfMemory {
            asked: 99 * MIB,
            largest_free: 30 * MIB,
            reserved: 500 * MIB,
            in_use: 400 * MIB,
            capacity: 520 * MIB,
            held: 500 * MIB,
            device: Some(DeviceShare { free: 300 * MIB, others: 200 * MIB }),
            tags: vec![("weights".into(), 300 * MIB), (String::new(), 100 * MIB)],
            cause: Cause::OutOfMemory,
            fault: None,
            remedy: Some(Remedy::Capacity(600 * MIB)),
        }
    }

    #[test]
    fn each_state_has_its_remedy() {
        let judge = |what: &OutOfMemory, could_page| what.judge(2 * MIB, could_page);
        // 99 MiB take whole 2 MiB.
        assert_eq!(judge(&refused(), false), Some(Remedy::Capacity(600 * MIB)));
        assert_eq!(judge(&refused(), true), Some(Remedy::Pages));
        let mixed = OutOfMemory { in_use: 490 * MIB, ..refused() };
        assert_eq!(judge(&mixed, true), Some(Remedy::Capacity(600 * MIB)), "pages would not have had enough either");
        assert_eq!(judge(&OutOfMemory { cause: Cause::OutOfSlots, ..refused() }, true), Some(Remedy::MoreBlocks));
        let device = Some(DeviceShare { free: 40 * MIB, others: 200 * MIB });
        let full = OutOfMemory { capacity: 0, device, ..refused() };
        assert_eq!(judge(&full, false), Some(Remedy::Others(60 * MIB)));
        let alone = OutOfMemory { device: Some(DeviceShare { free: 40 * MIB, others: 10 * MIB }), ..full };
        assert_eq!(judge(&alone, false), Some(Remedy::Less(69 * MIB)));
    }

    #[test]
    fn what_is_no_lack_of_the_device_s_memory_has_no_remedy() {
        let host = OutOfMemory { device: None, ..refused() };
        assert_eq!(host.judge(2 * MIB, true), None);
        let fault = Some(Fault::of("map", FaultReason::Capturing));
        assert_eq!(OutOfMemory { fault, ..refused() }.judge(2 * MIB, true), None);
        let said = OutOfMemory { fault, remedy: None, tags: Vec::new(), ..refused() }.to_string();
        assert!(said.ends_with("the driver said: map: not allowed while a graph is captured"), "{said}");
    }

    #[test]
    fn the_text_names_what_one_asks() {
        assert_eq!(
            refused().to_string(),
            "out of device memory: asked for 103809024 bytes, the largest free block has 31457280; 419430400 bytes are in use, \
             524288000 taken from the driver of at most 545259520; 70 % of what is free lies in smaller pieces; the device has \
             314572800 free, others hold 209715200; the largest tags: `weights` 314572800, `no tag` 104857600; a capacity of \
             629145600 would have served it"
        );
    }
}
