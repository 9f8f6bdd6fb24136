//! What a linked program weighs, and where its functions are.
//!
//! Promises upward: a file that is no such program is an `Err` with its name.
//! Asks from below: the `object` crate.

use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use std::collections::BTreeMap;
use std::path::Path;

/// A linked program.
#[derive(Debug)]
pub struct Program {
    /// Bytes of code and constants.
    pub text: u64,
    /// Bytes of the section `.terrace`: the linker script of the C example puts what the heap brings there.
    pub terrace: Option<u64>,
    /// Functions by name, without Thumb's mark in bit 0.
    functions: BTreeMap<String, u64>,
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    /// That it is not there, or not understood.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let kept = |kind| matches!(kind, SectionKind::Text | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString);
        let text = file.sections().filter(|section| kept(section.kind()) && !is_unwind(section.name()));
        let text = text.map(|section| section.size()).sum();
        let terrace = file.section_by_name(".terrace").map(|section| section.size());
        let thumb = if file.architecture() == object::Architecture::Arm { 1 } else { 0 };
        let named = |symbol: object::Symbol<'_, '_>| Some((symbol.name().ok()?.to_string(), symbol.address() & !thumb));
        Ok(Self { text, terrace, functions: file.symbols().filter_map(named).collect() })
    }

    /// Where a function starts.
    ///
    /// # Errors
    /// That there is none of this name.
    pub fn address(&self, name: &str) -> Result<u64, String> {
        self.functions.get(name).copied().ok_or_else(|| format!("the program has no function {name}"))
    }
}

/// Tables for unwinding: firmware aborts, and its linker script drops them.
fn is_unwind(section: object::Result<&str>) -> bool {
    section.is_ok_and(|name| [".eh_frame", ".eh_frame_hdr", ".ARM.exidx", ".ARM.extab"].contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_program_and_refuses_what_is_none() {
        let this = std::env::current_exe().expect("a program has a path");
        let program = Program::read(&this).expect("this program is one");
        assert!(program.text > 100_000, "{}", program.text);
        assert!(program.address("no such function").is_err());
        assert_eq!(program.terrace, None);
        assert!(Program::read(Path::new(file!())).is_err());
    }
}
