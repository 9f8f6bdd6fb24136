//! The exchange beside a list of batches, by one thread; `loom_exchange` has the interleavings.

use proptest::prelude::*;
use terrace_core::Exchange;
use terrace_core::sync::{AtomicU32, AtomicUsize};

#[derive(Clone, Debug)]
enum Step {
    Give(usize),
    Take(usize),
    CloseAndOpen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(0usize..6).prop_map(Step::Give), (0usize..6).prop_map(Step::Take), Just(Step::CloseAndOpen)]
}

proptest! {
    #[test]
    fn it_gives_what_it_was_given(places in 0usize..4, steps in proptest::collection::vec(step(), 0..60)) {
        let states: Vec<AtomicU32> = (0..places).map(|_| AtomicU32::new(0)).collect();
        let items: Vec<AtomicUsize> = (0..places * 4).map(|_| AtomicUsize::new(0)).collect();
        let exchange = Exchange::new(&states, &items);
        prop_assert_eq!(exchange.batch(), if places == 0 { 0 } else { 4 });
        let (mut held, mut next): (Vec<Vec<usize>>, usize) = (vec![Vec::new(); places], 1);
        for step in steps {
            match step {
                Step::Give(count) => {
                    let batch: Vec<usize> = (next..next + count).collect();
                    next += count;
                    let room = held.iter_mut().find(|place| place.is_empty());
                    let fits = (1..=4).contains(&count) && room.is_some();
                    prop_assert_eq!(exchange.give(&batch), fits);
                    if let Some(place) = room.filter(|_| fits) {
                        *place = batch;
                    }
                }
                Step::Take(room) => {
                    let mut out = vec![0; room];
                    let taken = exchange.take(&mut out).map(|count| out[..count].to_vec());
                    let place = held.iter_mut().find(|place| !place.is_empty()).filter(|_| room > 0);
                    let expected = place.map(|place| place.split_off(place.len().saturating_sub(room)));
                    prop_assert_eq!(taken, expected);
                }
                Step::CloseAndOpen => {
                    let mut out = Vec::new();
                    exchange.close(|item| out.push(item));
                    // What is closed holds nothing.
                    exchange.close(|item| out.push(item));
                    prop_assert_eq!(&out, &held.concat());
                    prop_assert!(!exchange.give(&[1]) && exchange.take(&mut [0]).is_none());
                    held.iter_mut().for_each(Vec::clear);
                    exchange.open();
                }
            }
            prop_assert_eq!(exchange.held(), held.iter().map(Vec::len).sum::<usize>());
            prop_assert!(exchange.check().is_ok());
        }
    }
}

#[test]
fn a_place_that_holds_too_much_is_found_out() {
    let places = [AtomicU32::new(3)];
    let items = [AtomicUsize::new(0), AtomicUsize::new(0)];
    assert!(Exchange::new(&places, &items).check().is_err());
}
