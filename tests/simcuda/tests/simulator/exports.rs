//! Physical memory that is shared by descriptors of files.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use crate::vmm::{PAGE, Properties, access, create, map, properties, release, reserve, unmap, unreserve};
use std::ffi::{c_int, c_ulonglong};
use std::os::fd::AsRawFd;

const DESCRIPTOR: c_int = 1;

fn sharing(handle_types: c_int) -> Done<u64> {
    let mut properties = properties(0);
    properties.handle_types = handle_types;
    make!(cuMemCreate -> u64; PAGE => usize, &properties => *const Properties, 0 => c_ulonglong)
}

fn export(handle: u64) -> Done<c_int> {
    make!(cuMemExportToShareableHandle -> c_int; handle => u64, DESCRIPTOR => c_int, 0 => c_ulonglong)
}

fn import(descriptor: c_int) -> Done<u64> {
    make!(cuMemImportFromShareableHandle -> u64; descriptor as usize => usize, DESCRIPTOR => c_int)
}

fn free_bytes() -> usize {
    info().expect("a context").0
}

#[test]
fn memory_can_be_shared_in_ways_that_there_are() {
    let _machine = Machine::discrete();
    assert_eq!(make!(cuDeviceGetAttribute -> c_int; 103 => c_int, 0 => c_int), Ok(1));
    for unsupported in [2, 4, 8, 9] {
        assert_eq!(sharing(unsupported), Err(NOT_SUPPORTED), "{unsupported}");
    }
    assert_eq!((sharing(16), sharing(-1)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    let handle = sharing(DESCRIPTOR).expect("memory");
    let mut told = properties(0);
    call!(cuMemGetAllocationPropertiesFromHandle(&mut told => *mut Properties, handle => u64)).expect("a handle");
    assert_eq!(told.handle_types, DESCRIPTOR);
    release(handle).expect("a handle");
}

#[test]
fn an_imported_handle_is_on_the_same_memory() {
    let _machine = Machine::discrete();
    let before = free_bytes();
    let handle = sharing(DESCRIPTOR).expect("memory");
    let descriptor = export(handle).expect("made to be shared");
    let imported = import(descriptor).expect("of this process");
    close(descriptor);
    let start = reserve(2 * PAGE).expect("addresses");
    map(start, PAGE, handle).and(map(start + PAGE as u64, PAGE, imported)).expect("free places");
    access(start, 2 * PAGE, 0, 3).and(upload(start, &[7; 16])).expect("mappings");
    assert_eq!(download(start + PAGE as u64, 16), Ok(vec![7; 16]));
    unmap(start, 2 * PAGE).and(unreserve(start, 2 * PAGE)).and(release(handle)).expect("all there");
    assert_eq!(free_bytes(), before - PAGE, "the imported handle holds it");
    release(imported).expect("a handle");
    assert_eq!(free_bytes(), before);
}

#[test]
fn memory_lives_while_its_descriptor_is_open() {
    let machine = Machine::discrete();
    let before = free_bytes();
    let handle = sharing(DESCRIPTOR).expect("memory");
    let (first, second) = (export(handle).expect("shared"), export(handle).expect("as often as wanted"));
    assert_ne!(first, second);
    release(handle).expect("a handle");
    assert!(machine.leaks().iter().any(|line| line.starts_with("descriptor")), "{:?}", machine.leaks());
    close(first);
    assert_eq!(free_bytes(), before - PAGE);
    let again = import(second).expect("the memory is there");
    close(second);
    release(again).expect("a handle");
    assert_eq!(free_bytes(), before);
    let handle = sharing(DESCRIPTOR).expect("memory");
    let descriptor = export(handle).expect("shared");
    release(handle).expect("a handle");
    assert_eq!(create(0, 24 << 30), Err(OUT_OF_MEMORY));
    close(descriptor);
    assert!(machine.leaks().iter().all(|line| !line.starts_with("descriptor")), "{:?}", machine.leaks());
    assert_eq!(free_bytes(), before, "the last holder is gone");
}

#[test]
fn exports_need_memory_that_was_made_for_them() {
    let machine = Machine::discrete();
    let (plain, handle) = (create(0, PAGE).expect("memory"), sharing(DESCRIPTOR).expect("memory"));
    assert_eq!(export(plain), Err(INVALID_VALUE));
    type Flags = c_ulonglong;
    let with = |kind: c_int, flags: Flags| make!(cuMemExportToShareableHandle -> c_int; handle => u64, kind => c_int, flags => Flags);
    assert_eq!([with(1, 1), with(0, 0), with(2, 0), with(3, 0)], [Err(INVALID_VALUE); 4]);
    let nowhere = call!(cuMemExportToShareableHandle(0 => usize, handle => u64, 1 => c_int, 0 => c_ulonglong));
    assert_eq!(nowhere, Err(INVALID_VALUE));
    release(plain).and(release(handle)).expect("handles");
    assert_eq!(export(handle), Err(INVALID_VALUE));
    let (start, shown) = (reserve(PAGE).expect("addresses"), sharing(DESCRIPTOR).expect("memory"));
    map(start, PAGE, shown).and(release(shown)).expect("a free place");
    assert_eq!(export(shown), Err(INVALID_VALUE), "the mapping keeps the memory, not the handle");
    unmap(start, PAGE).and(unreserve(start, PAGE)).expect("all there");
    machine.caught("bad-handle");
}

#[test]
fn imports_need_a_descriptor_of_this_process() {
    let _machine = Machine::discrete();
    let handle = sharing(DESCRIPTOR).expect("memory");
    let descriptor = export(handle).expect("shared");
    let of_kind =
        |kind: c_int| make!(cuMemImportFromShareableHandle -> u64; descriptor as usize => usize, kind => c_int);
    assert_eq!([of_kind(2), of_kind(8)], [Err(NOT_SUPPORTED); 2]);
    assert_eq!([of_kind(0), of_kind(3), of_kind(16)], [Err(INVALID_VALUE); 3]);
    let nowhere = call!(cuMemImportFromShareableHandle(0 => usize, descriptor as usize => usize, 1 => c_int));
    assert_eq!(nowhere, Err(INVALID_VALUE));
    let (ours, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    assert_eq!(import(ours.as_raw_fd()), Err(NOT_SUPPORTED), "what another process's driver gives looks so");
    let file = std::fs::File::open("/dev/null").expect("a file");
    assert_eq!(import(file.as_raw_fd()), Err(INVALID_VALUE));
    close(descriptor);
    assert_eq!((import(descriptor), import(-1)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    release(handle).expect("a handle");
}
