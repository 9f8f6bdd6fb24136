//! What is still there.
//!
//! Upward: [`World::leaks`], a line for each thing that its maker should have given back by now. What belongs to a lost
//! context cannot be given back and is no leak.

use super::World;
use crate::memory::Holder;

impl World {
    /// Everything still allocated, created, mapped, recorded or retained.
    pub fn leaks(&self) -> Vec<String> {
        let mut lines = self.memory.lost.clone();
        lines.extend(self.blocks_left());
        lines.extend(self.mappings_left());
        lines.extend(self.objects_left());
        lines
    }

    /// Whether the device's primary context is lost.
    fn device_lost(&self, device: usize) -> bool {
        self.device_works(device).is_err()
    }

    fn blocks_left(&self) -> Vec<String> {
        let live = self.memory.blocks.iter().filter(|(_, block)| block.freed.is_none());
        let live = live.filter(|(_, block)| match block.holder {
            Holder::Pool(_) => !self.device_lost(block.device),
            // Its module is there too.
            Holder::Variable(_) => false,
            _ => !self.is_lost(block.context),
        });
        live.map(|(start, block)| block.describe(*start)).collect()
    }

    fn mappings_left(&self) -> Vec<String> {
        let lost = (0..self.devices.len()).any(|device| self.device_lost(device));
        let orphan = |key: &u64| self.memory.orphans.contains(key);
        let mappings = self.memory.mappings.iter().filter(|(_, mapping)| !self.device_lost(mapping.device));
        let mappings = mappings.filter(|(_, mapping)| !orphan(&mapping.handle));
        let mappings = mappings.map(|(start, mapping)| format!("mapping {start:#x}+{:#x}", mapping.bytes));
        let held = self.memory.physical.iter().filter(|(_, memory)| memory.references > 0);
        let held = held.filter(|(handle, memory)| !self.device_lost(memory.device) && !orphan(handle));
        let held =
            held.map(|(handle, memory)| format!("handle {handle:#x} of {:#x} bytes of cuMemCreate", memory.bytes));
        // Addresses belong to no device: where one is lost, its mappings keep them.
        let reserved = self.memory.reservations.iter().filter(|(start, _)| !lost && !orphan(start));
        let reserved =
            reserved.map(|(start, end)| format!("addresses {start:#x}+{:#x} of cuMemAddressReserve", end - start));
        let exports = self.memory.exports.iter().filter(|export| !orphan(&export.handle));
        let exports = exports.filter(|export| {
            self.memory.physical.get(export.handle).is_some_and(|memory| !self.device_lost(memory.device))
        });
        let exports = exports.map(|export| format!("descriptor of handle {:#x}, which is open", export.handle));
        mappings.chain(held).chain(reserved).chain(exports).collect()
    }

    fn objects_left(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let streams = self.streams.all.iter().filter(|(_, stream)| stream.handle != 0 && !stream.destroyed);
        // Those of a green context that ended can still be destroyed.
        let streams =
            streams.filter(|(_, stream)| self.contexts.get(stream.context).is_none() || !self.is_lost(stream.context));
        lines.extend(streams.map(|(lane, stream)| stream.describe(*lane)));
        let events = self.events.iter().filter(|(_, event)| !self.is_lost(event.context));
        lines.extend(events.map(|(handle, _)| format!("event {handle:#x}")));
        let own = |handle: u64| self.devices.iter().all(|device| device.default_pool != Some(handle));
        let pools = self.memory.pools.iter().filter(|(handle, pool)| own(*handle) && !self.device_lost(pool.device));
        lines.extend(pools.map(|(handle, _)| format!("pool {handle:#x}")));
        lines.extend(self.captures.live.iter().map(|(handle, _)| format!("capture {handle:#x}")));
        lines.extend(self.captures.graphs.iter().map(|(handle, _)| format!("graph {handle:#x}")));
        lines.extend(self.captures.execs.iter().map(|(handle, _)| format!("graph {handle:#x}, instantiated")));
        let modules = self.modules.iter().filter(|(_, module)| module.library.is_none());
        let modules = modules.filter(|(_, module)| !self.is_lost(module.context));
        lines.extend(modules.map(|(handle, _)| format!("module {handle:#x}")));
        lines.extend(self.libraries.iter().map(|(handle, _)| format!("library {handle:#x}")));
        let links = self.links.iter().filter(|(_, link)| !self.is_lost(link.context));
        lines.extend(links.map(|(handle, _)| format!("link {handle:#x}")));
        lines.extend(self.contexts.iter().map(|(_, context)| match context.own {
            None if context.green.is_some() => format!("green context of device {}", context.device),
            None => format!("context of device {}, retained {} times", context.device, context.retained),
            Some(_) => format!("context of device {}, made by cuCtxCreate", context.device),
        }));
        lines
    }
}
