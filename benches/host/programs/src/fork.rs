//! Forks while threads allocate.
//!
//! Promises upward: a child that does not end within five seconds is killed and counted, and so is one that ends badly; no
//! child outlives this. Asks from below: `fork`, `waitpid`, `kill`.

use crate::block::{Block, fail};
use crate::random::Random;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that a child has.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many deadlocks are enough to know.
const ENOUGH: usize = 10;

/// How a child ended.
enum End {
    Well,
    Badly,
    Never,
}

/// Forks `times` while two threads allocate and a third starts others that do. Prints forks, deadlocks, bad children.
pub fn under_load(times: usize) -> String {
    let (stop, shared) = (AtomicBool::new(false), table());
    let (mut done, mut stuck, mut bad) = (0, 0, 0);
    std::thread::scope(|scope| {
        let (stop, shared) = (&stop, &shared);
        for seed in 0..2 {
            scope.spawn(move || load(Random::new(60 + seed), stop, shared));
        }
        // Threads that come and go take other locks than those that stay.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let short = || (4..18).map(|bits| Block::new(1 << bits)).collect::<Vec<_>>();
                drop(std::thread::spawn(short).join());
            }
        });
        while done < times && stuck < ENOUGH {
            match one(done) {
                End::Well => {}
                End::Badly => bad += 1,
                End::Never => stuck += 1,
            }
            done += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    format!("{done} {stuck} {bad}")
}

fn table() -> Vec<Mutex<Option<Block>>> {
    (0..200).map(|_| Mutex::new(None)).collect()
}

/// Allocates and frees, some of it what the other thread allocated.
fn load(mut random: Random, stop: &AtomicBool, shared: &[Mutex<Option<Block>>]) {
    let mut own: Vec<Option<Block>> = (0..500).map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..100 {
            let most = if random.below(8) == 0 { 20 } else { 12 };
            let block = Block::new(random.log_uniform(4, most));
            if random.below(4) == 0 {
                let slot = &shared[random.below(shared.len())];
                drop(slot.lock().unwrap_or_else(PoisonError::into_inner).replace(block));
            } else {
                let slot = random.below(own.len());
                own[slot] = Some(block);
            }
        }
    }
}

/// One child: allocates and frees in each size, then ends.
fn one(seed: usize) -> End {
    // SAFETY: the child does nothing but allocate, free and end.
    match unsafe { libc::fork() } {
        -1 => fail("fork failed"),
        0 => {
            // Enough of each size that what the thread had in reserve does not last.
            let sizes = (4..21).flat_map(|bits| std::iter::repeat_n((1 << bits) + seed % (1 << bits), 8));
            let blocks: Vec<Block> = sizes.flat_map(|size| [Block::zeroed(size / 2), Block::new(size)]).collect();
            drop(blocks);
            // SAFETY: ends this process; nothing of it is used again.
            unsafe { libc::_exit(0) }
        }
        child => wait(child),
    }
}

fn wait(child: libc::pid_t) -> End {
    let (began, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: `status` may be written to; the child is ours and was not waited for.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return if status == 0 { End::Well } else { End::Badly };
        }
        if began.elapsed() > PATIENCE {
            // SAFETY: the child is ours and was not waited for: no other process has its number.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(child, &mut status, 0) };
            return End::Never;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_this_allocator_end_well() {
        assert_eq!(under_load(20), "20 0 0");
    }
}
