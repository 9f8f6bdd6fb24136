//! How an engine moves bytes.

use std::time::Duration;

/// Which of several waiting transfers goes first.
///
/// One of a lower class is passed over at most [`TransferOptions::patience`] times for each piece it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before all others.
    High,
    /// What is not said.
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

/// Options of a [`TransferEngine`](super::TransferEngine). All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferOptions {
    /// Threads, each with a stream and two staging buffers of pinned memory, which grow with the pieces (they are beside the
    /// device's pools and limits): the bound on what moves at once. From 1 to 16. A lane that moves something behind a
    /// kernel waits for that kernel, whatever else is asked for meanwhile.
    pub lanes: usize,
    /// The least and the most bytes moved in one piece; between them the size follows what is measured. Powers of two, from
    /// 4 KiB to 1 GiB.
    pub chunk: (u64, u64),
    /// The most small copies joined into one piece. From 1 to 65536.
    pub batch: usize,
    /// Attempts to copy a piece of a transfer before its error is reported; at least 1.
    pub attempts: u32,
    /// The wait after the first refusal that may pass; twice as long after each that follows.
    pub backoff: Duration,
    /// The longest such wait.
    pub backoff_most: Duration,
    /// How often a lower class is passed over before it gets a piece. At least 1.
    pub patience: u32,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            // One for each direction: devices have an engine for copies in and one for copies out.
            lanes: 2,
            // 256 KiB take 10 us at 25 GB/s, what a copy costs by itself; 16 MiB make that a sixtieth.
            chunk: (256 << 10, 16 << 20),
            batch: 1024,
            attempts: 8,
            // 100 us, 200 us, ... 12.8 ms: 25 ms in all before an error is told.
            backoff: Duration::from_micros(100),
            backoff_most: Duration::from_millis(50),
            patience: 8,
        }
    }
}

impl TransferOptions {
    /// Refuses what no engine can work with.
    ///
    /// # Errors
    /// The rule that is broken.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let (least, most) = self.chunk;
        if !(1..=16).contains(&self.lanes) {
            return Err("lanes are from 1 to 16");
        }
        let sizes = 4 << 10..=1 << 30;
        let sized = sizes.contains(&least) && sizes.contains(&most);
        if !sized || !least.is_power_of_two() || !most.is_power_of_two() || least > most {
            return Err("chunk is two powers of two from 4 KiB to 1 GiB, the smaller first");
        }
        if !(1..=1 << 16).contains(&self.batch) {
            return Err("batch is from 1 to 65536");
        }
        if self.backoff.max(self.backoff_most) > Duration::from_secs(60) {
            return Err("backoff and backoff_most are at most a minute");
        }
        if self.attempts == 0 || self.patience == 0 {
            return Err("attempts and patience are at least 1");
        }
        Ok(())
    }

    /// How long to wait after a piece was refused for the `refused`-th time (1 is the first).
    pub(super) fn delay(&self, refused: u32) -> Duration {
        let doubled = 1u32.checked_shl(refused.saturating_sub(1)).and_then(|times| self.backoff.checked_mul(times));
        doubled.map_or(self.backoff_most, |delay| delay.min(self.backoff_most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (backoff, backoff_most) = (Duration::from_millis(1), Duration::from_millis(5));
        let options = TransferOptions { backoff, backoff_most, ..TransferOptions::default() };
        let waits = [1, 2, 3, 4, 40].map(|refused| options.delay(refused).as_millis());
        assert_eq!(waits, [1, 2, 4, 5, 5]);
    }
}
