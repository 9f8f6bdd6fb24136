//! Linking: several PTX texts make one image. Other kinds of input are not linked here.
//!
//! The image is text too, whatever a real linker makes: it has all kernels of its inputs, and belongs to the link.

use super::{ptx, valid};
use crate::abi::codes::{INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, NOT_SUPPORTED};
use crate::abi::{In, Out, Outcome, Text, c_int, c_uint};
use crate::gate::exports;
use crate::machine::{Fault, PendingLink, World};

/// `CU_JIT_INPUT_PTX`, and the last kind there is.
const PTX: c_int = 1;
const LAST_INPUT: c_int = 5;

exports! {
    /// Makes a link without inputs. Options are ignored.
    Context fn cuLinkCreate_v2(world, here, count: c_uint, options: In<u8>, values: In<u8>, link: Out<u64>) {
        link.check()?;
        let context = world.root(here.context);
        link.put(world.links.insert(PendingLink { context, inputs: Vec::new(), image: None }))
    }

    /// One more text, which `cuModuleLoadData` would take and which names no kernel of an earlier one.
    Driver fn cuLinkAddData_v2(
        world, here, link: u64, kind: c_int, data: In<u8>, bytes: usize, name: Text, count: c_uint, options: In<u8>,
        values: In<u8>,
    ) {
        let found = find(world, link, "cuLinkAddData")?;
        valid((0..=LAST_INPUT).contains(&kind) && !data.is_null() && bytes > 0 && found.image.is_none())?;
        if kind != PTX {
            return Err(NOT_SUPPORTED);
        }
        let text = String::from_utf8(data.stage(bytes)).map_err(|_| INVALID_PTX)?;
        let text = text.split('\0').next().unwrap_or_default().to_string();
        let kernels = ptx::names(&text)?;
        let twice = |name: &String| found.inputs.iter().any(|(_, names)| names.contains(name));
        if kernels.iter().any(twice) {
            return Err(INVALID_IMAGE);
        }
        found.inputs.push((text, kernels));
        Ok(())
    }

    /// The image of all inputs, good until the link is destroyed; its length without the zero at its end.
    Driver fn cuLinkComplete(world, here, link: u64, image: Out<u64>, bytes: Out<usize>) {
        image.check()?;
        let found = find(world, link, "cuLinkComplete")?;
        valid(!found.inputs.is_empty())?;
        let texts = found.inputs.iter().map(|(text, _)| text.as_str());
        let made = found.image.get_or_insert_with(|| texts.chain(["\0"]).collect::<Vec<_>>().join("\n"));
        bytes.put_if_wanted(made.len() - 1);
        image.put(made.as_ptr() as u64)
    }

    /// Ends a link and its image; modules that were loaded from it stay.
    Driver fn cuLinkDestroy(world, here, link: u64) {
        find(world, link, "cuLinkDestroy")?;
        world.links.remove(link);
        Ok(())
    }
}

fn find<'a>(world: &'a mut World, link: u64, call: &str) -> Outcome<&'a mut PendingLink> {
    if world.links.get(link).is_none() {
        let text = format!("{call} of {}", world.links.fate(link));
        world.report.add(Fault::BadHandle, text);
    }
    world.links.get_mut(link).ok_or(INVALID_HANDLE)
}
