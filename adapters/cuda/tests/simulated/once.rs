//! Driver calls refused once each: no panic, no leak, and the same work succeeds afterwards.

use crate::contexts::{Kept, thread};
use crate::workout::workout;
use terrace_cuda::{Cuda, OpenError, OpenErrorReason};
use terrace_device::Backend;
use terrace_tests::simcuda::{Simulator, swept};

/// One transient code of each kind: memory, support, handles, unknown. `ends` has those that end a context.
const CODES: [i32; 5] = [2, 801, 400, 999, 12345];

/// Any function.
const ANY: &str = "*";

#[test]
fn opening_survives_the_refusal_of_each_call() {
    for profile in ["discrete", "two-peers", "orin"] {
        let session = Simulator::exclusive(&format!(r#"{{"profile":"{profile}"}}"#));
        let before = session.calls(None);
        let whole = Cuda::open(0).expect("nothing is refused").description().clone();
        let calls = session.calls(None) - before;
        for (nth, code) in swept(calls, &CODES) {
            session.fail(ANY, nth, code);
            let opened = Cuda::open(0);
            session.fail(ANY, 0, 0);
            match opened {
                Ok(cuda) => works(&cuda, profile, nth, code),
                Err(OpenError { reason: OpenErrorReason::Driver(fault), .. }) => {
                    assert_eq!(fault.code, code, "{profile}: call {nth}: {fault}")
                }
                Err(error) => panic!("{profile}: call {nth}, code {code}: {error}"),
            }
            assert_eq!(session.leaks(), Vec::<String>::new(), "{profile}: call {nth}, code {code}");
        }
        assert_eq!(Cuda::open(0).expect("nothing is refused").description(), &whole);
    }
}

/// A device that was opened although a call was refused works with the capabilities that it found.
fn works(cuda: &Cuda, profile: &str, nth: u64, code: i32) {
    workout(cuda).unwrap_or_else(|fault| panic!("{profile}: after call {nth} gave {code} when it was opened: {fault}"));
}

#[test]
fn every_use_survives_the_refusal_of_each_call() {
    for profile in ["discrete", "two-peers", "orin"] {
        let session = Simulator::exclusive(&format!(r#"{{"profile":"{profile}"}}"#));
        let cuda = Cuda::open(0).expect("nothing is refused");
        workout(&cuda).expect("nothing is refused");
        let before = session.calls(None);
        workout(&cuda).expect("nothing is refused");
        let calls = session.calls(None) - before;
        // The current context is another device's: every call sets ours and restores that one.
        let _kept = (profile == "two-peers").then(|| Kept::current(1));
        let (held, was) = (session.leaks(), thread());
        for (nth, code) in swept(calls, &CODES) {
            session.fail(ANY, nth, code);
            let refused = workout(&cuda);
            session.fail(ANY, 0, 0);
            if let Err(fault) = refused {
                assert_eq!(fault.code, code, "{profile}: call {nth}: {fault}");
            }
            assert_eq!(session.leaks(), held, "{profile}: call {nth}, code {code}");
            assert_eq!(thread(), was, "{profile}: call {nth}, code {code}");
            workout(&cuda).unwrap_or_else(|fault| panic!("{profile}: after call {nth} gave {code}: {fault}"));
        }
    }
}

#[test]
fn closing_survives_the_refusal_of_each_call() {
    let session = Simulator::exclusive(r#"{"profile":"two-peers"}"#);
    let open = || {
        let cuda = Cuda::open(0).expect("nothing is refused");
        workout(&cuda).expect("nothing is refused");
        cuda
    };
    let cuda = open();
    let before = session.calls(None);
    drop(cuda);
    let calls = session.calls(None) - before;
    for code in CODES {
        for nth in 1..=calls {
            let cuda = open();
            session.fail(ANY, nth, code);
            drop(cuda);
            session.fail(ANY, 0, 0);
            assert_eq!(session.leaks(), Vec::<String>::new(), "call {nth}, code {code}");
        }
    }
}
