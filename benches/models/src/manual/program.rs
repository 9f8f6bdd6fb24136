//! Programs over streams, and what must hold after each step.
//!
//! Upward: [`run`] gives the first thing that was wrong, in words. The same for property tests and for fuzzing.

use super::{Lie, Manual, PAGE};
use terrace_device::{Capture, Device, DeviceBlock, DeviceError, DeviceOptions, FaultReason, GraphPool, Stream};

/// Memory of the device: enough that some programs fit and some do not.
const TOTAL: u64 = 64 << 20;
/// Streams open at once, at most.
const STREAMS: usize = 4;

/// One step. Numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A block of a size for a stream.
    Allocate(u8, u16),
    /// Work on a block, on its own stream.
    Use(u8),
    /// Work on a block on another stream, after saying so, ordered after its own.
    UseOn(u8, u8),
    /// Copies from one block to another.
    Copy(u8, u8),
    /// Drops a block.
    Drop(u8),
    /// A stream goes on by a few pieces of work.
    Advance(u8, u8),
    /// One stream waits for another.
    Order(u8, u8),
    /// Waits for a stream.
    Wait(u8),
    /// Opens a stream.
    Open,
    /// Closes a stream; its blocks live on.
    Close(u8),
    /// Gives back what is unused.
    Trim,
    /// A graph is captured on a stream, or its capture ends.
    Capture(u8),
}

impl Step {
    /// Every four bytes are a step.
    pub fn from_bytes([what, a, b, c]: [u8; 4]) -> Self {
        match what % 24 {
            0..=6 => Self::Allocate(a, u16::from_le_bytes([b, c])),
            7..=9 => Self::Use(a),
            10 => Self::UseOn(a, b),
            11 => Self::Copy(a, b),
            12..=16 => Self::Drop(a),
            17 => Self::Advance(a, b),
            18 => Self::Order(a, b),
            19 => Self::Wait(a),
            20 => Self::Open,
            21 => Self::Close(a),
            22 => Self::Trim,
            _ => Self::Capture(a),
        }
    }
}

/// What a program has in hand.
struct World {
    manual: Manual,
    device: Device,
    streams: Vec<(Stream, Option<Capture>)>,
    /// Blocks, and the stream each was made for.
    blocks: Vec<(DeviceBlock, Stream)>,
}

/// Bytes of a request: most are small and repeat, some are large.
fn size(code: u16) -> u64 {
    match code % 8 {
        0..=4 => 256 << (code / 8 % 7),
        5 | 6 => u64::from(code) * 61 + 1,
        _ => u64::from(code / 8 % 12 + 1) << 20,
    }
}

/// What goes wrong while a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The call of the device that fails, counted from the first after it is open.
    pub fails: Option<u64>,
    /// What the driver says that is not so.
    pub lie: Option<Lie>,
}

/// Runs a program.
///
/// # Errors
/// The first rule that was broken.
pub fn run(pages: bool, trouble: Trouble, steps: &[Step]) -> Result<(), String> {
    let manual = Manual::new(TOTAL, pages);
    let options = DeviceOptions { blocks: 1 << 9, device_fraction: 1.0, segment: PAGE, ..DeviceOptions::default() };
    let device = Device::open(manual.clone(), options).map_err(|error| format!("open: {error}"))?;
    let graphs = device.graph_pool().map_err(|error| format!("graph pool: {error}"))?;
    trouble.lie.into_iter().for_each(|lie| manual.lie(lie));
    if let Some(at) = trouble.fails {
        manual.fail(at, [FaultReason::Other, FaultReason::OutOfMemory, FaultReason::Unsupported][at as usize % 3]);
    }
    let mut world = World { manual: manual.clone(), device, streams: Vec::new(), blocks: Vec::new() };
    for (i, &step) in steps.iter().enumerate() {
        let done = world.step(&graphs, step);
        world.judge(done, trouble.fails.is_some()).map_err(|wrong| format!("step {i}, {step:?}: {wrong}"))?;
    }
    manual.heal();
    let World { device, streams, blocks, .. } = world;
    streams.iter().for_each(|(stream, _)| manual.set_capturing(stream.raw(), false));
    drop((blocks, streams));
    drop(graphs);
    device.trim();
    let held = device.stats();
    if (held.pool.reserved, held.pool.live_blocks, held.held) != (0, 0, 0) {
        return Err(format!("after everything was dropped and trimmed: {held:?}"));
    }
    drop(device);
    match (manual.broken().as_slice(), manual.outstanding().as_slice()) {
        ([], []) => Ok(()),
        (broken, left) => Err(format!("at the end: {broken:?}, not given back: {left:?}")),
    }
}

impl World {
    fn stream(&self, i: u8) -> Option<Stream> {
        let count = self.streams.len();
        self.streams.get(usize::from(i) % count.max(1)).map(|(stream, _)| stream.clone())
    }

