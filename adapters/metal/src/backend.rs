//! [`Backend`] for [`Metal`].
//!
//! ```text
//!   copy, fill   both sides in regions, offsets and sizes in words     a blit encoder, in stream order
//!                anything else                                         the stream is waited for, then the host copies
//! ```
//!
//! Promises upward: the contract of [`Backend`].
//! Asks from below: regions at the host's addresses; streams that say truly what is done.

use crate::metal::Metal;
use crate::region::SharedRegion;
use crate::rules::is_blit;
use crate::stream::MetalStream;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSRange;
use objc2_metal::{MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandEncoder, MTLDevice};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;
use terrace_device::{
    Backend, CopyRange, Description, Fault, FaultReason, Memory, MemoryKind, MemoryPlace, RawEvent, RawStream,
};

/// A copy that a blit encoder takes.
struct Blit {
    to: (Arc<SharedRegion>, u64),
    from: (Arc<SharedRegion>, u64),
    bytes: u64,
}

impl Metal {
    /// The copy as a blit, if it can be one.
    fn blit(&self, &CopyRange { to, from, bytes }: &CopyRange) -> Option<Blit> {
        let [to, from] = [self.parts.space.find(to)?, self.parts.space.find(from)?];
        is_blit(&[to.1, from.1], bytes).then_some(Blit { to, from, bytes })
    }
}

/// Puts work of one blit encoder on a stream.
fn blit(stream: &MetalStream, encode: impl FnOnce(&ProtocolObject<dyn MTLBlitCommandEncoder>)) -> Result<(), Fault> {
    stream.submit(|commands| {
        let none = Fault::of("blitCommandEncoder", FaultReason::Other);
        let encoder = commands.blitCommandEncoder().ok_or(none)?;
        encode(&encoder);
        encoder.endEncoding();
        Ok(())
    })
}

// SAFETY: each region is a buffer of its own, at an address checked to be a multiple of 256, in shared storage: the host may use it, and
// sees the device's writes once their command buffer is done. A stream's command buffers wait for each other by its event, and one counts
// as done from its completion handler on, when Metal touches its memory no more. Work is given the ranges of its call alone. Metal raises
// exceptions for misuse only, which the checks before its calls exclude: no method unwinds.
unsafe impl Backend for Metal {
    fn description(&self) -> &Description {
        &self.parts.description
    }

