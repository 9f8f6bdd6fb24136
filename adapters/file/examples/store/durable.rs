//! Durable puts, the cost of an idle store, and how fast a store opens.

use crate::StoreFixture;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_file::{Change, EngineKind, JoinHandle, PutResult};
use terrace_raw::{Error, processor};

const PIECE: usize = 64 << 10;

/// Pieces in a group.
const GROUP: u64 = 64;

/// Number of groups, and of single puts, that are timed.
const TIMES: u64 = 20;

/// Times durable puts of 64 KiB, one by one and in groups.
pub fn puts(fixture: &StoreFixture) -> Result<(), Error> {
    let one = |object: u64| -> Result<Change, Error> {
        let piece = fixture.store.put(fixture.frames.take(PIECE)?, PIECE).wait().result?;
        Ok(Change::Piece { object, part: 0, piece })
    };
    let (mut single, mut grouped) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TIMES {
        let begun = Instant::now();
        fixture.store.commit(vec![one(0)?]).wait()?;
        single += begun.elapsed();
        // Each is a commit of its own, as of 64 callers.
        let begun = Instant::now();
        let puts = (0..GROUP).map(|_| Ok(fixture.store.put(fixture.frames.take(PIECE)?, PIECE)));
        let puts = puts.collect::<Result<Vec<_>, Error>>()?;
        let commit = |(object, put): (u64, JoinHandle<PutResult>)| -> Result<_, Error> {
            Ok(fixture.store.commit(vec![Change::Piece { object, part: 0, piece: put.wait().result? }]))
        };
        let commits = (0..).zip(puts).map(commit).collect::<Result<Vec<_>, Error>>()?;
        commits.into_iter().try_for_each(|commit| commit.wait())?;
        grouped += begun.elapsed();
    }
    let single = single.as_secs_f64() / TIMES as f64;
    let grouped = grouped.as_secs_f64() / (TIMES * GROUP) as f64;
    println!(
        "durable 64 KiB put: alone {:.2} ms, in groups of {GROUP} {:.3} ms each: {:.3}",
        single * 1e3,
        grouped * 1e3,
        grouped / single
    );
    Ok(())
}

/// Processor time in five idle seconds; growth of the page cache while 4 GiB are moved.
pub fn idle_and_cache(fixture: &StoreFixture) -> Result<(), Error> {
    let before = processor();
    std::thread::sleep(Duration::from_secs(5));
    println!("idle: {:.4} CPU-s in 5 s", (processor() - before).as_secs_f64());
    let cached = page_cache();
    for _ in 0..2 {
        let pieces = fixture.put(1 << 20, 1, 8);
        fixture.get(&pieces, 1, 8);
    }
    let grown = page_cache().saturating_sub(cached);
    println!("page cache after 4 GiB moved: {:.3} % of them", grown as f64 / f64::from(1u32 << 22) * 100.0);
    Ok(())
}

/// KiB in the page cache.
fn page_cache() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Times opening a store of a million entries.
pub fn reopen(path: &Path) -> Result<(), Error> {
    const ENTRIES: u32 = 1 << 20;
    const EACH: u32 = 1 << 14;
    let cap = 12 << 30;
    let fixture = StoreFixture::open(path, EngineKind::Best, cap)?;
    for object in 0..u64::from(ENTRIES / EACH) {
        let mut changes = Vec::new();
        let puts: Vec<_> =
            (0..EACH).map(|_| Ok(fixture.store.put(fixture.frames.take(4096)?, 4096))).collect::<Result<_, Error>>()?;
        for (part, put) in (0..).zip(puts) {
            changes.push(Change::Piece { object, part, piece: put.wait().result? });
        }
        fixture.store.commit(changes).wait()?;
    }
    drop(fixture);
    for _ in 0..3 {
        let begun = Instant::now();
        let fixture = StoreFixture::open(path, EngineKind::Best, cap)?;
        let took = begun.elapsed();
        println!("{ENTRIES} entries opened in {:.2} s, {} objects", took.as_secs_f64(), fixture.store.objects().len());
    }
    Ok(())
}
