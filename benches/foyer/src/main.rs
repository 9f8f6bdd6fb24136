//! foyer, a cache of memory and files, does what `cargo xtask bench tiers` measures: it puts and gets blocks.
//!
//! Promises upward: one line of JSON, a [`Peer`]; every block is there and compared, or the exit code is 1 and the reason is on
//! standard error.
//! Asks from below: foyer's public interface.
//!
//! A cache may drop what it is given, and foyer does when blocks come faster than the disk takes them. So blocks are written when they
//! are inserted, half of those in flight at a time, and the program waits for one half while the other is under way; memory for
//! writes holds both. Otherwise foyer has its defaults, direct I/O, and the memory that the manager has. Memory is emptied before the
//! gets, as the manager's is.

use clap::{Parser, ValueEnum};
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    IoEngineConfig, PsyncIoEngineConfig, UringIoEngineConfig,
};
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use terrace_raw::{Blocks, Error, Latencies, Moved, Peer, resident, shuffled, sync_files, timed};
use tokio::runtime::{Builder, Runtime};

type Cache = HybridCache<u64, Vec<u8>>;

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    Ring,
    Threads,
}

/// Puts and gets blocks through foyer.
#[derive(Parser)]
struct Options {
    /// What moves bytes between memory and files
    #[arg(long)]
    engine: Engine,
    /// Folder for files
    #[arg(long)]
    directory: PathBuf,
    /// Bytes of a block
    #[arg(long)]
    block: usize,
    /// Blocks in flight
    #[arg(long)]
    depth: usize,
    /// Bytes of all blocks
    #[arg(long)]
    total: usize,
    /// Bytes of memory
    #[arg(long)]
    memory: usize,
    /// The round
    #[arg(long)]
    round: u64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, Error> {
    let runtime = Builder::new_multi_thread().build()?;
    let before = resident("VmRSS:")?;
    let (cache, blocks) = (runtime.block_on(build(options))?, Blocks::new(options.block, options.round));
    let order: Vec<u64> = (0..(options.total / options.block) as u64).collect();
    let (put, put_cost) = timed(|| {
        let latencies = put(&runtime, &cache, &blocks, &order, options.depth)?;
        sync_files(&options.directory)?;
        Ok(latencies)
    })?;
    cache.memory().clear();
    let order = shuffled(order, options.round + 1);
    let (get, get_cost) = timed(|| get(&runtime, &cache, &blocks, &order, options.depth))?;
    let peak = resident("VmHWM:")?;
    let moved = |cost, latencies| Moved::new(options.total as u64, cost, latencies);
    let peer = Peer { put: moved(put_cost, &put), get: moved(get_cost, &get), before, peak };
    runtime.block_on(cache.close())?;
    Ok(serde_json::to_string(&peer)?)
}

async fn build(options: &Options) -> Result<Cache, Error> {
    let files = options.total + options.total / 2;
    let device =
        FsDeviceBuilder::new(&options.directory).with_capacity(files.max(256 << 20)).with_direct(true).build()?;
    let in_flight = (2 * options.depth * options.block).max(16 << 20);
    let engine =
        BlockEngineConfig::new(device).with_buffer_pool_size(in_flight).with_submit_queue_size_threshold(2 * in_flight);
    let io: Box<dyn IoEngineConfig> = match options.engine {
        Engine::Ring => Box::new(UringIoEngineConfig::new()),
        Engine::Threads => Box::new(PsyncIoEngineConfig::new()),
    };
    let cache = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(options.memory)
        .with_weighter(|_: &u64, value: &Vec<u8>| value.len())
        .storage()
        .with_io_engine_config(io)
        .with_engine_config(engine);
    Ok(cache.build().await?)
}

/// Puts the blocks in order; a block's latency ends when its half is written.
fn put(runtime: &Runtime, cache: &Cache, blocks: &Blocks, order: &[u64], depth: usize) -> Result<Latencies, Error> {
    let (mut latencies, mut under_way) = (Latencies::default(), None);
    let mut wait = |half: Option<(Vec<Instant>, tokio::task::JoinHandle<()>)>| -> Result<(), Error> {
        if let Some((begun, written)) = half {
            runtime.block_on(written)?;
            begun.into_iter().for_each(|begun| latencies.end(begun));
        }
        Ok(())
    };
    for half in order.chunks((depth / 2).max(1)) {
        let insert = |&block: &u64| {
            let begun = Instant::now();
            cache.insert(block, blocks.make(block));
            begun
        };
        let (begun, written) = (half.iter().map(insert).collect(), cache.clone());
        let written = runtime.spawn(async move { written.storage().wait().await });
        wait(under_way.replace((begun, written)))?;
    }
    wait(under_way)?;
    Ok(latencies)
}

/// Gets the blocks in this order.
fn get(runtime: &Runtime, cache: &Cache, blocks: &Blocks, order: &[u64], depth: usize) -> Result<Latencies, Error> {
    let get = |&block: &u64| async move {
        let begun = Instant::now();
        let entry = cache.get(&block).await?.ok_or_else(|| format!("block {block} is lost"))?;
        Ok::<_, Error>((block, entry, begun))
    };
    let mut latencies = Latencies::default();
    let all = iter(order).map(get).buffer_unordered(depth).try_for_each(|(block, entry, begun)| {
        latencies.end(begun);
        let checked = blocks.check(entry.value(), block);
        async { checked }
    });
    runtime.block_on(all)?;
    Ok(latencies)
}
