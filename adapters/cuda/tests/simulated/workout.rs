//! One use of every function of the backend; gives everything back, also when a call fails.

use terrace_cuda::Cuda;
use terrace_device::{Advice, Backend, Capabilities, Fault, MemoryKind, PrefetchTarget, RawStream};

/// Makes a call that must succeed, and repeats it where the driver refused it once.
pub fn surely<T>(mut call: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    call().or_else(|_| call())
}

/// Calls every function once.
pub fn workout(cuda: &Cuda) -> Result<(), Fault> {
    let memory = cuda.memory()?;
    assert!(memory.free <= memory.total, "{memory:?}");
    with_stream(cuda, |stream| {
        regions(cuda, stream)?;
        hints(cuda, stream)?;
        registration(cuda, stream)?;
        pages(cuda, stream)?;
        with_stream(cuda, |other| events(cuda, stream, other))?;
        peers(cuda, stream)?;
        synchronize(cuda, stream)
    })?;
    cuda.trim()?;
    cuda.synchronize()
}

pub fn with_stream(cuda: &Cuda, work: impl FnOnce(RawStream) -> Result<(), Fault>) -> Result<(), Fault> {
    let stream = cuda.create_stream()?;
    let done = work(stream);
    let rest = surely(|| synchronize(cuda, stream));
    // SAFETY: made above, and used by nothing below. A refused call destroyed nothing.
    let back = surely(|| unsafe { cuda.destroy_stream(stream) });
    done.and(rest).and(back)
}

/// Synchronizes a stream of [`with_stream`].
fn synchronize(cuda: &Cuda, stream: RawStream) -> Result<(), Fault> {
    // SAFETY: `with_stream` keeps the stream while it has work.
    unsafe { cuda.synchronize_stream(stream) }
}

/// Allocates a region, passes it to `work`, and frees it after synchronizing the stream.
pub fn with_region(
    cuda: &Cuda,
    kind: MemoryKind,
    bytes: u64,
    stream: RawStream,
    work: impl FnOnce(u64) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let address = cuda.take(kind, bytes)?;
    assert_eq!(address % 256, 0, "{kind:?} at {address:#x}");
    let done = work(address);
    let rest = surely(|| synchronize(cuda, stream));
    // SAFETY: allocated above; the stream that used it is synchronized.
    let back = surely(|| unsafe { cuda.give_back(kind, address, bytes) });
    done.and(rest).and(back)
}

/// The kinds of memory that a device has.
pub fn kinds(cuda: &Cuda) -> Vec<MemoryKind> {
    let all = [
        (MemoryKind::Device, Capabilities::empty()),
        (MemoryKind::Pool, Capabilities::DRIVER_POOL),
        (MemoryKind::Pinned, Capabilities::PINNED),
        (MemoryKind::Managed, Capabilities::MANAGED),
    ];
    let has = cuda.description().capabilities;
    all.into_iter().filter(|&(_, needs)| has.contains(needs)).map(|(kind, _)| kind).collect()
}