    /// Free is what Metal recommends without what this process has; other processes' share is not told.
    fn memory(&self) -> Result<Memory, Fault> {
        let parts = self.own("currentAllocatedSize")?;
        let total = parts.description.total;
        Ok(Memory { free: total.saturating_sub(parts.device.currentAllocatedSize() as u64), total })
    }

    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        let heap = match kind {
            MemoryKind::Device => true,
            MemoryKind::Pinned | MemoryKind::Managed => false,
            MemoryKind::Pool => return Err(Fault::of("take", FaultReason::Unsupported)),
        };
        let parts = self.own("take")?;
        let (region, address) = SharedRegion::new(&parts.device, heap, bytes)?;
        let fits = parts.space.insert_at(region, address, bytes);
        if fits { Ok(address) } else { Err(Fault::of("contents", FaultReason::Other)) }
    }

    unsafe fn give_back(&self, _: MemoryKind, address: u64, _: u64) -> Result<(), Fault> {
        self.own("release")?.space.remove(address).map(drop).ok_or(Fault::of("release", FaultReason::BadHandle))
    }

    /// The object is an `id<MTLBuffer>`, not retained; [`Metal::buffer`] retains it.
    fn place(&self, address: u64) -> MemoryPlace {
        let found = self.own("contents").ok().and_then(|parts| parts.space.find(address));
        let place = found.map(|(region, offset)| MemoryPlace { object: region.object(), offset });
        place.unwrap_or(MemoryPlace { object: 0, offset: address })
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        let none = Fault::of("newCommandQueue", FaultReason::Other);
        let parts = self.own("newCommandQueue")?;
        parts.add_stream(parts.device.newCommandQueue().ok_or(none)?)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault> {
        self.own("destroy stream")?.remove_stream(stream)
    }

    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        self.own("stream name")?.stream(stream).map(|_| Some(stream.0))
    }

    unsafe fn is_idle(&self, stream: RawStream) -> Result<bool, Fault> {
        self.own("is idle")?.stream(stream)?.submissions().is_idle()
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault> {
        self.own("synchronize stream")?.stream(stream)?.submissions().settle()
    }

    fn synchronize(&self) -> Result<(), Fault> {
        self.own("synchronize")?.all_streams().iter().try_for_each(|stream| stream.submissions().settle())
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        Ok(RawEvent(self.own("create event")?.add_event()))
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<(), Fault> {
        self.own("destroy event")?.remove_event(event.0)
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault> {
        let stream = self.own("record")?.stream(stream)?;
        let number = stream.submissions().begun();
        self.own("record")?.record(event.0, (stream, number))
    }

    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault> {
        self.own("query")?
            .recorded(event.0)?
            .map_or(Ok(true), |(stream, number)| stream.submissions().has_reached(number))
    }

    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault> {
        self.own("wait")?.recorded(event.0)?.map_or(Ok(()), |(stream, number)| stream.submissions().wait(number))
    }

    unsafe fn order(&self, stream: RawStream, event: RawEvent) -> Result<(), Fault> {
        let stream = self.own("order")?.stream(stream)?;
        match self.own("order")?.recorded(event.0)? {
            Some((other, number)) if !Arc::ptr_eq(&stream, &other) && !other.submissions().has_reached(number)? => {
                stream.wait_for(&other, number)
            }
            _ => Ok(()),
        }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_batch(&[CopyRange { to, from, bytes }], stream) }
    }

    unsafe fn copy_batch(&self, copies: &[CopyRange], stream: RawStream) -> Result<(), Fault> {
        let stream = self.own("copy batch")?.stream(stream)?;
        let (mut blits, mut others) = (Vec::new(), Vec::new());
        for copy in copies.iter().filter(|copy| copy.bytes > 0) {
            match self.blit(copy) {
                Some(blit) => blits.push(blit),
                None => others.push(copy),
            }
        }
        if !blits.is_empty() {
            blit(&stream, |encoder| {
                for Blit { to: (to, at), from: (from, start), bytes } in &blits {
                    let [at, start, bytes] = [*at, *start, *bytes].map(|number| number as usize);
                    // SAFETY: the caller promises two ranges of live regions, which do not overlap and stay until the stream is done; the
                    // command buffer retains both buffers.
                    unsafe {
                        encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                            from.buffer(),
                            start,
                            to.buffer(),
                            at,
                            bytes,
                        );
                    }
                }
            })?;
        }
        if !others.is_empty() {
            stream.submissions().settle()?;
        }
        for &CopyRange { to, from, bytes } in others {
            let (from, to) = (with_exposed_provenance::<u8>(from as usize), with_exposed_provenance_mut(to as usize));
            // Not `copy_nonoverlapping`: wrapped memory may overlap other blocks.
            // SAFETY: the caller promises live ranges, of regions or of the host's, all at the host's addresses; the stream's work is done.
            unsafe { std::ptr::copy(from, to, bytes as usize) };
        }
        Ok(())
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let stream = self.own("fill")?.stream(stream)?;
        match self.own("fill")?.space.find(address) {
            _ if bytes == 0 => Ok(()),
            Some((region, offset)) if is_blit(&[offset], bytes) => blit(&stream, |encoder| {
                let range = NSRange::new(offset as usize, bytes as usize);
                encoder.fillBuffer_range_value(region.buffer(), range, value);
            }),
            _ => {
                stream.submissions().settle()?;
                let to = with_exposed_provenance_mut::<u8>(address as usize);
                // SAFETY: the caller promises a live range, at the host's address; the stream's work is done.
                unsafe { std::ptr::write_bytes(to, value, bytes as usize) };
                Ok(())
            }
        }
    }
}