    fn step(&mut self, graphs: &GraphPool, step: Step) -> Result<(), DeviceError> {
        let count = self.blocks.len();
        let pick = |i: u8| (count > 0).then(|| usize::from(i) % count);
        match step {
            Step::Allocate(stream, code) => {
                let Some(stream) = self.stream(stream) else { return Ok(()) };
                let block = self.device.allocate(&stream, size(code))?;
                self.manual.launch(stream.raw(), block.address(), block.bytes());
                self.blocks.push((block, stream));
            }
            Step::Use(i) => {
                let Some((block, stream)) = pick(i).and_then(|i| self.blocks.get(i)) else { return Ok(()) };
                if self.streams.iter().any(|(open, _)| open.raw() == stream.raw()) {
                    self.manual.launch(stream.raw(), block.address(), block.bytes());
                }
            }
            Step::UseOn(i, other) => {
                let (Some(i), Some(other)) = (pick(i), self.stream(other)) else { return Ok(()) };
                let (block, stream) = &self.blocks[i];
                let captured = self
                    .streams
                    .iter()
                    .any(|(open, capture)| capture.is_some() && [stream.raw(), other.raw()].contains(&open.raw()));
                if !captured && self.streams.iter().any(|(open, _)| open.raw() == stream.raw()) {
                    other.wait_for(stream)?;
                    block.used_on(&other)?;
                    self.manual.launch(other.raw(), block.address(), block.bytes());
                    let ordered = stream.wait_for(&other);
                    if ordered.is_err() {
                        // Nothing orders what the two do with it from now on: nobody uses it any more.
                        self.blocks.swap_remove(i);
                    }
                    ordered?;
                }
            }
            Step::Copy(to, from) => {
                let (Some(to), Some(from)) = (pick(to), pick(from)) else { return Ok(()) };
                let captured = self.streams.iter().any(|(_, capture)| capture.is_some());
                if to != from && !captured {
                    let bytes = self.blocks[to].0.bytes().min(self.blocks[from].0.bytes());
                    let (mut block, stream) = self.blocks.swap_remove(to);
                    let from = if from == self.blocks.len() { to } else { from };
                    let copied = block.copy_from(0, &self.blocks[from].0, 0, bytes);
                    if copied.is_err() {
                        // As above, for both.
                        self.blocks.swap_remove(from);
                    }
                    copied?;
                    self.blocks.push((block, stream));
                }
            }
            Step::Drop(i) => _ = pick(i).map(|i| self.blocks.swap_remove(i)),
            Step::Advance(stream, count) => {
                let Some(stream) = self.stream(stream) else { return Ok(()) };
                (0..count % 8).all(|_| self.manual.advance(stream.raw()));
            }
            Step::Order(later, first) => {
                let (Some(later), Some(first)) = (self.stream(later), self.stream(first)) else { return Ok(()) };
                let captured = self.streams.iter().any(|(_, capture)| capture.is_some());
                if !captured {
                    later.wait_for(&first)?;
                }
            }
            Step::Wait(i) => {
                let captured = self.streams.iter().any(|(_, capture)| capture.is_some());
                if let Some(stream) = self.stream(i).filter(|_| !captured) {
                    stream.synchronize()?;
                }
            }
            Step::Open if self.streams.len() < STREAMS => self.streams.push((self.device.stream()?, None)),
            Step::Open => {}
            Step::Close(i) => {
                let count = self.streams.len();
                if count > 0 {
                    let (stream, capture) = self.streams.swap_remove(usize::from(i) % count);
                    drop(capture.inspect(|_| self.manual.set_capturing(stream.raw(), false)));
                }
            }
            Step::Trim => _ = self.device.trim(),
            Step::Capture(i) => {
                let count = self.streams.len();
                let Some((stream, capture)) = self.streams.get_mut(usize::from(i) % count.max(1)) else {
                    return Ok(());
                };
                match capture.take() {
                    Some(capture) => {
                        self.manual.set_capturing(stream.raw(), false);
                        drop(capture);
                    }
                    None => {
                        *capture = Some(stream.capture(graphs)?);
                        self.manual.set_capturing(stream.raw(), true);
                    }
                }
            }
        }
        Ok(())
    }

    /// What must hold after a step.
    fn judge(&self, done: Result<(), DeviceError>, may_fail: bool) -> Result<(), String> {
        match done {
            Ok(()) | Err(DeviceError::OutOfMemory(_)) => {}
            Err(DeviceError::Driver { fault, .. }) if may_fail || fault.reason == FaultReason::Capturing => {}
            Err(error) => return Err(format!("it failed: {error}")),
        }
        if let Some(rule) = self.manual.broken().first() {
            return Err(rule.clone());
        }
        self.device.check().map_err(|violation| violation.to_string())?;
        let mut ranges: Vec<_> = self.blocks.iter().map(|(block, _)| (block.address(), block.bytes())).collect();
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            Some(pair) => Err(format!("two live blocks overlap: {pair:x?}")),
            None => Ok(()),
        }
    }
}
