//! Machine code made by hand, as far as it is looked at: an ELF file with sections, symbols and no code.

/// Bytes of the file's header, of a section's, and of a symbol.
const HEADER: usize = 64;
const SYMBOL: usize = 24;

/// Sections: the header's names, symbols' names, symbols, then those of variables and of kernels.
const SECTIONS: [&str; 7] = ["", ".shstrtab", ".strtab", ".symtab", ".nv.global.init", ".nv.global", ".nv.constant3"];
/// Kinds of the sections, by `elf.h`: none, two of strings, symbols, two of bytes and one of zeros between them.
const KINDS: [u32; 7] = [0, 3, 3, 2, 1, 8, 1];

/// Sections of variables.
pub const INITIAL: usize = 4;
pub const ZEROS: usize = 5;
pub const CONSTANT: usize = 6;

/// A variable: its name, its section, its first byte there, and its length.
pub type Symbol<'a> = (&'a str, usize, usize, usize);

/// Bytes of each section of variables: 0, 1, 2 and so on.
const LENGTH: usize = 64;

/// A file with these kernels and variables. What lies in a section of variables counts up from 0.
pub fn cubin(kernels: &[&str], variables: &[Symbol<'_>]) -> Vec<u8> {
    let mut names: Vec<String> = SECTIONS.iter().map(|name| (*name).into()).collect();
    names.extend(kernels.iter().map(|kernel| format!(".text.{kernel}")));
    let (strings, places) = table(&names);
    let (symbol_strings, symbol_places) = table(&variables.iter().map(|(name, ..)| (*name).into()).collect::<Vec<_>>());
    let symbols = variables.iter().zip(&symbol_places).flat_map(|((_, section, at, bytes), name)| {
        let mut symbol = [0; SYMBOL];
        symbol[..4].copy_from_slice(&(*name as u32).to_ne_bytes());
        (symbol[4], symbol[6]) = (1, *section as u8);
        symbol[8..16].copy_from_slice(&(*at as u64).to_ne_bytes());
        symbol[16..].copy_from_slice(&(*bytes as u64).to_ne_bytes());
        symbol
    });
    let counted: Vec<u8> = (0..LENGTH as u8).collect();
    let empty = Vec::new();
    let contents = [empty.clone(), strings, symbol_strings, symbols.collect(), counted.clone(), empty.clone(), counted];
    let mut file = vec![0; HEADER];
    let mut headers = Vec::new();
    for (at, name) in places.iter().enumerate() {
        let bytes = contents.get(at).unwrap_or(&empty);
        let length = if at == ZEROS { LENGTH } else { bytes.len() };
        headers.push(header(*name, KINDS.get(at).copied().unwrap_or(1), file.len(), length));
        file.extend(bytes);
    }
    file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    let table = file.len() as u64;
    file[0x28..0x30].copy_from_slice(&table.to_ne_bytes());
    [HEADER as u16, places.len() as u16, 1].iter().zip([0x3a, 0x3c, 0x3e]).for_each(|(value, at)| {
        file[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    });
    file.extend(headers.concat());
    file
}

/// A section's header; sections of symbols take their names from section 2.
fn header(name: usize, kind: u32, place: usize, length: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&(name as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&kind.to_ne_bytes());
    header[0x18..0x20].copy_from_slice(&(place as u64).to_ne_bytes());
    header[0x20..0x28].copy_from_slice(&(length as u64).to_ne_bytes());
    header[0x28] = 2;
    header
}

/// Names, each with a zero at its end, and where each begins.
fn table(names: &[String]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = vec![0];
    let places = names.iter().map(|name| {
        bytes.extend(name.bytes().chain([0]));
        bytes.len() - name.len() - 1
    });
    let places = places.collect();
    (bytes, places)
}
