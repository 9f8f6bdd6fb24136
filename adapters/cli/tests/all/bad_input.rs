//! Invalid traces: one error with file and line, exit code 2, and no output.

use crate::common;

use common::{HEADER, Sandbox, gzip, stderr, zstd};

/// Replays an invalid trace. The error must name the file with `place` and contain `what`.
fn refused(bytes: impl AsRef<[u8]>, place: &str, what: &str) {
    let here = Sandbox::new();
    here.file("bad.csv", bytes);
    // The valid trace before the invalid one must not be reported either.
    here.file("good.csv", format!("{HEADER}0,a,0,4096,64,0,x\n"));
    let output = here.run(&["replay", "good.csv", "bad.csv", "--json", "out.json", "--picture", "out.png"]);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with(&format!("terrace: bad.csv{place}: ")), "{error}");
    assert!(error.contains(what), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty());
    assert_eq!(here.names(), ["bad.csv", "good.csv"]);
}

/// Replays an invalid CSV of a header and these lines.
fn refused_lines(lines: &str, place: &str, what: &str) {
    refused(format!("{HEADER}{lines}"), place, what);
}

#[test]
fn malformed_lines() {
    refused_lines("0,a,0,8,8,0\n", ":2", "6 columns instead of 7");
    refused_lines("0,a,0,8,8,0,x\n0,a,1,8,8,0,x,y\n", ":3", "8 columns instead of 7");
    refused_lines("\n", ":2", "1 columns instead of 7");
    refused_lines("0,x,0,8,8,0,t\n", ":2", "operation `x` is unknown; write a, r or f");
    refused_lines("zero,a,0,8,8,0,t\n", ":2", "`zero` in column t is not a whole number");
    refused_lines("0,a,-1,8,8,0,t\n", ":2", "`-1` in column id");
    refused_lines("0,a,0,+8,8,0,t\n", ":2", "`+8` in column size");
    refused_lines("0,a,0,08,8,0,t\n", ":2", "`08` in column size");
    refused_lines("0,a,0,,8,0,t\n", ":2", "`` in column size");
    refused_lines("0,a,0,8,8,4294967296,t\n", ":2", "`4294967296` in column stream");
    refused_lines("0,a,0,8,8,0,t\n0,f,0,8,,0,\n", ":3", "a free has `8` in column size; leave it empty");
    refused_lines("0,a,0,8,8,0,t\n0,f,0,,8,0,\n", ":3", "a free has `8` in column align");
}

#[test]
fn ids_that_make_no_sense() {
    refused_lines("0,a,0,8,8,0,t\n0,f,1,,,0,\n", ":3", "unknown id 1");
    refused_lines("0,a,0,8,8,0,t\n0,r,7,9,8,0,\n", ":3", "unknown id 7");
    refused_lines("0,a,0,8,8,0,t\n0,f,0,,,0,\n0,f,0,,,0,\n", ":4", "double free: block 0 was freed before");
    refused_lines("0,a,0,8,8,0,t\n0,f,0,,,0,\n0,r,0,9,8,0,\n", ":4", "block 0 was freed before this");
    refused_lines("0,a,1,8,8,0,t\n", ":2", "allocation id 1 is out of sequence, the next is 0");
    refused_lines("0,a,0,8,8,0,t\n0,a,0,8,8,0,t\n", ":3", "allocation id 0 is out of sequence, the next is 1");
}

#[test]
fn absurd_numbers() {
    refused_lines("0,a,0,281474976710657,8,0,t\n", ":2", "size 281474976710657 is absurd");
    refused_lines("0,a,0,99999999999999999999999,8,0,t\n", ":2", "`99999999999999999999999` in column size is absurd");
    refused_lines("18446744073709551616,a,0,8,8,0,t\n", ":2", "column t is absurd; the most is 18446744073709551615");
    refused_lines("0,a,0,8,8,4294967296,t\n", ":2", "column stream is absurd; the most is 4294967295");
    refused_lines("0,a,0,8,8,0,t\n0,r,0,281474976710657,8,0,t\n", ":3", "is absurd");
    refused_lines("0,a,0,0,8,0,t\n", ":2", "size 0");
    refused_lines("0,a,0,8,24,0,t\n", ":2", "alignment 24 is not a power of two");
    refused_lines("0,a,0,8,0,0,t\n", ":2", "alignment 0 is not a power of two");
    refused_lines("0,a,0,8,9223372036854775808,0,t\n", ":2", "alignment 9223372036854775808");
    refused_lines("5,a,0,8,8,0,t\n4,f,0,,,0,\n", ":3", "time goes back from 5 to 4 us");
}

#[test]
fn bytes_that_are_no_text() {
    refused([HEADER.as_bytes(), b"0,a,0,8,8,0,\xff\xfe\n"].concat(), ":2", "not UTF-8");
    refused_lines("0,a,0,8,8,0,a\0b\n", ":2", "a NUL byte");
    refused(HEADER.replace('\n', "\r\n") + "0,a,0,8,8,0,t\r\n", ":1", "a carriage return");
    refused_lines("0,a,0,8,8,0,t\n0,f,0,,,0,\r\n", ":3", "a carriage return");
    refused_lines(&format!("0,a,0,8,8,0,{}\n", "x".repeat(10_000)), ":2", "longer than 4224 bytes");
    refused("size,address\n1,2\n", ":1", "the first line is `size,address`");
    // Text from the file is escaped.
    refused_lines("0,\x1b[31m,0,8,8,0,t\n", ":2", "operation `\\u{1b}[31m` is unknown");
}

