//! The suite of every device: the host, numbers, the simulated driver, a real GPU, yours.
//!
//! Promises upward: [`CASES`] are the same for all; a case says what was wrong in words, and leaves nothing behind.
//! Asks from below: [`World`], which opens the device as the options say.
//!
//! # Example
//! A backend from elsewhere:
//! ```
//! use terrace_device::{Device, HostBackend};
//! use terrace_tests::device::{CASES, World};
//! let world = World { open: &|options| Device::open(HostBackend::with_total(1 << 30), options), bytes: true };
//! for (name, case) in CASES {
//!     case(&world).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
//! }
//! ```

mod blocks;
mod buffers;
mod bytes;
pub mod fallback;
mod hints;
mod limits;
mod registered;
mod streams;
mod transfers;

use std::fmt::{Debug, Display};
use terrace_device::{Device, DeviceError, DeviceOptions};

/// The device under test.
pub struct World<'a> {
    /// Opens it anew.
    pub open: &'a dyn Fn(DeviceOptions) -> Result<Device, DeviceError>,
    /// Whether its memory holds bytes that can be read back.
    pub bytes: bool,
}

/// A case: what was wrong, in words.
pub type Case = fn(&World<'_>) -> Result<(), String>;

/// All cases, by name.
pub const CASES: &[(&str, Case)] = &[
    ("blocks_are_apart_aligned_and_large_enough", blocks::apart),
    ("bad_requests_are_refused_by_rule", blocks::bad_requests),
    ("a_block_outlives_its_stream_and_its_device", blocks::outlives),
    ("statistics_keep_their_equations", blocks::statistics),
    ("wrapped_memory_goes_back_once", blocks::wrapped),
    ("everything_goes_back", blocks::goes_back),
    ("every_origin_works_or_says_why_not", blocks::origins),
    ("what_was_written_is_read", bytes::written_is_read),
    ("copies_within_and_between_streams_are_right", bytes::copies),
    ("ranges_outside_a_block_are_refused", bytes::out_of_bounds),
    ("fresh_memory_is_zero_when_asked", bytes::zeroed),
    ("threads_share_a_device_and_a_stream", bytes::threads),
    ("capacity_holds_and_the_error_says_what_there_was", limits::capacity),
    ("the_hook_is_asked_last_and_can_help", limits::hook),
    ("the_fallback_is_counted_and_can_be_turned_off", limits::fallback),
    ("caches_are_emptied_before_a_request_fails", limits::caches),
    ("caches_follow_pressure", limits::pressure),
    ("a_stream_has_its_own_memory_again_at_once", streams::again),
    ("streams_of_other_devices_are_refused", streams::foreign),
    ("a_graph_keeps_its_memory", streams::graphs),
    ("blocks_used_elsewhere_are_held", streams::held),
    ("buffers_hold_elements", buffers::elements),
    ("views_stay_inside_their_buffer", buffers::views_stay_inside),
    ("pinned_memory_is_the_host_s_after_the_copy", buffers::pinned_copies),
    ("pinned_memory_is_not_rounded_to_powers_of_two", buffers::pinned_sizes),
    ("unified_memory_is_seen_by_both", buffers::unified),
    ("transfers_move_every_byte", transfers::every_byte),
    ("transfers_to_many_places_are_one", transfers::many_places),
    ("transfers_that_cannot_be_give_the_buffers_back", transfers::bad_transfers),
    ("transfers_are_futures", transfers::futures),
    ("transfers_of_threads_are_their_own", transfers::threads),
    ("hints_are_given_or_ignored_and_change_nothing", hints::given_or_ignored),
    ("managed_memory_is_read_under_several_leases", hints::read_leases),
    ("the_user_s_own_memory_is_pinned_and_given_back", registered::there_and_back),
    ("registration_that_is_refused_gives_the_memory_back", registered::refusals),
    ("buffers_of_two_devices_are_not_mixed", buffers::mixed_devices),
    ("every_residence_of_a_buffer_and_every_way_between", fallback::sides),
    ("random_programs_on_two_sides_are_right", fallback::programs),
    ("a_full_device_uses_the_host_s_memory_until_there_is_room", fallback::full),
    ("buffers_on_two_sides_refuse_bad_input", fallback::bad_input),
    ("a_capture_moves_no_buffer", fallback::captured),
];

/// `Ok` when it holds.
fn ensure(holds: bool, what: impl Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_string()) }
}

