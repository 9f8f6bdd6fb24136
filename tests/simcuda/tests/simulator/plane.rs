//! Memory in rows, and copies of rectangles.

use crate::driver::{call, *};
use crate::machine::Machine;
use std::ffi::{c_int, c_uint};

/// `CUDA_MEMCPY2D`, its words in order: bytes and rows before, kind, host, device, array, pitch, of either end; width
/// and height.
type Words = [usize; 16];

const HOST: usize = 1;
const DEVICE: usize = 2;

fn end(kind: usize, address: usize, x: usize, y: usize, pitch: usize) -> [usize; 7] {
    let (host, device) = if kind == HOST { (address, 0) } else { (0, address) };
    [x, y, kind, host, device, 0, pitch]
}

fn words(from: [usize; 7], to: [usize; 7], width: usize, height: usize) -> Words {
    let mut words = [0; 16];
    words[..7].copy_from_slice(&from);
    words[7..14].copy_from_slice(&to);
    words[14..].copy_from_slice(&[width, height]);
    words
}

fn copy_now(words: &Words) -> Done {
    call!(cuMemcpy2D_v2(words => *const Words))
}

fn copy_on(words: &Words, stream: u64) -> Done {
    call!(cuMemcpy2DAsync_v2(words => *const Words, stream => u64))
}

/// A block in rows, and its pitch.
fn pitched(width: usize, height: usize, element: c_uint) -> Done<(u64, usize)> {
    let (mut pointer, mut pitch) = (0_u64, 0_usize);
    call!(cuMemAllocPitch_v2(
        &mut pointer => *mut u64, &mut pitch => *mut usize, width => usize, height => usize, element => c_uint,
    ))
    .map(|()| (pointer, pitch))
}

#[test]
fn rows_begin_at_multiples_of_the_pitch() {
    let _machine = Machine::discrete();
    let (block, pitch) = pitched(100, 3, 4).expect("memory");
    assert_eq!((pitch, block % 512), (512, 0));
    set(block, 1, 3 * pitch, 0).and(sync()).and(free(block)).expect("a block of three rows");
    let (block, pitch) = pitched(512, 1, 16).expect("memory");
    assert_eq!((pitch, free(block)), (512, Ok(())));
    let refused =
        [pitched(0, 1, 4), pitched(1, 0, 4), pitched(1, 1, 5), pitched(usize::MAX, 1, 4), pitched(1 << 31, 1, 4)];
    assert_eq!(refused, [Err(INVALID_VALUE); 5]);
    assert_eq!(pitched(1 << 20, 1 << 20, 8), Err(OUT_OF_MEMORY));
}

#[test]
fn a_rectangle_goes_to_the_device_and_back() {
    let _machine = Machine::discrete();
    let (block, pitch) = pitched(8, 4, 4).expect("memory");
    set(block, 0, 4 * pitch, 0).expect("a block");
    // Rows of 6 bytes; of two rows the bytes 1 to 3 go to row 1 of the block, from byte 5 on.
    let from: Vec<u8> = (0..18).collect();
    let from_host = end(HOST, from.as_ptr() as usize, 1, 1, 6);
    copy_now(&words(from_host, end(DEVICE, block as usize, 5, 1, pitch), 3, 2)).expect("a rectangle");
    let rows = download(block, 4 * pitch).expect("a block");
    let row = |at: usize| rows[at * pitch..at * pitch + 10].to_vec();
    let nothing = vec![0; 10];
    assert_eq!((row(0), row(3)), (nothing.clone(), nothing));
    assert_eq!((row(1), row(2)), (vec![0, 0, 0, 0, 0, 7, 8, 9, 0, 0], vec![0, 0, 0, 0, 0, 13, 14, 15, 0, 0]));
    // Any kind of address will do where the kind is 4.
    let (mut back, unified) = (vec![9_u8; 8], end(4, block as usize, 5, 1, pitch));
    let target = back.as_mut_ptr() as usize;
    call!(cuMemcpy2DUnaligned_v2(&words(unified, end(HOST, target, 0, 0, 4), 3, 2) => *const Words)).expect("back");
    assert_eq!(back, [7, 8, 9, 9, 13, 14, 15, 9]);
    free(block).expect("a block");
}

