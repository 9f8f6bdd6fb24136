//! Puts and gets through the manager, as a program makes them: by futures on one thread, or on threads that block.
//!
//! Promises upward: as many calls in flight as it is told to; every byte that was read is compared.
//! Asks from below: the public interface of `terrace`, no more.

use futures_lite::future::block_on;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use memmap2::{Advice, MmapMut};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use terrace::tiers::{BufferOptions, Tier};
use terrace::{Buffer, Manager};
use terrace_raw::{Blocks, Error, Latencies, THREADS, each, sync_files};

/// The tier of files.
pub const FILES: Tier = 1;

/// Buffers, by number of their block.
pub type Buffers = Vec<Buffer>;

/// Memory that begins at a page, in huge pages where it is large enough: as raw loops have it.
///
/// # Errors
/// The system's.
pub fn pages(bytes: usize) -> Result<MmapMut, Error> {
    let memory = MmapMut::map_anon(bytes)?;
    memory.advise(Advice::HugePage)?;
    Ok(memory)
}

/// A block without its numbers, in such memory.
fn memory(blocks: &Blocks) -> Result<MmapMut, Error> {
    let mut memory = pages(blocks.bytes())?;
    memory.copy_from_slice(&blocks.blank());
    Ok(memory)
}

/// Memory that earlier blocks have left, for later ones. Raw loops use their memory again, too.
#[derive(Clone)]
pub struct Spare {
    memory: Arc<Mutex<Vec<MmapMut>>>,
    depth: usize,
}

/// A block in memory that goes back to the others once it is dropped.
struct Reused(Option<MmapMut>, Spare);

impl Spare {
    /// Memory for `depth` blocks in flight, touched: what is touched for the first time takes longer than its I/O.
    ///
    /// # Errors
    /// The system's.
    pub fn warm(blocks: &Blocks, depth: usize) -> Result<Self, Error> {
        let all = (0..depth).map(|_| memory(blocks)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { memory: Arc::new(Mutex::new(all)), depth })
    }

    fn take(&self, blocks: &Blocks) -> Result<Reused, Error> {
        let kept = self.memory.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Reused(Some(kept.map_or_else(|| memory(blocks), Ok)?), self.clone()))
    }

    fn make(&self, blocks: &Blocks, block: u64) -> Result<Reused, Error> {
        let mut made = self.take(blocks)?;
        blocks.stamp(made.as_mut(), block);
        Ok(made)
    }
}

impl AsRef<[u8]> for Reused {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl AsMut<[u8]> for Reused {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Reused {
    fn drop(&mut self) {
        self.1.memory.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
    }
}

/// Puts the blocks in order, with as many futures in flight as there is spare memory for.
///
/// # Errors
/// The manager's.
pub fn put_by_futures(
    manager: &Manager,
    blocks: &Blocks,
    count: u64,
    spare: &Spare,
) -> Result<(Buffers, Latencies), Error> {
    let put = |block: u64| async move {
        let begun = Instant::now();
        let buffer = manager.allocate_async(blocks.bytes() as u64, BufferOptions::default()).await?;
        buffer.write_async(0, spare.make(blocks, block)?).await?;
        Ok::<_, Error>((block, buffer, begun))
    };
    let (mut put_already, mut latencies) = (Vec::new(), Latencies::default());
    let all = iter(0..count).map(put).buffer_unordered(spare.depth).try_for_each(|(block, buffer, begun)| {
        latencies.end(begun);
        put_already.push((block, buffer));
        async { Ok(()) }
    });
    block_on(all)?;
    Ok((by_block(put_already), latencies))
}

/// Gets the blocks in this order, with as many futures in flight as there is spare memory for.
///
/// # Errors
/// The manager's; wrong bytes.
pub fn get_by_futures(buffers: &[Buffer], blocks: &Blocks, order: &[u64], spare: &Spare) -> Result<Latencies, Error> {
    let get = |&block: &u64| async move {
        let begun = Instant::now();
        let bytes = buffers[block as usize].read_into_async(0, spare.take(blocks)?).await?;
        Ok::<_, Error>((block, bytes, begun))
    };
    let mut latencies = Latencies::default();
    let all = iter(order).map(get).buffer_unordered(spare.depth).try_for_each(|(block, bytes, begun)| {
        latencies.end(begun);
        let checked = blocks.check(bytes.as_ref(), block);
        async { checked }
    });
    block_on(all)?;
    Ok(latencies)
}

/// Puts the blocks in order, on sixteen threads that block.
///
/// # Errors
/// The manager's.
pub fn put_by_threads(manager: &Manager, blocks: &Blocks, count: u64) -> Result<(Buffers, Latencies), Error> {
    let next = AtomicUsize::new(0);
    let run = || -> Result<_, Error> {
        let (mut bytes, mut put_already, mut latencies) = (memory(blocks)?, Vec::new(), Latencies::default());
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed) as u64;
            if block >= count {
                return Ok((put_already, latencies));
            }
            let begun = Instant::now();
            blocks.stamp(&mut bytes, block);
            let buffer = manager.allocate(bytes.len() as u64)?;
            buffer.write(0, &bytes)?;
            latencies.end(begun);
            put_already.push((block, buffer));
        }
    };
    let (mut all, mut latencies) = (Vec::new(), Latencies::default());
    for one in each(THREADS, run) {
        let (put_already, of_thread) = one?;
        all.extend(put_already);
        latencies.add(&of_thread);
    }
    Ok((by_block(all), latencies))
}

/// Gets the blocks in this order, on sixteen threads that block.
///
/// # Errors
/// The manager's; wrong bytes.
pub fn get_by_threads(buffers: &[Buffer], blocks: &Blocks, order: &[u64]) -> Result<Latencies, Error> {
    let next = AtomicUsize::new(0);
    let run = || -> Result<Latencies, Error> {
        let (mut bytes, mut latencies) = (memory(blocks)?, Latencies::default());
        while let Some(&block) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = Instant::now();
            buffers[block as usize].read(0, &mut bytes)?;
            latencies.end(begun);
            blocks.check(&bytes, block)?;
        }
        Ok(latencies)
    };
    each(THREADS, run).into_iter().collect()
}

fn by_block(mut all: Vec<(u64, Buffer)>) -> Buffers {
    all.sort_unstable_by_key(|(block, _)| *block);
    all.into_iter().map(|(_, buffer)| buffer).collect()
}

/// Demotes what is in memory, and makes all files durable. The newest buffers are asked first: they are those in memory, as a
/// rule, and the others need not be asked then.
///
/// # Errors
/// The manager's; the system's; bytes are still in memory.
pub fn flush(manager: &Manager, buffers: &[Buffer], depth: usize, directory: &Path) -> Result<(), Error> {
    let in_memory = || manager.tiers().first().map_or(0, |tier| tier.view.used);
    let one = buffers.first().map_or(1, Buffer::bytes);
    let newest = buffers.len().saturating_sub(2 * in_memory().div_ceil(one) as usize);
    for some in [&buffers[newest..], &buffers[..newest]] {
        if in_memory() > 0 {
            let demoted = iter(some).map(|buffer| manager.demote_async(buffer, FILES)).buffer_unordered(depth);
            block_on(demoted.try_for_each(|()| async { Ok(()) }))?;
        }
    }
    match in_memory() {
        0 => sync_files(directory),
        bytes => Err(format!("{bytes} bytes are still in memory after they were demoted").into()),
    }
}
