//! Variables of modules.

use super::library::library_module;
use super::{launch, valid};
use crate::abi::codes::INVALID_VALUE;
use crate::abi::{Out, Outcome, Text};
use crate::gate::exports;
use crate::machine::World;

exports! {
    /// Place and length of a module's variable; one of the two may be unwanted.
    Context fn cuModuleGetGlobal_v2(world, here, pointer: Out<u64>, bytes: Out<usize>, module: u64, name: Text) {
        valid(!pointer.is_null() || !bytes.is_null())?;
        launch::find(world, module, "cuModuleGetGlobal")?;
        put(world, pointer, bytes, module, name)
    }

    /// As above, of the module that the thread's context has of a library.
    Context fn cuLibraryGetGlobal(world, here, pointer: Out<u64>, bytes: Out<usize>, library: u64, name: Text) {
        valid(!pointer.is_null() || !bytes.is_null())?;
        let module = library_module(world, here, library, "cuLibraryGetGlobal")?;
        put(world, pointer, bytes, module, name)
    }
}

fn put(world: &World, pointer: Out<u64>, bytes: Out<usize>, module: u64, name: Text) -> Outcome {
    let (start, length) = world.variable(module, &name.get().ok_or(INVALID_VALUE)?)?;
    pointer.put_if_wanted(start);
    bytes.put_if_wanted(length as usize);
    Ok(())
}
