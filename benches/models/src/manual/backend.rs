//! The device behind `terrace_device::Backend`.

use super::work::{Line, Mark};
use super::{Lie, Manual, State};
use terrace_device::{
    Backend, Description, Fault, FaultReason, Memory, MemoryKind, PhysicalHandle, RawEvent, RawStream,
};

/// A rule of the driver's that the caller broke: remembered, and refused.
fn misuse<T>(state: &mut State, call: &'static str) -> Result<T, Fault> {
    state.broken.push(format!("{call}: called against its rules"));
    Err(Fault::of(call, FaultReason::BadHandle))
}

impl State {
    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Where an event was recorded; `None` for one that never was, or does not exist.
    fn recorded(&self, event: RawEvent) -> Option<Mark> {
        self.events.get(&event.0).cloned().flatten()
    }

    /// Whether asking about a stream would disturb a capture.
    fn disturbs(&mut self, stream: u64, call: &'static str) -> bool {
        let capturing = self.lines.get(&stream).is_some_and(|line| line.capturing);
        if capturing {
            self.broken.push(format!("{call} of stream {stream} while a graph is captured on it"));
        }
        capturing
    }
}

// SAFETY: there is no memory behind its addresses, and no capability is set that would let the host touch them; its programs
// copy nothing to or from the host. That it lies on purpose costs numbers, not bytes.
unsafe impl Backend for Manual {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        let free = self.call("memory")?.ground.free();
        Ok(Memory { free, total: self.description.total })
    }

    fn take(&self, _: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        let mut state = self.call("take")?;
        let again = state.lie == Some(Lie::RegionsTwice);
        state.ground.take(bytes, again).map_err(|reason| Fault::of("take", reason))
    }

    unsafe fn give_back(&self, _: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault> {
        let mut state = self.call("give_back")?;
        state.leave(address, bytes);
        if state.ground.give_back(address, bytes) { Ok(()) } else { misuse(&mut state, "give_back") }
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        Ok(self.call("reserve")?.ground.reserve(bytes))
    }

    unsafe fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let mut state = self.call("unreserve")?;
        if state.ground.unreserve(address, bytes) { Ok(()) } else { misuse(&mut state, "unreserve") }
    }

    fn create_handle(&self, bytes: u64) -> Result<PhysicalHandle, Fault> {
        let mut state = self.call("create_handle")?;
        let handle = state.name();
        state.ground.create(handle, bytes).map_err(|reason| Fault::of("create_handle", reason))?;
        Ok(PhysicalHandle(handle))
    }

    unsafe fn release_handle(&self, handle: PhysicalHandle) -> Result<(), Fault> {
        let mut state = self.call("release_handle")?;
        if state.ground.release(handle.0) { Ok(()) } else { misuse(&mut state, "release_handle") }
    }

    unsafe fn map(&self, address: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Fault> {
        let mut state = self.call("map")?;
        if state.ground.map(address, bytes, handle.0) { Ok(()) } else { misuse(&mut state, "map") }
    }

    unsafe fn allow(&self, address: u64, bytes: u64, _: &[u32]) -> Result<(), Fault> {
        let mut state = self.call("allow")?;
        if state.ground.is_whole(address, bytes) { Ok(()) } else { misuse(&mut state, "allow") }
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let mut state = self.call("unmap")?;
        state.leave(address, bytes);
        if state.ground.unmap(address, bytes) { Ok(()) } else { misuse(&mut state, "unmap") }
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        let mut state = self.call("create_stream")?;
        let stream = state.name();
        state.lines.insert(stream, Line::default());
        Ok(RawStream(stream))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let mut state = self.call("destroy_stream")?;
        if state.disturbs(stream.0, "destroy_stream") || !state.lines.contains_key(&stream.0) {
            return misuse(&mut state, "destroy_stream");
        }
        // What is in flight is still done: here at once, though nobody has seen it.
        state.finish(stream.0, u64::MAX);
        state.lines.remove(&stream.0);
        Ok(())
    }

    unsafe fn is_idle(&self, stream: RawStream) -> Result<bool, Fault> {
        let mut state = self.call("is_idle")?;
        if state.disturbs(stream.0, "is_idle") {
            return Err(Fault::of("is_idle", FaultReason::Capturing));
        }
        let Some(line) = state.lines.get(&stream.0) else { return Err(Fault::of("is_idle", FaultReason::BadHandle)) };
        let (idle, mark) = (line.done == line.issued, line.mark(stream.0));
        if idle {
            state.see(&mark);
        }
        Ok(idle)
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let mut state = self.call("synchronize_stream")?;
        if state.disturbs(stream.0, "synchronize_stream") {
            return Err(Fault::of("synchronize_stream", FaultReason::Capturing));
        }
        let Some(mark) = state.lines.get(&stream.0).map(|line| line.mark(stream.0)) else {
            return Err(Fault::of("synchronize_stream", FaultReason::BadHandle));
        };
        state.finish(stream.0, mark.work);
        state.see(&mark);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Fault> {
        let mut state = self.call("synchronize")?;
        let streams: Vec<u64> = state.lines.keys().copied().collect();
        if streams.iter().any(|&stream| state.disturbs(stream, "synchronize")) {
            return Err(Fault::of("synchronize", FaultReason::Capturing));
        }
        for stream in streams {
            state.finish(stream, u64::MAX);
        }
        state.accesses.clear();
        let marks: Vec<_> = state.lines.iter().map(|(&stream, line)| line.mark(stream)).collect();
        marks.iter().for_each(|mark| state.see(mark));
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        let mut state = self.call("create_event")?;
        let event = state.name();
        state.events.insert(event, None);
        Ok(RawEvent(event))
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<(), Fault> {
        let mut state = self.call("destroy_event")?;
        if state.events.remove(&event.0).is_some() { Ok(()) } else { misuse(&mut state, "destroy_event") }
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault> {
        let mut state = self.call("record")?;
        if state.disturbs(stream.0, "record") {
            return Err(Fault::of("record", FaultReason::Capturing));
        }
        let Some(mark) = state.lines.get(&stream.0).map(|line| line.mark(stream.0)) else {
            return Err(Fault::of("record", FaultReason::BadHandle));
        };
        if state.events.insert(event.0, Some(mark)).is_none() {
            return misuse(&mut state, "record");
        }
        Ok(())
    }

    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault> {
        let mut state = self.call("query")?;
        let Some(mark) = state.recorded(event) else { return misuse(&mut state, "query") };
        if state.disturbs(mark.stream, "query") {
            return Err(Fault::of("query", FaultReason::Capturing));
        }
        let done = state.lines.get(&mark.stream).is_none_or(|line| line.done >= mark.work);
        if state.lie == Some(Lie::EventsEarly) {
            return Ok(true);
        }
        if done {
            state.see(&mark);
        }
        Ok(done)
    }

    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault> {
        let mut state = self.call("wait")?;
        let Some(mark) = state.recorded(event) else { return misuse(&mut state, "wait") };
        if state.disturbs(mark.stream, "wait") {
            return Err(Fault::of("wait", FaultReason::Capturing));
        }
        if state.lie == Some(Lie::WaitsShort) {
            return Ok(());
        }
        state.finish(mark.stream, mark.work);
        state.see(&mark);
        Ok(())
    }

    unsafe fn order(&self, stream: RawStream, event: RawEvent) -> Result<(), Fault> {
        let mut state = self.call("order")?;
        let Some(mark) = state.recorded(event) else { return misuse(&mut state, "order") };
        if state.disturbs(stream.0, "order") {
            return Err(Fault::of("order", FaultReason::Capturing));
        }
        if state.lie == Some(Lie::OrdersForgotten) {
            return Ok(());
        }
        match state.lines.get_mut(&stream.0) {
            Some(line) => {
                line.before.join(&mark.before);
                line.before.reach(mark.stream, mark.work);
            }
            None => return Err(Fault::of("order", FaultReason::BadHandle)),
        }
        Ok(())
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool, Fault> {
        let state = self.call("is_capturing")?;
        Ok(state.lines.get(&stream.0).is_some_and(|line| line.capturing))
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let mut state = self.call("copy")?;
        // One side may be the host's, which is not kept track of.
        let sides = [to, from].map(|side| (side, bytes));
        let device: Vec<_> = sides.into_iter().filter(|(side, _)| *side >= 1 << 40 && *side < 1 << 46).collect();
        state.launch(stream.0, &device);
        Ok(())
    }

    unsafe fn fill(&self, address: u64, _: u8, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        self.call("fill")?.launch(stream.0, &[(address, bytes)]);
        Ok(())
    }
}
