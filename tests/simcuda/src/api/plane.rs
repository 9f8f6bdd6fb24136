//! Rows: memory whose rows begin at multiples of a pitch, and copies of rectangles in such memory.
//!
//! Every pitch will do between places of a device, as `cuMemcpy2DUnaligned` promises and `cuMemcpy2D` does not.

use super::copy::{on_host, on_stream, pageable, together};
use super::valid;
use crate::abi::codes::{INVALID_VALUE, NOT_SUPPORTED};
use crate::abi::{In, Out, Outcome, PlaneCopy, PlaneEnd, c_uint};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Held, World};
use crate::memory::Holder;
use crate::streams::synchronise;

/// Rows of `cuMemAllocPitch` begin at multiples of this, as those of textures do.
const PITCH: usize = 512;

/// `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
pub(super) const MAX_PITCH: usize = i32::MAX as usize;

/// `CU_MEMORYTYPE_HOST`, `DEVICE`, `ARRAY` and `UNIFIED`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const ARRAY: c_uint = 3;
const UNIFIED: c_uint = 4;

exports! {
    /// A block for rows, and how far one begins after the other. Elements have 4, 8 or 16 bytes.
    Context fn cuMemAllocPitch_v2(
        world, here, pointer: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: c_uint,
    ) {
        pointer.check()?;
        pitch.check()?;
        valid(matches!(element, 4 | 8 | 16) && width > 0 && height > 0)?;
        let step = width.checked_next_multiple_of(PITCH).filter(|step| *step <= MAX_PITCH).ok_or(INVALID_VALUE)?;
        let bytes = step.checked_mul(height).ok_or(INVALID_VALUE)?;
        world.forbidden_in_capture()?;
        pointer.put(world.allocate(here, bytes as u64, Holder::Device)?)?;
        pitch.put(step)
    }

    /// A rectangle, on the legacy default stream. Returns when it is done where one end is the host's.
    Context fn cuMemcpy2D_v2(world, here, copy: In<PlaneCopy>) {
        now(world, here, "cuMemcpy2D", copy)
    }

    /// The same.
    Context fn cuMemcpy2DUnaligned_v2(world, here, copy: In<PlaneCopy>) {
        now(world, here, "cuMemcpy2DUnaligned", copy)
    }

    /// A rectangle, on a stream. Host memory that nobody registered is copied row by row, as other copies do it.
    Context fn cuMemcpy2DAsync_v2(world, here, copy: In<PlaneCopy>, stream: u64) {
        let rows = rows(copy.get()?)?;
        let lane = world.lane_here(here, stream, "cuMemcpy2DAsync")?;
        if rows.iter().all(|row| !pageable(world, row.to) && !pageable(world, row.from.address())) {
            return world.submit(lane, together("cuMemcpy2DAsync", copies(&rows))).map(drop);
        }
        rows.into_iter().try_for_each(|row| on_stream(world, lane, "cuMemcpy2DAsync", row.to, row.from, row.bytes))
    }
}

/// A row to copy.
struct CopiedRow {
    to: u64,
    from: In<u8>,
    bytes: usize,
}

fn copies(rows: &[CopiedRow]) -> Vec<(u64, u64, u64)> {
    rows.iter().map(|row| (row.to, row.from.address(), row.bytes as u64)).collect()
}

fn now(held: &mut Held, here: Here, name: &'static str, copy: In<PlaneCopy>) -> Outcome {
    let rows = rows(copy.get()?)?;
    let lane = held.streams.legacy_of(here.context, here.device);
    let ends_on_host =
        |world: &World| rows.first().is_some_and(|row| on_host(world, row.to) || on_host(world, row.from.address()));
    let wait = ends_on_host(held);
    let sequence = held.submit(lane, together(name, copies(&rows)))?;
    if wait {
        synchronise(held, &[(lane, sequence)], name)?;
    }
    held.here(here.context).map(drop)
}

/// The rows of a rectangle; one row where both ends have no gaps.
fn rows(copy: PlaneCopy) -> Outcome<Vec<CopiedRow>> {
    let (width, height) = (copy.width, copy.height);
    let (from, from_pitch) = first_row(copy.from, width, height)?;
    let (to, to_pitch) = first_row(copy.to, width, height)?;
    if width == 0 {
        return Ok(Vec::new());
    }
    if from_pitch == width && to_pitch == width {
        let bytes = width.checked_mul(height).ok_or(INVALID_VALUE)?;
        return Ok((height > 0).then(|| CopiedRow { to: to.address(), from, bytes }).into_iter().collect());
    }
    let row = |at: usize| {
        let (from, to) = (from.after(at * from_pitch), to.after(at * to_pitch));
        CopiedRow { to: to.address(), from, bytes: width }
    };
    Ok((0..height).map(row).collect())
}

/// Where the first row of an end begins, and how far one row begins after the other. Rows must not overlap.
fn first_row(end: PlaneEnd, width: usize, height: usize) -> Outcome<(In<u8>, usize)> {
    let start = match end.kind {
        HOST => end.host,
        DEVICE | UNIFIED => end.device,
        ARRAY => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    };
    let past = end.x.checked_add(width).ok_or(INVALID_VALUE)?;
    // With one row there is no next one to reach.
    let pitch = if end.pitch == 0 && end.y == 0 && height <= 1 { past } else { end.pitch };
    valid((past..=MAX_PITCH).contains(&pitch))?;
    let last = end.y.checked_add(height).and_then(|rows| rows.checked_mul(pitch));
    valid(last.and_then(|bytes| (bytes as u64).checked_add(start.address())).is_some())?;
    Ok((start.after(end.y * pitch + end.x), pitch))
}