/// Fills bytes on the device, copies them to the host, and reads them there.
fn regions(cuda: &Cuda, stream: RawStream) -> Result<(), Fault> {
    for kind in kinds(cuda) {
        with_region(cuda, kind, 4096, stream, |address| {
            // SAFETY: all of the region, which is freed after the stream is synchronized.
            unsafe { cuda.fill(address, 7, 4096, stream) }?;
            let mut seen = [0_u8; 64];
            // SAFETY: the last bytes of the region, to our own bytes; the stream is synchronized before either is freed.
            let copied = unsafe { cuda.copy(seen.as_mut_ptr() as u64, address + 4032, 64, stream) };
            surely(|| synchronize(cuda, stream))?;
            copied?;
            assert_eq!(seen, [7; 64], "{kind:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Prefetches managed memory to both sides, and gives every advice about it.
fn hints(cuda: &Cuda, stream: RawStream) -> Result<(), Fault> {
    if !cuda.description().capabilities.contains(Capabilities::CONCURRENT_MANAGED) {
        return Ok(());
    }
    with_region(cuda, MemoryKind::Managed, 4096, stream, |address| {
        for side in [PrefetchTarget::Device, PrefetchTarget::Host] {
            // SAFETY: all of the region, which is freed after the stream is synchronized.
            unsafe { cuda.prefetch(address, 4096, side, stream) }?;
        }
        for advice in [Advice::ReadMostly, Advice::PreferDevice, Advice::PreferHost, Advice::AccessedByDevice] {
            for advice in [advice, advice.undo()] {
                // SAFETY: all of the region.
                unsafe { cuda.advise(address, 4096, advice) }?;
            }
        }
        Ok(())
    })
}

/// Registers memory of our own, copies from it, and unregisters it.
fn registration(cuda: &Cuda, stream: RawStream) -> Result<(), Fault> {
    if !cuda.description().capabilities.contains(Capabilities::REGISTRATION) {
        return Ok(());
    }
    let own = vec![3_u8; 1 << 13];
    let address = own.as_ptr() as u64;
    // SAFETY: our own memory, unregistered before it is freed.
    unsafe { cuda.register(address, 1 << 13) }?;
    let copied = with_region(cuda, MemoryKind::Device, 1 << 13, stream, |to| {
        // SAFETY: both ranges, whole; both are freed after the stream is synchronized.
        unsafe { cuda.copy(to, address, 1 << 13, stream) }
    });
    // SAFETY: registered above; the stream that used it is synchronized.
    copied.and(surely(|| unsafe { cuda.unregister(address) }))
}

fn pages(cuda: &Cuda, stream: RawStream) -> Result<(), Fault> {
    let page_bytes = cuda.description().page_bytes;
    if page_bytes == 0 {
        return Ok(());
    }
    let space = cuda.reserve(4 * page_bytes)?;
    let done = mapped(cuda, space + page_bytes, page_bytes, stream);
    // SAFETY: reserved above; every page in it is unmapped.
    let back = surely(|| unsafe { cuda.unreserve(space, 4 * page_bytes) });
    done.and(back)
}

/// Maps two adjacent pages, writes across their border, and unmaps both in one call.
fn mapped(cuda: &Cuda, address: u64, page_bytes: u64, stream: RawStream) -> Result<(), Fault> {
    let mut pages = Vec::new();
    let mut mapped = 0;
    let done = (|| {
        for at in 0..2 {
            let page = cuda.create_handle(page_bytes)?;
            pages.push(page);
            // SAFETY: nothing is mapped in this range yet.
            unsafe { cuda.map(address + at * page_bytes, page_bytes, page) }?;
            mapped += page_bytes;
        }
        // SAFETY: both pages are mapped.
        unsafe { cuda.allow(address, 2 * page_bytes, &[]) }?;
        // SAFETY: inside the two pages, which are unmapped after the stream is synchronized.
        unsafe { cuda.fill(address + page_bytes - 8, 3, 16, stream) }
    })();
    let rest = surely(|| synchronize(cuda, stream));
    let unmapped = match mapped {
        0 => Ok(()),
        // SAFETY: mapped above; the stream that wrote there is synchronized.
        bytes => surely(|| unsafe { cuda.unmap(address, bytes) }),
    };
    // SAFETY: created above, and no longer mapped. A refused call released nothing.
    let back = pages.into_iter().try_for_each(|page| surely(|| unsafe { cuda.release_handle(page) }));
    done.and(rest).and(unmapped).and(back)
}

/// Records an event on one stream; another stream and the host wait for it.
fn events(cuda: &Cuda, stream: RawStream, other: RawStream) -> Result<(), Fault> {
    // SAFETY: a stream of `with_stream`.
    let name = unsafe { cuda.stream_name(stream) }?;
    assert_eq!(name.is_some(), cuda.description().capabilities.contains(Capabilities::STREAM_NAMES));
    let event = cuda.create_event()?;
    let done = (|| {
        // SAFETY: the event was made above; a stream of `with_stream`.
        unsafe { cuda.record(event, stream) }?;
        // SAFETY: as above.
        unsafe { cuda.order(other, event) }?;
        // SAFETY: as above.
        unsafe { cuda.wait(event) }?;
        // SAFETY: as above.
        assert!(unsafe { cuda.query(event) }?, "it was waited for");
        // SAFETY: as above.
        assert!(unsafe { cuda.is_idle(stream) }?, "nothing came after it");
        Ok(())
    })();
    // SAFETY: made above, and used by nothing below. A refused call destroyed nothing.
    let back = surely(|| unsafe { cuda.destroy_event(event) });
    done.and(back)
}

/// Copies from the next device whose memory this device can access.
fn peers(cuda: &Cuda, stream: RawStream) -> Result<(), Fault> {
    let own = cuda.description().ordinal;
    assert!(cuda.can_reach(own)?);
    cuda.reach(own)?;
    if !cuda.description().capabilities.contains(Capabilities::PEERS) {
        return Ok(());
    }
    let other = 1 - own;
    assert!(cuda.can_reach(other)?);
    cuda.reach(other)?;
    // The source is the device's own memory: `profiles` copies between two devices.
    with_region(cuda, MemoryKind::Device, 512, stream, |to| {
        with_region(cuda, MemoryKind::Device, 512, stream, |from| {
            // SAFETY: both regions, whole; the stream is synchronized before they are freed.
            unsafe { cuda.fill(from, 1, 512, stream) }?;
            // SAFETY: as above.
            unsafe { cuda.copy_peer(to, from, own, 512, stream) }
        })
    })
}