#[test]
fn empty_and_cut_files() {
    refused("", "", "the file is empty");
    refused(HEADER, "", "no events after the header");
    refused(zstd(b""), "", "the file is empty");
    refused(gzip(b""), "", "the file is empty");
    refused_lines("0,a,0,8,8,0,t\n0,f,0,,,0,", ":3", "the last line has no line end");
}

/// A CSV that does not compress well.
fn lines() -> String {
    let lines = (0..20_000u64).map(|id| format!("{id},a,{id},{},8,0,tag{}\n", id * id % 9973 + 1, id * 7919 % 1009));
    format!("{HEADER}{}", lines.collect::<String>())
}

#[test]
fn cut_and_damaged_archives() {
    for (kind, packed) in [("gzip", gzip(lines().as_bytes())), ("zstd", zstd(lines().as_bytes()))] {
        for keep in [packed.len() / 2, packed.len() - 1, 5] {
            refused_anywhere(&packed[..keep], &format!("the {kind} archive is cut short"));
        }
        let mut damaged = packed.clone();
        let middle = damaged.len() / 2;
        for byte in &mut damaged[middle..middle + 64] {
            *byte ^= 0x5a;
        }
        refused_anywhere(&damaged, "");
    }
    // Bytes behind the end of an archive.
    let mut trailing = zstd(lines().as_bytes());
    trailing.extend(b"more");
    refused_anywhere(&trailing, "the zstd archive is");
}

/// Replays an invalid trace whose error names a line that depends on how much was decompressed.
fn refused_anywhere(bytes: &[u8], what: &str) {
    let here = Sandbox::new();
    here.file("bad.zst", bytes);
    let output = here.run(&["replay", "bad.zst"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("terrace: bad.zst"), "{}", stderr(&output));
    assert!(stderr(&output).contains(what), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    assert_eq!(here.names(), ["bad.zst"]);
}

#[test]
fn cut_and_foreign_recordings() {
    let here = Sandbox::new();
    here.file("good.csv", lines());
    assert!(here.run(&["record", "convert", "good.csv", "good.terrace"]).status.success());
    let good = std::fs::read(here.path("good.terrace")).unwrap();
    assert!(good.starts_with(b"terrace\x1a\x01"));
    for keep in [8, 9, 12, good.len() / 2, good.len() - 1] {
        refused_anywhere(&good[..keep], "the recording is cut short");
    }
    let mut other = good.clone();
    other[8] = 9;
    refused_anywhere(&other, "recording version 9, this program reads 1");
    // A complete archive, without valid records inside.
    let mut nonsense = good[..9].to_vec();
    nonsense.extend(zstd(&[0xff; 100]));
    refused_anywhere(&nonsense, "record 1: 0xff starts no record");
}

#[test]
fn a_bomb_streams_in_bounded_memory() {
    // 512 MiB of zeros in a few KiB: the reader stops at the first line.
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 512 << 20), &mut encoder).unwrap();
    refused(encoder.finish().unwrap(), ":1", "the first line is `\\0");
}

/// For a file of another kind the error shows its first line, and does not ask for shorter tags.
#[test]
fn files_of_another_kind() {
    refused("{\"events\": []}\n", ":1", "the first line is `{\"events\": []}`, not");
    refused(vec![b'x'; 1 << 20], ":1", &format!("the first line is `{}...`", "x".repeat(40)));
    refused(vec![0; 1 << 20], ":1", "the first line is `\\0");
    refused(b"\x7fELF\x02\x01\x01\x00", ":1", "the first line is `\\u{7f}ELF");
    refused(
        b"PK\x03\x04\xff\xfe\n",
        ":1",
        "give a CSV (plain, gzip or zstd), a terrace recording, a snapshot of PyTorch or a log of RMM",
    );
    refused(b"no trace\r", ":1", "the first line is `no trace\\r`");
    refused(format!("\u{feff}{HEADER}0,a,0,8,8,0,t\n"), ":1", "a byte order mark before the header");
    refused(HEADER.replace('\n', "\r") + "0,a,0,8,8,0,t\r", ":1", "a carriage return");
    refused(&HEADER[..20], ":1", "the last line has no line end");
}

#[test]
fn windows_above_the_limit_are_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    std::io::Write::write_all(&mut encoder, HEADER.as_bytes()).unwrap();
    refused(encoder.finish().unwrap(), ":1", "needs a window above 64 MiB");
}

#[test]
fn files_that_are_not_there() {
    let here = Sandbox::new();
    for (path, what) in [("none.csv", "No such file"), (".", "no file ends in .csv")] {
        let output = here.run(&["replay", path]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).starts_with(&format!("terrace: {path}: ")), "{}", stderr(&output));
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }
    assert!(here.names().is_empty());
}

#[test]
fn usage() {
    let here = Sandbox::new();
    here.file("t.csv", format!("{HEADER}0,a,0,8,8,0,t\n"));
    let wrong: [&[&str]; 10] = [
        &[],
        &["replay"],
        &["replay", "t.csv", "--pool", "nonsense"],
        &["replay", "t.csv", "--capacity", "many"],
        &["replay", "t.csv", "--capacity", "0"],
        &["replay", "t.csv", "--capacity", "99999999999TiB"],
        &["replay", "t.csv", "--picture", "x.jpg"],
        &["replay", "t.csv", "--streams", "perhaps"],
        &["replay", "t.csv", "--min-size", "9"],
        &["record", "convert", "t.csv", "t.zip"],
    ];
    for words in wrong {
        let output = here.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{words:?}");
    }
    assert_eq!(here.names(), ["t.csv"]);
}
