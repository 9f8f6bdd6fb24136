//! The page: rows that are never half new, and content that never panics a reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use terrace_live::{CounterPage, Figure, Figures, PageError, ROWS, RowKind, RowRead, RowValues, WORDS};

fn words() -> Vec<AtomicU64> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// Values whose figures and name all say `n`.
fn values(n: u64) -> (Figures, String) {
    (Figure::ALL.into_iter().fold(Figures::NONE, |figures, figure| figures.with(figure, n)), format!("{n:048}"))
}

fn write(writer: &terrace_live::RowWriter<'_>, n: u64) {
    let (figures, name) = values(n);
    writer.write(&RowValues { kind: RowKind::Tag, name: name.as_bytes(), written: n, ended: false, figures });
}

#[test]
fn what_is_written_is_read() {
    let words = words();
    let page = CounterPage::format(&words, 7).unwrap();
    assert_eq!((page.maker(), page.read(0), page.read(ROWS)), (7, RowRead::Empty, RowRead::Empty));
    let writer = page.claim(41).unwrap();
    let figures =
        Figures::NONE.with(Figure::InUse, 5).with(Figure::Moved, 6).with(Figure::Hits, 1).with(Figure::Hits, u64::MAX);
    let long = "a name that is longer than forty-eight bytes, which are all that a row holds";
    writer.write(&RowValues { kind: RowKind::Tier, name: long.as_bytes(), written: 99, ended: true, figures });
    let RowRead::Row(row) = CounterPage::open(&words).unwrap().read(0) else { panic!("a row") };
    assert_eq!((row.kind, row.owner, row.written, row.ended), (RowKind::Tier, 41, 99, true));
    assert_eq!(row.name(), &long[..48]);
    assert_eq!(
        [Figure::InUse, Figure::Moved, Figure::Hits].map(|figure| row.figures.get(figure)),
        [Some(5), Some(6), None]
    );
    writer.release();
    assert_eq!(page.read(0), RowRead::Empty);
}

#[test]
fn each_owner_has_a_row_and_rows_of_those_that_ended_are_taken_again() {
    let words = words();
    let page = CounterPage::format(&words, 1).unwrap();
    let writers: Vec<_> = (0..ROWS as u32).map(|owner| page.claim(100 + owner).unwrap()).collect();
    writers.iter().enumerate().for_each(|(n, writer)| write(writer, n as u64));
    assert!(page.claim(5).is_none(), "every row has a living owner");
    let figures = Figures::NONE;
    writers[50].write(&RowValues { kind: RowKind::Program, name: b"ended", written: 0, ended: true, figures });
    let again = page.claim(5).unwrap();
    assert_eq!((again.index(), again.owner()), (50, 5));
    write(&again, 1);
    assert!(page.claim(6).is_none(), "its new owner lives");
    assert_eq!(page.claim_only(120).unwrap().index(), 20, "after `exec`: the row that the process had");
}

#[test]
fn a_row_is_never_half_new() {
    let words = words();
    let page = CounterPage::format(&words, 1).unwrap();
    let writer = page.claim(1).unwrap();
    write(&writer, 0);
    let ended = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 50 } else { 200_000 };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut rows, mut last) = (0_u64, 0);
                    while !ended.load(Relaxed) || rows == 0 {
                        let RowRead::Row(row) = page.read(0) else { continue };
                        let (figures, name) = values(row.written);
                        assert_eq!((row.figures, row.name()), (figures, name.as_str()), "one write, whole");
                        assert!(row.written >= last, "never an older row after a newer one");
                        (rows, last) = (rows + 1, row.written);
                    }
                    rows
                })
            })
            .collect();
        (0..rounds).for_each(|n| write(&writer, n));
        ended.store(true, Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

#[test]
fn an_owner_killed_inside_a_write_leaves_a_torn_row_that_the_next_one_mends() {
    let words = words();
    let page = CounterPage::format(&words, 1).unwrap();
    let writer = page.claim(1).unwrap();
    write(&writer, 3);
    words[32].fetch_add(1, Relaxed);
    assert_eq!(page.read(0), RowRead::Torn);
    write(&writer, 4);
    assert!(matches!(page.read(0), RowRead::Row(row) if row.written == 4));
}

#[test]
fn random_words_are_refused_or_read_without_a_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    let words = words();
    for round in 0..if cfg!(miri) { 3 } else { 300 } {
        words.iter().for_each(|word| word.store(random.u64(..), Relaxed));
        assert!(CounterPage::open(&words).is_err(), "no header");
        // A header, and rows of any content: half of the kinds are known, so that names and figures are read too.
        let page = CounterPage::format(&words, 1).unwrap();
        for row in 0..ROWS {
            words[32 * (row + 1)].store(random.u64(..) & !u64::from(round % 2 == 0), Relaxed);
            words[32 * (row + 1) + 2].store(random.u64(..8), Relaxed);
        }
        let read: Vec<_> = (0..=ROWS).map(|row| page.read(row)).collect();
        for row in &read {
            if let RowRead::Row(row) = row {
                assert!(row.name().len() <= 48);
            }
        }
        assert!(round % 2 == 1 || read.iter().any(|row| matches!(row, RowRead::Row(_))));
        assert!(read.contains(&RowRead::Unknown) || round % 2 == 1);
    }
}

#[test]
fn pages_of_others_say_what_they_are() {
    let words = words();
    assert_eq!(CounterPage::open(&words).unwrap_err(), PageError::Foreign);
    assert_eq!(CounterPage::format(&words[..WORDS - 1], 1).unwrap_err(), PageError::Short(WORDS - 1));
    CounterPage::format(&words, 1).unwrap();
    assert_eq!(CounterPage::open(&words[..9]).unwrap_err(), PageError::Short(9));
    words[2].store(1 << 40, Relaxed);
    assert_eq!(CounterPage::open(&words).unwrap_err(), PageError::Header);
    words[1].store(2, Relaxed);
    let error = CounterPage::open(&words).unwrap_err();
    assert_eq!(
        error.to_string(),
        "counters of version 2, this is version 1: take program and command from one release"
    );
}
