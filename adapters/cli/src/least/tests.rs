//! Answers for recorded programs, beside a plain bisection.

use super::search::{after, grid};
use super::*;
use std::path::{Path, PathBuf};

/// Every profile.
const ALL: [HeapProfile; 3] = [HeapProfile::Fast, HeapProfile::Bounded, HeapProfile::Small];

fn input(path: PathBuf) -> TraceInput {
    input::find(&[path], None).unwrap().remove(0)
}

/// The least size that bisection finds, taking it that all larger ones fit where one does.
fn bisected(records: RecordKind, heap: HeapProfile, run: &mut HeapRun) -> u64 {
    let mut arena = ArenaMemory::new(run.align);
    let mut fits = |size| heap.fits(records, arena.bytes(size).unwrap(), run).unwrap();
    let [mut fails, mut holds] = [0, 1 << 16];
    while !fits(holds) {
        (fails, holds) = (holds, 2 * holds);
    }
    while holds - fails > 16 {
        let middle = (fails + holds) / 2;
        if fits(middle) { holds = middle } else { fails = middle }
    }
    holds
}

/// The answers for a recorded program are at most a tenth above what bisection finds, and sizes up to a quarter above fit.
fn judge(path: PathBuf, heaps: &[HeapProfile], bits: Bits) {
    let args = LeastArgs { heaps: heaps.to_vec(), least: true, bits, headers: false, align: None };
    let input = input(path);
    let rows = rows(&args, &input, 0).unwrap();
    let mut run = HeapRun::new(&read(&input, 0).unwrap(), rules(&args)).unwrap();
    for (row, &heap) in rows.iter().zip(&args.heaps) {
        let expected = bits.records(heap)[0];
        assert_eq!((&row.records, row.bits), (&expected.name(), bits.number()));
        let plain = bisected(expected, heap, &mut run);
        let answer = row.least_arena_bytes;
        println!(
            "{} {} {bits:?}: peak {}, least {answer}, bisection {plain}",
            row.trace, row.heap, row.peak_live_bytes
        );
        assert!(answer as f64 <= 1.1 * plain as f64, "{row:?}: bisection ends at {plain}");
        assert!(row.peak_live_bytes <= row.peak_granule_bytes && row.peak_granule_bytes < answer);
        let mut arena = ArenaMemory::new(run.align);
        let margin = (answer + answer / 4).min(expected.largest());
        // Each eighth: the search has tried all.
        let sizes = std::iter::successors(Some(answer), |&size| Some(after(size))).step_by(8);
        let mut sizes = sizes.take_while(|&size| size <= margin);
        assert!(sizes.all(|size| heap.fits(expected, arena.bytes(size).unwrap(), &mut run).unwrap()), "{row:?}");
        assert_eq!(grid(answer), answer);
    }
}

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/data/{name}.csv.zst"))
}

#[test]
fn blocks_get_what_the_target_s_word_says() {
    let of = |bits, headers| {
        let rules = rules(&LeastArgs { heaps: vec![], least: true, bits, headers, align: None });
        (rules.malloc_align, rules.header)
    };
    assert_eq!([of(Bits::B32, false), of(Bits::B64, false)], [(8, 0), (16, 0)]);
    assert_eq!([of(Bits::B32, true), of(Bits::B64, true)], [(8, 8), (16, 16)]);
}

#[test]
fn an_embedded_program_fits_as_bisection_says() {
    judge(kept("malloc_lua_embedded"), &ALL, Bits::B64);
    // In narrow records the fast heap holds this run in sizes with holes between them, the last a fifth above the first.
    judge(kept("malloc_lua_embedded"), &[HeapProfile::Small], Bits::B32);
}

#[test]
fn a_parser_fits_as_bisection_says() {
    judge(kept("malloc_python_ast"), &ALL, Bits::B64);
}

#[test]
fn a_formatter_fits_as_bisection_says() {
    judge(kept("malloc_rustfmt"), &ALL, Bits::B64);
}

#[test]
fn what_is_too_large_for_the_usual_records_gets_larger_ones() {
    for (heap, records) in [(HeapProfile::Fast, "wide"), (HeapProfile::Bounded, "packed")] {
        let args = LeastArgs { heaps: vec![heap], least: true, bits: Bits::B32, headers: false, align: None };
        assert_eq!(rows(&args, &input(kept("malloc_python_ast")), 0).unwrap()[0].records, records);
    }
}

#[test]
fn a_database_fits_as_bisection_says() {
    let Some(folder) = std::env::var_os("TERRACE_TRACES").map(PathBuf::from) else {
        println!("SKIP a_database_fits_as_bisection_says: set TERRACE_TRACES");
        return;
    };
    judge(folder.join("malloc_sqlite.csv.zst"), &ALL, Bits::B64);
}
