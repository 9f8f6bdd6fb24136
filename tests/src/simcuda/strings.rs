//! Names in an ELF file's table of dynamic symbols.
//!
//! Upward: [`of_dynamic_symbols`].
//! From below: the layout of 64-bit little-endian ELF files (System V ABI).

/// Offsets in the file header: where the section headers are, how long one is, how many there are.
const SECTIONS: usize = 0x28;
const SECTION_SIZE: usize = 0x3A;
const SECTION_COUNT: usize = 0x3C;

/// Offsets in a section header: type, place, length, the other section it belongs to.
const TYPE: usize = 0x04;
const PLACE: usize = 0x18;
const LENGTH: usize = 0x20;
const LINK: usize = 0x28;

/// `SHT_DYNSYM`.
const DYNAMIC_SYMBOLS: u64 = 11;
/// Bytes of a symbol; its name's place in the table of strings are the first four.
const SYMBOL: usize = 24;

/// Each name, with its place in the file; `None` where the file is something else.
pub fn of_dynamic_symbols(file: &[u8]) -> Option<Vec<(usize, String)>> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let number = |at: usize, bytes: usize| {
        let bytes = file.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let long = |at: usize| Some(number(at, 8)? as usize);
    let (first, size, count) = (long(SECTIONS)?, number(SECTION_SIZE, 2)? as usize, number(SECTION_COUNT, 2)? as usize);
    // A whole header lies in the file, so that offsets in it cannot overflow.
    let header = |at: usize| Some(first.checked_add(at * size)?).filter(|header| number(*header, size).is_some());
    let symbols = (0..count).filter_map(header).find(|at| number(at + TYPE, 4) == Some(DYNAMIC_SYMBOLS))?;
    let strings = long(header(number(symbols + LINK, 4)? as usize)? + PLACE)?;
    let (start, length) = (long(symbols + PLACE)?, long(symbols + LENGTH)?);
    let names = (start..start.checked_add(length)?).step_by(SYMBOL).filter_map(|at| {
        let place = strings.checked_add(number(at, 4)? as usize)?;
        let end = place + file.get(place..)?.iter().position(|byte| *byte == 0)?;
        Some((place, String::from_utf8(file.get(place..end)?.to_vec()).ok()?))
    });
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::of_dynamic_symbols;

    #[test]
    fn other_files_are_refused_and_never_read_past_their_end() {
        assert_eq!(of_dynamic_symbols(b""), None);
        assert_eq!(of_dynamic_symbols(b"\x7fELF\x01\x01"), None);
        let mut broken = vec![0xFF_u8; 64];
        broken[..6].copy_from_slice(b"\x7fELF\x02\x01");
        // Section headers past the end of everything.
        broken[0x28..0x30].fill(0x11);
        broken[0x3C] = 1;
        broken[0x3D] = 0;
        assert_eq!(of_dynamic_symbols(&broken), None);
    }
}
