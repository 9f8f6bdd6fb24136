//! The backend over the simulated HIP: the suite of every device, each call refused once, HIP's own rules and words.
//!
//! No device of AMD's is needed, and none is used.
#![cfg(target_os = "linux")]

mod rules;
#[path = "../../../cuda/tests/simulated/workout.rs"]
mod workout;

use terrace_cuda::{OpenError, OpenErrorReason};
use terrace_device::{Backend, Device, DeviceError, DeviceOptions};
use terrace_hip::Hip;
use terrace_tests::device::World;
use terrace_tests::simcuda::{HipSession, swept};
use workout::workout;

/// One transient code of each kind: memory, support, handles, unknown.
const CODES: [i32; 5] = [2, 801, 400, 999, 12345];

/// A device over HIP.
fn open(ordinal: u32, options: DeviceOptions) -> Result<Device, DeviceError> {
    let hip = Hip::open(ordinal).unwrap_or_else(|error| panic!("the simulated HIP opens: {error}"));
    Device::open(hip, options)
}

fn world(case: &dyn Fn(&World<'_>)) {
    for profile in ["discrete", "orin"] {
        println!("profile {profile}");
        let _session = HipSession::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        case(&World { open: &|options| open(0, options), bytes: true });
    }
}

terrace_tests::device_suite!(world);

#[test]
fn opening_survives_the_refusal_of_each_call() {
    for profile in ["discrete", "two-peers"] {
        let session = HipSession::exclusive(&format!(r#"{{"profile":"{profile}"}}"#));
        let first = Hip::open(0).expect("nothing is refused");
        // HIP keeps the devices that it used from here on.
        workout(&first).expect("nothing is refused");
        let whole = first.description().clone();
        drop(first);
        let (before, held) = (session.calls(None), session.leaks());
        drop(Hip::open(0).expect("nothing is refused"));
        let calls = session.calls(None) - before;
        for (nth, code) in swept(calls, &CODES) {
            session.fail("*", nth, code);
            let opened = Hip::open(0);
            session.fail("*", 0, 0);
            match opened {
                Ok(hip) => {
                    workout(&hip).unwrap_or_else(|fault| panic!("{profile}: after call {nth} gave {code}: {fault}"))
                }
                Err(OpenError { reason: OpenErrorReason::Driver(fault), .. }) => {
                    assert_eq!(fault.code, code, "{profile}: call {nth}: {fault}");
                    assert!(fault.call.starts_with("hip"), "{fault}");
                }
                Err(error) => panic!("{profile}: call {nth}, code {code}: {error}"),
            }
            assert_eq!(session.leaks(), held, "{profile}: call {nth}, code {code}");
        }
        assert_eq!(Hip::open(0).expect("nothing is refused").description(), &whole);
    }
}

#[test]
fn every_use_survives_the_refusal_of_each_call() {
    for profile in ["discrete", "two-peers"] {
        let session = HipSession::exclusive(&format!(r#"{{"profile":"{profile}"}}"#));
        let hip = Hip::open(0).expect("nothing is refused");
        workout(&hip).expect("nothing is refused");
        let before = session.calls(None);
        workout(&hip).expect("nothing is refused");
        let (calls, held) = (session.calls(None) - before, session.leaks());
        for (nth, code) in swept(calls, &CODES) {
            session.fail("*", nth, code);
            let refused = workout(&hip);
            session.fail("*", 0, 0);
            if let Err(fault) = refused {
                assert_eq!(fault.code, code, "{profile}: call {nth}: {fault}");
            }
            assert_eq!(session.leaks(), held, "{profile}: call {nth}, code {code}");
            workout(&hip).unwrap_or_else(|fault| panic!("{profile}: after call {nth} gave {code}: {fault}"));
        }
    }
}
