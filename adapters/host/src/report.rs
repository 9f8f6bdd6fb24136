//! Lines on standard error, written without an allocation; and the end of a process whose memory is corrupt.

use crate::os;
use core::fmt::{self, Write};

/// A line of at most 320 bytes; text that does not fit is dropped.
struct Line {
    bytes: [u8; 320],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Reserves one byte for the newline.
        let room = self.bytes.len() - 1 - self.used;
        let count = text.len().min(room);
        self.bytes[self.used..self.used + count].copy_from_slice(&text.as_bytes()[..count]);
        self.used += count;
        Ok(())
    }
}

/// Prints `terrace: ` and the text on standard error, in one write.
pub fn line(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 320], used: 0 };
    // Writing to a line never fails.
    let _ = write!(line, "terrace: {text}");
    line.bytes[line.used] = b'\n';
    os::write_stderr(&line.bytes[..=line.used]);
}

/// Prints `what` and the address, and aborts: continuing would corrupt memory that is still sound.
#[cold]
pub fn fatal(what: &str, address: usize) -> ! {
    line(format_args!("{what} (address {address:#x}); the process ends here"));
    os::abort()
}
