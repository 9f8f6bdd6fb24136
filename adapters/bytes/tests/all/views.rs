//! Bytes as elements.

use terrace_bytes::{ViewError, bytes_of, bytes_of_mut, copy, read_at, view, view_at, view_at_mut, view_mut, write_at};

/// Bytes whose first is aligned to 8.
fn aligned() -> [u64; 4] {
    [0x0706_0504_0302_0100_u64.to_le(), 0x0f0e_0d0c_0b0a_0908_u64.to_le(), 2, 3]
}

#[test]
fn a_view_is_the_same_memory() {
    let mut words = aligned();
    let bytes = bytes_of_mut(&mut words);
    let numbers = view::<u16>(bytes).unwrap();
    assert_eq!((numbers.len(), numbers[0].to_le(), numbers.as_ptr().addr()), (16, 0x0100, bytes.as_ptr().addr()));
    view_mut::<u32>(bytes).unwrap()[7] = u32::MAX;
    assert_eq!(words[3] >> 32, u64::from(u32::MAX));
    assert_eq!(bytes_of(&words).len(), 32);
}

#[test]
fn a_part_is_viewed_from_its_offset() {
    let mut words = aligned();
    assert_eq!(view_at::<u32>(bytes_of(&words), 8, 2).unwrap()[0].to_le(), 0x0b0a_0908);
    assert!(view_at::<u32>(bytes_of(&words), 32, 0).unwrap().is_empty());
    view_at_mut::<u64>(bytes_of_mut(&mut words), 16, 1).unwrap()[0] = 9;
    assert_eq!(words[2], 9);
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    let mut words = aligned();
    let bytes = bytes_of_mut(&mut words);
    let misaligned = |offset, past| Err(ViewError::Misaligned { offset, align: 4, past });
    assert_eq!(view_at::<u32>(bytes, 6, 1), misaligned(6, 2));
    assert_eq!(view::<u32>(&bytes[3..7]).unwrap_err(), ViewError::Misaligned { offset: 0, align: 4, past: 3 });
    assert_eq!(view::<u32>(&bytes[..7]), Err(ViewError::Remainder { len: 7, size: 4 }));
    assert_eq!(view_mut::<u32>(&mut bytes[..7]).unwrap_err(), ViewError::Remainder { len: 7, size: 4 });
    // So many elements of 4 bytes are 0 bytes where a product wraps.
    let wrapping = usize::MAX / 4 + 1;
    for (offset, count) in [
        (0, wrapping),
        (8, wrapping + 1),
        (0, 9),
        (29, 1),
        (32, 1),
        (33, 0),
        (usize::MAX, 1),
        (8, usize::MAX),
        (usize::MAX, usize::MAX),
    ] {
        let refused = ViewError::OutOfBounds { offset, count, size: 4, len: 32 };
        assert_eq!(view_at::<u32>(bytes, offset, count), Err(refused));
        assert_eq!(view_at_mut::<u32>(bytes, offset, count).unwrap_err(), refused);
    }
    assert_eq!(view::<()>(bytes), Err(ViewError::ZeroSized));
    assert_eq!(view_at::<()>(bytes, 0, 1), Err(ViewError::ZeroSized));
    let told = view_at::<u32>(bytes, 30, 1).unwrap_err().to_string();
    assert_eq!(told, "1 elements of 4 bytes from byte 30 on end beyond the 32 bytes that there are");
}

#[test]
fn elements_at_odd_addresses_are_copied() {
    let mut words = aligned();
    let bytes = bytes_of_mut(&mut words);
    let mut numbers = [0_u32; 2];
    read_at(bytes, 1, &mut numbers).unwrap();
    assert_eq!(numbers.map(u32::to_le), [0x0403_0201, 0x0807_0605]);
    write_at(bytes, 3, &[0xffff_u16]).unwrap();
    assert_eq!(bytes[2..6], [2, 0xff, 0xff, 5]);
    assert!(matches!(read_at(bytes, 25, &mut numbers), Err(ViewError::OutOfBounds { offset: 25, .. })));
    assert!(matches!(write_at(bytes, 31, &[1_u16]), Err(ViewError::OutOfBounds { .. })));
    assert_eq!(bytes[31], 0, "a refused write changes nothing");
}

#[test]
fn copies_of_different_lengths_are_refused() {
    let mut to = [0; 3];
    copy(&[1, 2, 3], &mut to).unwrap();
    let error = copy(&[7; 4], &mut to).unwrap_err();
    assert_eq!((error.from, error.to, to), (4, 3, [1, 2, 3]));
}
