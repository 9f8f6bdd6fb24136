//! Kernels that launches know, by name.
//!
//! Upward: [`KERNELS`]; each reads its arguments, 8 bytes each but for words, and says what it touches and does. The code
//! of a module is not run: a kernel does what it does here, whatever stands in its body. What its head says is checked
//! (`api::ptx`).
//! From below: [`Work`].

use super::{Node, Work};
use crate::abi::codes::ILLEGAL_ADDRESS;
use crate::abi::{In, Outcome};
use crate::memory::check::Hand;
use crate::order::Touch;
use std::time::Duration;

/// A launch's arguments: an array of pointers to them.
#[derive(Clone, Copy)]
pub struct Arguments(pub In<In<u8>>);

impl Arguments {
    /// A pointer or a count.
    fn long(self, at: usize) -> Outcome<u64> {
        self.0.at(at)?.of::<u64>().get()
    }

    fn word(self, at: usize) -> Outcome<u32> {
        self.0.at(at)?.of::<u32>().get()
    }
}

/// Reads the arguments of a launch.
pub type Kernel = fn(&'static str, Arguments) -> Outcome<Node>;

/// All kernels: name, bytes of each parameter, what it does.
pub const KERNELS: [(&str, &[u64], Kernel); 7] = [
    ("fill_u32", &[8, 4, 8], fill),
    ("add_f32", &[8, 8, 8, 8], add),
    ("axpy_f32", &[8, 8, 4, 4], axpy),
    ("copy_u8", &[8, 8, 8], copy),
    ("sum_u32", &[8, 8, 8], sum),
    ("spin", &[8], spin),
    ("fault", &[], fault),
];

fn node(name: &'static str, touches: Vec<Touch>, work: Work) -> Outcome<Node> {
    Ok(Node { is_kernel: true, ..Node::new(name, Hand::Device, touches, work) })
}

/// `fill_u32(ptr, u32 value, count)`.
fn fill(name: &'static str, arguments: Arguments) -> Outcome<Node> {
    let (to, value, count) = (arguments.long(0)?, arguments.word(1)?, arguments.long(2)?);
    node(name, vec![Touch::write(to, words(count))], Work::FillWords { to, value, count })
}

/// `add_f32(a, b, out, count)`.
fn add(name: &'static str, arguments: Arguments) -> Outcome<Node> {
    let (a, b, out, count) = (arguments.long(0)?, arguments.long(1)?, arguments.long(2)?, arguments.long(3)?);
    let bytes = words(count);
    let touches = vec![Touch::read(a, bytes), Touch::read(b, bytes), Touch::write(out, bytes)];
    node(name, touches, Work::Add { a, b, out, count })
}

/// `axpy_f32(y, x, f32 a, u32 count)`: adds `a` times `x` to `y`.
fn axpy(name: &'static str, arguments: Arguments) -> Outcome<Node> {
    let (y, x, count) = (arguments.long(0)?, arguments.long(1)?, u64::from(arguments.word(3)?));
    let (a, bytes) = (f32::from_bits(arguments.word(2)?), words(count));
    let touches = vec![Touch::read(x, bytes), Touch::read(y, bytes), Touch::write(y, bytes)];
    node(name, touches, Work::Axpy { y, x, a, count })
}

/// `copy_u8(dst, src, count)`.
fn copy(name: &'static str, arguments: Arguments) -> Outcome<Node> {
    let (to, from, bytes) = (arguments.long(0)?, arguments.long(1)?, arguments.long(2)?);
    node(name, vec![Touch::read(from, bytes), Touch::write(to, bytes)], Work::Copy { to, from, bytes })
}

/// `sum_u32(src, u32 *out, count)`.
fn sum(name: &'static str, arguments: Arguments) -> Outcome<Node> {
    let (from, out, count) = (arguments.long(0)?, arguments.long(1)?, arguments.long(2)?);
    node(name, vec![Touch::read(from, words(count)), Touch::write(out, 4)], Work::Sum { from, out, count })
}

/// `spin(nanoseconds)`.
fn spin(name: &'static str, arguments: Arguments) -> Outcome<Node> {
    node(name, Vec::new(), Work::Spin(Duration::from_nanos(arguments.long(0)?)))
}

/// `fault()`: touches memory that nobody has.
fn fault(name: &'static str, _: Arguments) -> Outcome<Node> {
    node(name, Vec::new(), Work::Fault(ILLEGAL_ADDRESS))
}

/// A kernel that is not known here: it touches nothing and does nothing.
pub fn foreign() -> Outcome<Node> {
    node("a kernel of other code", Vec::new(), Work::Spin(Duration::ZERO))
}

/// Bytes of so many words.
fn words(count: u64) -> u64 {
    count.saturating_mul(4)
}
