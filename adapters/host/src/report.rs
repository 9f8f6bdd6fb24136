//! Lines on standard error, written without an allocation, and the end of a process whose memory is corrupt.

use crate::os;
use core::fmt::{self, Write};

/// A line; what does not fit is left out.
struct Line {
    bytes: [u8; 320],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte stays for the end of the line.
        let room = self.bytes.len() - 1 - self.used;
        let count = text.len().min(room);
        self.bytes[self.used..self.used + count].copy_from_slice(&text.as_bytes()[..count]);
        self.used += count;
        Ok(())
    }
}

/// Prints `terrace: ...` on standard error, in one piece.
pub fn line(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 320], used: 0 };
    // Writing to a line never fails.
    let _ = write!(line, "terrace: {text}");
    line.bytes[line.used] = b'\n';
    os::write_stderr(&line.bytes[..=line.used]);
}

/// Prints what is broken and aborts the process: going on would corrupt what is still whole.
#[cold]
pub fn fatal(what: &str, address: usize) -> ! {
    line(format_args!("{what} (address {address:#x}); the process ends here"));
    os::abort()
}