#[test]
fn rectangles_of_a_device_are_copied_on_a_stream() {
    let machine = Machine::discrete();
    let (a, b, stream) = (alloc(64).expect("memory"), alloc(64).expect("memory"), stream(1).expect("a stream"));
    set(a, 5, 64, stream).and(set(b, 0, 64, stream)).expect("blocks");
    machine.hold();
    // The copy reads what the stream writes before it.
    let rows = words(end(DEVICE, a as usize, 0, 0, 16), end(DEVICE, b as usize, 4, 0, 16), 8, 4);
    copy_on(&rows, stream).expect("a rectangle");
    assert_eq!(stream_query(stream), Err(NOT_READY));
    machine.release();
    stream_sync(stream).expect("a stream");
    let row = [vec![0; 4], vec![5; 8], vec![0; 4]].concat();
    assert_eq!(download(b, 64), Ok(row.repeat(4)));
    // The bytes between the rows are not touched: another stream may write them meanwhile.
    let other = crate::driver::stream(1).expect("a stream");
    copy_on(&rows, stream).and(set(b, 1, 4, other)).and(sync()).expect("apart");
    copy_on(&rows, stream).and(set(b + 4, 1, 1, other)).and(sync()).expect("and not");
    machine.caught("race");
    free(a).and(free(b)).and(stream_destroy(stream)).and(stream_destroy(other)).expect("all live");
}

#[test]
fn host_memory_is_taken_before_the_call_returns_and_written_before_it_does() {
    let _machine = Machine::discrete();
    let (block, stream) = (alloc(8).expect("memory"), stream(1).expect("a stream"));
    let mut host = [1_u8, 2, 3, 4, 5, 6, 7, 8];
    run("spin", stream, &[20_000_000]).expect("a stream");
    copy_on(&words(end(HOST, host.as_ptr() as usize, 0, 0, 4), end(DEVICE, block as usize, 0, 0, 4), 2, 2), stream)
        .expect("a rectangle");
    host.fill(0);
    let to_host = end(HOST, host.as_mut_ptr() as usize, 0, 0, 4);
    copy_on(&words(end(DEVICE, block as usize, 0, 0, 4), to_host, 2, 2), stream).expect("a rectangle");
    assert_eq!(host, [1, 2, 0, 0, 5, 6, 0, 0]);
    free(block).and(stream_destroy(stream)).expect("all live");
}

#[test]
fn rectangles_that_are_none_are_refused() {
    let machine = Machine::discrete();
    let block = alloc(64).expect("memory");
    let at = |kind: usize, x: usize, y: usize, pitch: usize| end(kind, block as usize, x, y, pitch);
    let (good, beside) = (at(DEVICE, 0, 0, 8), at(DEVICE, 4, 0, 8));
    let refused = |from: [usize; 7], code: i32| {
        assert_eq!(copy_now(&words(from, good, 4, 2)), Err(code), "{from:?}");
        assert_eq!(copy_on(&words(from, good, 4, 2), 0), Err(code), "{from:?}");
    };
    refused(at(3, 0, 0, 8), NOT_SUPPORTED);
    refused(at(0, 0, 0, 8), INVALID_VALUE);
    refused(at(DEVICE, 5, 0, 8), INVALID_VALUE);
    refused(at(DEVICE, 4, 0, 0), INVALID_VALUE);
    refused(at(DEVICE, 0, 0, 1 << 31), INVALID_VALUE);
    refused(at(DEVICE, 0, usize::MAX, 8), INVALID_VALUE);
    copy_now(&words(good, beside, 4, 8)).expect("to the last byte");
    copy_now(&words(good, beside, 4, 0)).and(copy_now(&words(good, beside, 0, 8))).expect("nothing");
    let one_row = words(at(DEVICE, 0, 0, 0), at(DEVICE, 8, 0, 0), 8, 1);
    copy_now(&one_row).and(copy_on(&one_row, 0)).expect("one row needs no pitch");
    assert_eq!(copy_now(&words(good, beside, 4, 9)), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    assert_eq!(call!(cuMemcpy2D_v2(0 => usize)), Err(INVALID_VALUE));
    let attribute = |number: c_int| crate::driver::make!(cuDeviceGetAttribute -> c_int; number => c_int, 0 => c_int);
    assert_eq!((attribute(11), attribute(51)), (Ok(c_int::MAX), Ok(32)));
    free(block).expect("a block");
}
