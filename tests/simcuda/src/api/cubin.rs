//! The names of kernels in machine code: a cubin is an ELF file of NVIDIA's machine.
//!
//! Upward: [`kernels`] of an image that begins as an ELF file does. Code is not looked at: such kernels do nothing.
//! From below: the headers of sections; the code of a kernel lies in `.text.NAME`.

use crate::abi::codes::INVALID_IMAGE;
use crate::abi::{In, Outcome};

/// How such a file begins: 64 bits, little endian.
const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];

/// Bytes of a section's header, and the most sections that are read.
const HEADER: usize = 64;
const MOST: usize = 1 << 16;

/// Names of all kernels of a cubin; `None` where the image is none.
pub fn kernels(image: In<u8>) -> Outcome<Option<Vec<String>>> {
    for (at, byte) in MAGIC.iter().enumerate() {
        if image.at(at)? != *byte {
            return Ok(None);
        }
    }
    let field = |at: usize| image.after(at);
    let table = field(0x28).of::<u64>().get()? as usize;
    let [size, count, strings] = [0x3a, 0x3c, 0x3e].map(|at| field(at).of::<u16>().get().map(usize::from));
    let (size, count, strings) = (size?, count?, strings?);
    if size != HEADER || strings >= count || count > MOST {
        return Err(INVALID_IMAGE);
    }
    let header = |section: usize| field(table + section * HEADER);
    let names = header(strings).after(0x18).of::<u64>().get()? as usize;
    let name = |section: usize| {
        let at = header(section).of::<u32>().get()? as usize;
        field(names + at).text().ok_or(INVALID_IMAGE)
    };
    let all = (0..count).map(name).collect::<Outcome<Vec<String>>>()?;
    Ok(Some(all.iter().filter_map(|name| name.strip_prefix(".text.")).map(String::from).collect()))
}
