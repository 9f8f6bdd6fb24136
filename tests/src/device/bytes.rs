//! Bytes: what is written is read, wherever it went.

use super::{World, cut, ensure, ok, same, small, with};
use terrace_device::{DeviceError, DeviceOptions, Path};

/// Bytes that differ from place to place.
pub(super) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub(super) fn written_is_read(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let mut blocks = Vec::new();
        for i in 0..cut(60u64, 9) {
            let bytes = pattern(i, 1 + (i * 77_773 % cut(900_000, 1_000)) as usize);
            let mut block = ok(device.allocate(&stream, bytes.len() as u64))?;
            ok(block.write(0, &bytes))?;
            blocks.push((block, bytes));
            if i % 3 == 2 {
                blocks.swap_remove(i as usize % blocks.len());
            }
        }
        for (block, bytes) in &blocks {
            let mut back = vec![0; bytes.len()];
            ok(block.read(0, &mut back))?;
            ensure(back == *bytes, format_args!("{} holds other bytes than were written", block.id()))?;
        }
        let (block, bytes) = &mut blocks[0];
        ok(block.fill(0, bytes.len() as u64, 0xa5))?;
        let mut back = vec![0; bytes.len()];
        ok(block.read(0, &mut back))?;
        ensure(back.iter().all(|&byte| byte == 0xa5), "filled bytes")
    })
}

/// Bytes of a copy, and of one of a part.
const COPIED: u64 = cut(300_000, 3_300);
const PART: u64 = cut(200_000, 1_100);

pub(super) fn copies(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let (one, two) = (ok(device.stream())?, ok(device.stream())?);
        let bytes = pattern(1, COPIED as usize);
        let mut first = ok(device.allocate(&one, COPIED))?;
        if world.bytes {
            ok(first.write(0, &bytes))?;
        }
        let mut second = ok(device.allocate(&two, COPIED))?;
        let mut third = ok(device.allocate(&two, COPIED))?;
        same(ok(second.copy_from(0, &first, 0, COPIED))?, Path::Local, "the way within a device")?;
        // The source may go while the copy is in flight.
        drop(first);
        let again = ok(device.allocate(&one, COPIED))?;
        same(ok(third.copy_from(1_000, &second, 2_000, PART))?, Path::Local, "the way within a stream")?;
        if world.bytes {
            let mut back = vec![0; PART as usize];
            ok(third.read(1_000, &mut back))?;
            ensure(back == bytes[2_000..2_000 + PART as usize], "copied bytes")?;
        }
        drop(again);
        Ok(())
    })?;
    staged(world)
}

/// Bytes of a copy by way of the host: more than one piece.
const STAGED: usize = cut(9 << 20, 9 << 10);

/// To a device of another kind, by way of the host.
fn staged(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let host = terrace_device::Device::host();
        let (here, there) = (ok(device.stream())?, ok(host.stream())?);
        let bytes = pattern(7, STAGED);
        let mut from = ok(device.allocate(&here, STAGED as u64))?;
        ok(from.write(0, &bytes))?;
        let mut to = ok(host.allocate(&there, STAGED as u64))?;
        let way = ok(to.copy_from(0, &from, 0, STAGED as u64))?;
        ensure(matches!(way, Path::Staged | Path::Local), format_args!("{way:?}"))?;
        let mut back = vec![0; STAGED];
        ok(to.read(0, &mut back))?;
        ensure(back == bytes, "staged bytes")
    })
}

pub(super) fn out_of_bounds(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let mut block = ok(device.allocate(&stream, 1000))?;
        let other = ok(device.allocate(&stream, 1000))?;
        let size = block.bytes();
        let id = block.id();
        let results = [
            block.write(size, &[1]),
            block.write(u64::MAX, &[1]),
            block.read(1, &mut vec![0; size as usize]),
            block.fill(2, size, 0),
            block.fill(u64::MAX, u64::MAX, 0),
            block.copy_from(1, &other, 0, size).map(drop),
        ];
        for result in results {
            match result {
                Err(DeviceError::OutOfBounds { block: named, .. }) => same(named, id, "the block that is named")?,
                other => return Err(format!("outside: {other:?}")),
            }
        }
        let result = block.copy_from(0, &other, 1, size);
        ensure(
            matches!(result, Err(DeviceError::OutOfBounds { block, .. }) if block == other.id()),
            format_args!("outside the source: {result:?}"),
        )?;
        ok(block.write(size, &[]))
    })
}

/// Bytes of fresh memory.
const FRESH: usize = cut(5 << 20, 5 << 10);

pub(super) fn zeroed(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, DeviceOptions { zero_fresh: true, ..small() }, |device| {
        let stream = ok(device.stream())?;
        let block = ok(device.allocate(&stream, FRESH as u64))?;
        let mut back = vec![1; FRESH];
        ok(block.read(0, &mut back))?;
        ensure(back.iter().all(|&byte| byte == 0), "fresh memory is zero")
    })
}

pub(super) fn threads(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let shared = ok(device.stream())?;
        let bytes = world.bytes;
        let wrong: Vec<String> = std::thread::scope(|scope| {
            let works: Vec<_> = (0..4u64)
                .map(|thread| {
                    let (device, shared) = (device.clone(), shared.clone());
                    scope.spawn(move || worker(&device, &shared, thread, bytes))
                })
                .collect();
            works.into_iter().filter_map(|work| work.join().unwrap_or(Err("a thread panicked".into())).err()).collect()
        });
        same(wrong, Vec::new(), "what went wrong in threads")
    })
}

fn worker(
    device: &terrace_device::Device,
    shared: &terrace_device::Stream,
    thread: u64,
    bytes: bool,
) -> Result<(), String> {
    let own = ok(device.stream())?;
    let mut kept = Vec::new();
    for i in 0..cut(300u64, 25) {
        let stream = if i % 2 == 0 { shared } else { &own };
        let content = pattern(thread * 1000 + i, 1 + (i * 331 % cut(20_000, 500)) as usize);
        let mut block = ok(device.allocate(stream, content.len() as u64))?;
        if bytes {
            ok(block.write(0, &content))?;
        }
        kept.push((block, content));
        if kept.len() > 20 {
            let (block, content) = kept.swap_remove((i as usize * 13) % 20);
            if bytes {
                let mut back = vec![0; content.len()];
                ok(block.read(0, &mut back))?;
                ensure(back == content, format_args!("thread {thread}, {}: other bytes", block.id()))?;
            }
        }
    }
    Ok(())
}
