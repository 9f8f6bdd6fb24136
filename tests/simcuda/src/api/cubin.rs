//! Names of kernels, and variables, in machine code: a cubin is an ELF file of NVIDIA's machine.
//!
//! Upward: [`read`] an image that begins as an ELF file does. Code is not looked at: kernels that are not known do
//! nothing.
//! From below: the headers of sections; the code of a kernel lies in `.text.NAME`, and each symbol of an object in a
//! section of global or constant memory is a variable.

use crate::abi::codes::INVALID_IMAGE;
use crate::abi::{In, Outcome};
use crate::machine::{ModuleImage, ModuleVariable};

/// How such a file begins: 64 bits, little endian.
const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];

/// Bytes of a section's header, and the most sections that are read.
const HEADER: usize = 64;
const MOST: usize = 1 << 16;

/// Offsets in a section's header: its kind, its place in the file, its length, the section it refers to.
const KIND: usize = 0x04;
const PLACE: usize = 0x18;
const LENGTH: usize = 0x20;
const LINK: usize = 0x28;

/// `SHT_SYMTAB`, and `SHT_NOBITS`: all zeros, and not in the file.
const SYMBOLS: u32 = 2;
const NO_BITS: u32 = 8;

/// Bytes of a symbol; offsets of its kind, section, value and length.
const SYMBOL: usize = 24;
const INFO: usize = 4;
const SECTION: usize = 6;
const VALUE: usize = 8;
const SIZE: usize = 16;

/// `STT_OBJECT`, in the lower half of a symbol's kind.
const OBJECT: u8 = 1;

/// How names of sections begin that hold variables.
const VARIABLES: [&str; 2] = [".nv.global", ".nv.constant"];

/// The kernels and variables of a cubin; `None` where the image is none.
pub fn read(image: In<u8>) -> Outcome<Option<ModuleImage>> {
    for (at, byte) in MAGIC.iter().enumerate() {
        if image.at(at)? != *byte {
            return Ok(None);
        }
    }
    let cubin = Cubin::new(image)?;
    let names = (0..cubin.count).map(|section| cubin.name(section)).collect::<Outcome<Vec<String>>>()?;
    let kernels = names.iter().filter_map(|name| name.strip_prefix(".text.")).map(String::from).collect();
    Ok(Some(ModuleImage::new(kernels, cubin.variables(&names)?)))
}

/// A file, and where its headers and their names are.
struct Cubin {
    image: In<u8>,
    table: usize,
    count: usize,
    names: usize,
}

impl Cubin {
    fn new(image: In<u8>) -> Outcome<Cubin> {
        let field = |at: usize| image.after(at);
        let table = field(0x28).of::<u64>().get()? as usize;
        let [size, count, strings] = [0x3a, 0x3c, 0x3e].map(|at| field(at).of::<u16>().get().map(usize::from));
        let (size, count, strings) = (size?, count?, strings?);
        if size != HEADER || strings >= count || count > MOST {
            return Err(INVALID_IMAGE);
        }
        let names = field(table + strings * HEADER + PLACE).of::<u64>().get()? as usize;
        Ok(Cubin { image, table, count, names })
    }

    fn header(&self, section: usize) -> In<u8> {
        self.image.after(self.table + section * HEADER)
    }

    /// A number of 8 bytes in a section's header.
    fn long(&self, section: usize, at: usize) -> Outcome<usize> {
        Ok(self.header(section).after(at).of::<u64>().get()? as usize)
    }

    /// A number of 4 bytes in a section's header.
    fn word(&self, section: usize, at: usize) -> Outcome<u32> {
        self.header(section).after(at).of::<u32>().get()
    }

    fn name(&self, section: usize) -> Outcome<String> {
        self.image.after(self.names + self.word(section, 0)? as usize).text().ok_or(INVALID_IMAGE)
    }

    /// All variables; `names` are those of the sections.
    fn variables(&self, names: &[String]) -> Outcome<Vec<ModuleVariable>> {
        let mut found = Vec::new();
        for table in 0..self.count {
            if self.word(table, KIND)? != SYMBOLS {
                continue;
            }
            let strings = self.word(table, LINK)? as usize;
            if strings >= self.count {
                return Err(INVALID_IMAGE);
            }
            let strings = self.image.after(self.long(strings, PLACE)?);
            let symbols = self.image.after(self.long(table, PLACE)?);
            for at in (0..self.long(table, LENGTH)? / SYMBOL).map(|at| at * SYMBOL) {
                found.extend(self.variable(symbols.after(at), strings, names)?);
            }
        }
        Ok(found)
    }

    /// The variable of a symbol, where it is of one.
    fn variable(&self, symbol: In<u8>, strings: In<u8>, names: &[String]) -> Outcome<Option<ModuleVariable>> {
        let section = usize::from(symbol.after(SECTION).of::<u16>().get()?);
        let holds = |name: &String| VARIABLES.iter().any(|begins| name.starts_with(begins));
        let bytes = symbol.after(SIZE).of::<u64>().get()?;
        if symbol.at(INFO)? & 0xF != OBJECT || !names.get(section).is_some_and(holds) || bytes == 0 {
            return Ok(None);
        }
        let at = symbol.after(VALUE).of::<u64>().get()?;
        if at.checked_add(bytes).is_none_or(|end| end > self.long(section, LENGTH).unwrap_or(0) as u64) {
            return Err(INVALID_IMAGE);
        }
        let place = self.image.after(self.long(section, PLACE)? + at as usize);
        let initial = if self.word(section, KIND)? == NO_BITS { Vec::new() } else { place.stage(bytes as usize) };
        let name = strings.after(symbol.of::<u32>().get()? as usize).text().ok_or(INVALID_IMAGE)?;
        Ok(Some(ModuleVariable { name, bytes, initial }))
    }
}
