//! Why a request found no memory, and what would have served it.
//!
//! Promises upward: plain values of one moment; showing them makes no driver call.
//! Asks from below: nothing. The pool fills them in.

use crate::fault::Fault;
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
    /// One change that would have served the request.
    pub remedy: Remedy,
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

    /// The change that would have served, for a pool that has segments which could be pages (`could_page`).
    pub(crate) fn judge(&self, could_page: bool) -> Remedy {
        if self.cause == Cause::OutOfSlots {
            return Remedy::MoreBlocks;
        }
        let free = self.reserved.saturating_sub(self.in_use);
        let left = if self.capacity == 0 { u64::MAX } else { self.capacity.saturating_sub(self.reserved) };
        let has = self.device.map_or(0, |device| device.free);
        if could_page && free.saturating_add(left.min(has)) >= self.asked {
            return Remedy::Pages;
        }
        if left < self.asked && has >= self.asked {
            return Remedy::Capacity(self.reserved + self.asked);
        }
        let lacking = self.asked - has.min(self.asked);
        match self.device {
            Some(device) if left >= self.asked && lacking > 0 && device.others >= lacking => Remedy::Others(lacking),
            _ => Remedy::Less(self.asked - self.largest_free.min(self.asked - 1)),
        }
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
        write!(f, "; {}", self.remedy)
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

    const KIB: u64 = 1 << 10;

    fn refused() -> OutOfMemory {
        OutOfMemory {
            asked: 100 * KIB,
            largest_free: 30 * KIB,
            reserved: 500 * KIB,
            in_use: 400 * KIB,
            capacity: 520 * KIB,
            held: 500 * KIB,
            device: Some(DeviceShare { free: 300 * KIB, others: 200 * KIB }),
            tags: vec![("weights".into(), 300 * KIB), (String::new(), 100 * KIB)],
            cause: Cause::OutOfMemory,
            fault: None,
            remedy: Remedy::Capacity(600 * KIB),
        }
    }

    #[test]
    fn each_state_has_its_remedy() {
        assert_eq!(refused().judge(false), Remedy::Capacity(600 * KIB));
        assert_eq!(refused().judge(true), Remedy::Pages);
        let mixed = OutOfMemory { in_use: 490 * KIB, ..refused() };
        assert_eq!(mixed.judge(true), Remedy::Capacity(600 * KIB), "pages would not have had enough either");
        assert_eq!(OutOfMemory { cause: Cause::OutOfSlots, ..refused() }.judge(true), Remedy::MoreBlocks);
        let device = Some(DeviceShare { free: 40 * KIB, others: 200 * KIB });
        let full = OutOfMemory { capacity: 0, device, ..refused() };
        assert_eq!(full.judge(false), Remedy::Others(60 * KIB));
        let alone = OutOfMemory { device: Some(DeviceShare { free: 40 * KIB, others: 10 * KIB }), ..full };
        assert_eq!(alone.judge(false), Remedy::Less(70 * KIB));
        assert_eq!(OutOfMemory { device: None, ..alone }.judge(false), Remedy::Less(70 * KIB));
    }

    #[test]
    fn the_text_names_what_one_asks() {
        assert_eq!(
            refused().to_string(),
            "out of device memory: asked for 102400 bytes, the largest free block has 30720; 409600 bytes are in use, 512000 taken \
             from the driver of at most 532480; 70 % of what is free lies in smaller pieces; the device has 307200 free, others \
             hold 204800; the largest tags: `weights` 307200, `no tag` 102400; a capacity of 614400 would have served it"
        );
    }
}
