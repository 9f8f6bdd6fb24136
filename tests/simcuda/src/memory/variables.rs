//! Variables of modules: blocks that a module has from its beginning to its end.
//!
//! Upward: [`World::add_module`], [`World::variable`]; whoever ends a module frees [`World::variables_of`] it.
//! From below: blocks and the arena.

use super::{Arena, Holder};
use crate::abi::Outcome;
use crate::abi::codes::NOT_FOUND;
use crate::machine::context::Here;
use crate::machine::{Module, ModuleImage, World};
use std::sync::Arc;

impl World {
    /// Adds a module and allocates its variables.
    pub fn add_module(&mut self, here: Here, image: Arc<ModuleImage>, library: Option<u64>) -> Outcome<u64> {
        let (context, variables) = (self.root(here.context), Vec::new());
        let handle = self.modules.insert(Module { context, image: image.clone(), library, variables });
        for variable in &image.variables {
            let start = self.allocate(here, variable.bytes, Holder::Variable(handle)).inspect_err(|_| {
                let allocated = self.modules.remove(handle).map_or(Vec::new(), |module| module.variables);
                allocated.into_iter().for_each(|start| self.free_block(start, "cuModuleLoadData"));
            })?;
            let initial = &variable.initial[..variable.initial.len().min(variable.bytes as usize)];
            // It cannot fail: the range was opened a moment ago.
            let _ = Arena::get().is_some_and(|arena| arena.write(start, initial));
            self.modules.get_mut(handle).into_iter().for_each(|module| module.variables.push(start));
        }
        Ok(handle)
    }

    /// The first byte and the length of a module's variable.
    pub fn variable(&self, module: u64, name: &str) -> Outcome<(u64, u64)> {
        let module = self.modules.get(module).ok_or(NOT_FOUND)?;
        let mut all = module.image.variables.iter().zip(&module.variables);
        let (variable, start) = all.find(|(variable, _)| variable.name == name).ok_or(NOT_FOUND)?;
        Ok((*start, variable.bytes))
    }

    /// First bytes and lengths of all variables of some modules.
    pub fn variables_of(&self, mine: impl Fn(u64, &Module) -> bool) -> Vec<(u64, u64)> {
        let modules = self.modules.iter().filter(|(handle, module)| mine(*handle, module));
        let starts = modules.flat_map(|(_, module)| module.variables.iter().copied());
        starts.map(|start| (start, self.memory.blocks.get(&start).map_or(0, |block| block.bytes))).collect()
    }
}