/// `Ok` when both are the same.
fn same<T: PartialEq + Debug>(is: T, should: T, what: &str) -> Result<(), String> {
    ensure(is == should, format_args!("{what}: {is:?}, should be {should:?}"))
}

/// The value, or the error in words.
fn ok<T>(result: Result<T, DeviceError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Opens the device, gives it to the case, and looks whether everything went back.
fn with(
    world: &World<'_>,
    options: DeviceOptions,
    case: impl FnOnce(&Device) -> Result<(), String>,
) -> Result<(), String> {
    let device = ok((world.open)(options))?;
    case(&device)?;
    device.check().map_err(|violation| violation.to_string())?;
    device.trim();
    let stats = device.stats();
    same((stats.pool.live_blocks, stats.pool.reserved, stats.held), (0, 0, 0), "live, reserved, held in the end")
}

/// Small and quick.
fn small() -> DeviceOptions {
    DeviceOptions { capacity: 256 << 20, blocks: cut(1 << 14, 1 << 10), ..DeviceOptions::default() }
}

/// A number as it is or, under Miri, which is some hundred times slower, a smaller one.
const fn cut<T: Copy>(full: T, miri: T) -> T {
    if cfg!(miri) { miri } else { full }
}

/// A `#[test]` for each case.
#[macro_export]
macro_rules! device_suite {
    ($world:expr) => {
        $crate::device_suite! { $world;
            blocks_are_apart_aligned_and_large_enough bad_requests_are_refused_by_rule
            a_block_outlives_its_stream_and_its_device statistics_keep_their_equations wrapped_memory_goes_back_once
            everything_goes_back every_origin_works_or_says_why_not what_was_written_is_read
            copies_within_and_between_streams_are_right ranges_outside_a_block_are_refused
            fresh_memory_is_zero_when_asked threads_share_a_device_and_a_stream
            capacity_holds_and_the_error_says_what_there_was the_hook_is_asked_last_and_can_help
            the_fallback_is_counted_and_can_be_turned_off caches_are_emptied_before_a_request_fails
            caches_follow_pressure a_stream_has_its_own_memory_again_at_once streams_of_other_devices_are_refused
            a_graph_keeps_its_memory blocks_used_elsewhere_are_held buffers_hold_elements views_stay_inside_their_buffer
            pinned_memory_is_the_host_s_after_the_copy pinned_memory_is_not_rounded_to_powers_of_two
            unified_memory_is_seen_by_both transfers_move_every_byte transfers_to_many_places_are_one
            transfers_that_cannot_be_give_the_buffers_back transfers_are_futures transfers_of_threads_are_their_own
            hints_are_given_or_ignored_and_change_nothing
            managed_memory_is_read_under_several_leases
            the_user_s_own_memory_is_pinned_and_given_back registration_that_is_refused_gives_the_memory_back
            buffers_of_two_devices_are_not_mixed every_residence_of_a_buffer_and_every_way_between
            random_programs_on_two_sides_are_right a_full_device_uses_the_host_s_memory_until_there_is_room
            buffers_on_two_sides_refuse_bad_input a_capture_moves_no_buffer
        }
    };
    ($world:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            let case = $crate::device::CASES.iter().find(|(name, _)| *name == stringify!($name));
            let (_, case) = case.expect("a case of this name");
            $world(&|world: &$crate::device::World<'_>| if let Err(wrong) = case(world) { panic!("{wrong}") });
        })*

        /// No case is left out.
        #[test]
        fn every_case_has_a_test() {
            let tests = [$(stringify!($name)),*];
            let cases: Vec<_> = $crate::device::CASES.iter().map(|(name, _)| *name).collect();
            assert_eq!(tests.as_slice(), cases);
        }
    };
}
