//! [`Backend`] for [`VulkanBackend`]: one method, one call of Vulkan or a few.
//!
//! Promises upward: what the trait's contract asks. Work of a stream is in order by its timeline; an event is a value of one.
//! Asks from below: regions, timelines.

use crate::vulkan::{Shared, VulkanBackend};
use ash::vk::{self, Handle};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_device::{
    Backend, CopyRange, Description, Fault, FaultReason, Memory, MemoryKind, MemoryPlace, PhysicalHandle, RawEvent,
    RawStream,
};

impl Shared {
    /// The buffer around a range and the range's offset in it.
    fn range(&self, address: u64) -> Result<(vk::Buffer, u64), Fault> {
        let (region, offset) = self.space.find(address).ok_or(Fault::of("address", FaultReason::BadHandle))?;
        Ok((region.buffer, region.shift + offset))
    }
}

// SAFETY: each region is a buffer with memory of its own, at addresses of its own; host-visible ones are coherent, mapped as long as
// they live, at the mapping's exposed address. Address space is a sparse buffer, at addresses of its own too, and what is mapped in it is
// bound once `allow` returns. Submissions of a stream wait for the one before by its semaphore, which signals when all
// that it stands for is done; each ends with a barrier to the host. Events, waits and orders name values of these semaphores, so that
// what they say is Vulkan's answer. Commands name the ranges passed alone.
unsafe impl Backend for VulkanBackend {
    fn description(&self) -> &Description {
        &self.shared.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        self.shared.check("memory")?;
        let (table, total) = (&self.shared.objects.table, self.shared.description.total);
        let best = table.candidates(u32::MAX, crate::MemoryUse::Device).first().copied();
        let heap = table.types[best.ok_or(Fault::of("memory", FaultReason::Unsupported))? as usize].heap;
        let left = total.saturating_sub(self.shared.objects.used(heap));
        let budget = self.shared.objects.driver.budget(heap).map(|heap| heap.budget.saturating_sub(heap.used));
        Ok(Memory { free: budget.map_or(left, |budget| budget.min(left)), total })
    }

    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        self.shared.check("take")?;
        let address = self.shared.take_region(kind, bytes)?;
        self.shared.out.fetch_add(1, Ordering::Relaxed);
        Ok(address)
    }

    unsafe fn give_back(&self, _: MemoryKind, address: u64, _: u64) -> Result<(), Fault> {
        self.shared.check("give_back")?;
        let region = self.shared.space.remove(address).ok_or(Fault::of("give_back", FaultReason::BadHandle))?;
        // SAFETY: the caller promises that no work uses it, and no address leads to it any more.
        unsafe { self.shared.destroy_region(&region) };
        self.shared.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        self.shared.reserve_pages(bytes)
    }

    unsafe fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.shared.unreserve_pages(address, bytes) }
    }

    fn create_handle(&self, bytes: u64) -> Result<PhysicalHandle, Fault> {
        self.shared.create_page_memory(bytes)
    }

    unsafe fn release_handle(&self, handle: PhysicalHandle) -> Result<(), Fault> {
        self.shared.release_page_memory(handle)
    }

    unsafe fn map(&self, address: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Fault> {
        self.shared.map_pages(address, bytes, handle)
    }

    /// Binds all that was mapped in the range, by one call.
    unsafe fn allow(&self, address: u64, bytes: u64, peers: &[u32]) -> Result<(), Fault> {
        if !peers.is_empty() {
            return Err(Fault::of("allow", FaultReason::Unsupported));
        }
        // SAFETY: memory that was mapped is used by no work before this call.
        unsafe { self.shared.bind_pages(address, bytes) }
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.shared.unmap_pages(address, bytes) }
    }

    fn place(&self, address: u64) -> MemoryPlace {
        match self.buffer(address) {
            Some((buffer, offset)) => MemoryPlace { object: buffer.as_raw(), offset },
            None => MemoryPlace { object: 0, offset: address },
        }
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        self.shared.check("vkCreateSemaphore")?;
        self.shared.add_stream()
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault> {
        self.shared.check("vkDestroySemaphore")?;
        self.shared.retire_stream(stream)
    }

    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        self.shared.check("stream")?;
        self.shared.stream(stream).map(|_| Some(stream.0))
    }

    unsafe fn is_idle(&self, stream: RawStream) -> Result<bool, Fault> {
        self.shared.check("vkGetSemaphoreCounterValue")?;
        let stream = self.shared.stream(stream)?;
        stream.reached(self.device(), stream.settled(self.device())?)
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault> {
        self.shared.check("vkWaitSemaphores")?;
        let stream = self.shared.stream(stream)?;
        stream.wait(self.device(), stream.settled(self.device())?)
    }

    fn synchronize(&self) -> Result<(), Fault> {
        self.shared.check("vkWaitSemaphores")?;
        // Not `vkDeviceWaitIdle`, for which no other thread may use a queue.
        self.shared
            .all_streams()
            .iter()
            .try_for_each(|stream| stream.wait(self.device(), stream.settled(self.device())?))
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        self.shared.check("event")?;
        Ok(self.shared.add_event())
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<(), Fault> {
        self.shared.check("event")?;
        self.shared.remove_event(event)
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault> {
        self.shared.check("vkQueueSubmit")?;
        let stream = self.shared.stream(stream)?;
        let value = stream.settled(self.device())?;
        self.shared.set_event(event, Some((stream, value)))
    }

    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault> {
        self.shared.check("vkGetSemaphoreCounterValue")?;
        self.shared.event(event)?.map_or(Ok(true), |(stream, value)| stream.reached(self.device(), value))
    }

    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault> {
        self.shared.check("vkWaitSemaphores")?;
        self.shared.event(event)?.map_or(Ok(()), |(stream, value)| stream.wait(self.device(), value))
    }

    unsafe fn order(&self, stream: RawStream, event: RawEvent) -> Result<(), Fault> {
        self.shared.check("vkQueueSubmit")?;
        let stream: Arc<_> = self.shared.stream(stream)?;
        if let Some((after, value)) = self.shared.event(event)? {
            stream.order(self.device(), &after, value)?;
        }
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_batch(&[CopyRange { to, from, bytes }], stream) }
    }

    /// One submission for all.
    unsafe fn copy_batch(&self, copies: &[CopyRange], stream: RawStream) -> Result<(), Fault> {
        self.shared.check("vkQueueSubmit")?;
        let stream = self.shared.stream(stream)?;
        let copies = copies.iter().filter(|copy| copy.bytes > 0);
        let found = copies.map(|copy| Ok((self.shared.range(copy.to)?, self.shared.range(copy.from)?, copy.bytes)));
        let found = found.collect::<Result<Vec<_>, Fault>>()?;
        if found.is_empty() {
            return Ok(());
        }
        stream.put(self.device(), |command| {
            for ((to, dst), (from, src), size) in found {
                let range = [vk::BufferCopy { src_offset: src, dst_offset: dst, size }];
                // SAFETY: the command buffer is being recorded; the caller promises ranges of live memory that do not overlap.
                unsafe { self.device().cmd_copy_buffer(command, from, to, &range) };
            }
        })
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        self.shared.check("vkQueueSubmit")?;
        let stream = self.shared.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let (to, start) = self.shared.range(address)?;
        let patterns = self.shared.patterns.get().ok_or(Fault::of("fill", FaultReason::Unsupported))?.buffer;
        // Fills are of whole words: what is before and behind them is copied.
        let head = (start.next_multiple_of(4) - start).min(bytes);
        let words = (bytes - head) & !3;
        let tail = bytes - head - words;
        stream.put(self.device(), |command| {
            if words > 0 {
                let word = u32::from_ne_bytes([value; 4]);
                // SAFETY: the command buffer is being recorded; a range of live memory, of whole words.
                unsafe { self.device().cmd_fill_buffer(command, to, start + head, words, word) };
            }
            for (dst_offset, size) in [(start, head), (start + head + words, tail)] {
                let range = [vk::BufferCopy { src_offset: u64::from(value) * 4, dst_offset, size }];
                if size > 0 {
                    // SAFETY: as above; the patterns have four bytes of each value.
                    unsafe { self.device().cmd_copy_buffer(command, patterns, to, &range) };
                }
            }
        })
    }

    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        self.shared.check("register")?;
        // SAFETY: the caller's promise; whole pages around the range are the process's too.
        unsafe { self.shared.import_region(address, bytes, self.shared.import_atom.max(1)) }?;
        self.shared.out.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn unregister(&self, address: u64) -> Result<(), Fault> {
        // SAFETY: the caller's promise; registered memory is a region like others.
        unsafe { self.give_back(MemoryKind::Pinned, address, 0) }
    }
}
