//! Parses the environment variables of this library, once, before the first device is opened.
//!
//! Promises upward: the options, or a message that names the variable, its value and the allowed values.
//! Asks from below: a lookup function, so that tests need no environment.

use terrace_core::settings::{self, CAPACITY, DEVICE_FRACTION, ORIGIN, PEER_ACCESS, Profile, Spec, Surface, Value};
use terrace_device::{DeviceOptions, PoolOrigin};

/// The warning for a variable whose name nearly matches one of these.
pub fn misspelt(name: &str) -> Option<String> {
    let known = settings::misspelt(Surface::Torch, name.as_bytes())?;
    Some(format!("terrace: {name} is no setting; {known} is"))
}

/// The options that the environment sets.
pub fn options(lookup: impl Fn(&str) -> Option<String>) -> Result<DeviceOptions, String> {
    let value = |spec: Spec| read(spec.of(Profile::Torch), &lookup);
    Ok(DeviceOptions {
        capacity: value(CAPACITY)?.number(),
        device_fraction: value(DEVICE_FRACTION)?.share(),
        origin: PoolOrigin::ALL[value(ORIGIN)?.word()],
        peer_access: PEER_ACCESS.of(Profile::Torch).default.is_on(),
        ..DeviceOptions::default()
    })
}

/// The value of a variable, in any case of letters; the default where the variable is not set or empty.
fn read(spec: Spec, lookup: impl Fn(&str) -> Option<String>) -> Result<Value, String> {
    let text = spec.variable.and_then(lookup).unwrap_or_default();
    match text.trim() {
        "" => Ok(spec.default),
        trimmed => {
            let refused = |name, allowed| format!("the variable {name} is `{text}`; it may be: {allowed}");
            spec.parse(&trimmed.to_ascii_lowercase()).map_err(|bad| refused(bad.name, bad.allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const CAPACITY: &str = "TERRACE_TORCH_CAPACITY";
    const FRACTION: &str = "TERRACE_TORCH_FRACTION";
    const ORIGIN: &str = "TERRACE_TORCH_ORIGIN";

    fn with(name: &'static str, value: &'static str) -> Result<DeviceOptions, String> {
        options(|asked| (asked == name).then(|| value.to_string()))
    }

    #[test]
    fn nothing_said_is_everything_and_pages_where_there_are_any() {
        let options = options(|_| None).expect("defaults");
        assert_eq!((options.capacity, options.device_fraction, options.origin), (0, 1.0, PoolOrigin::Auto));
        assert_eq!(with(CAPACITY, " ").expect("empty is not said").capacity, 0);
    }

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, expected) in
            [("4096", 4096), ("3k", 3072), (" 12G ", 12 << 30), ("1 TiB", 1 << 40), ("7MB", 7 << 20)]
        {
            assert_eq!(with(CAPACITY, text).map(|options| options.capacity), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_told_with_its_name_and_what_can() {
        for (name, value) in [
            (CAPACITY, "lots"),
            (CAPACITY, "0"),
            (CAPACITY, "-1"),
            (CAPACITY, "99999999999T"),
            (FRACTION, "1.5"),
            (FRACTION, "0"),
            (FRACTION, "NaN"),
            (ORIGIN, "cloud"),
        ] {
            let message = with(name, value).expect_err(value);
            assert!(message.contains(name) && message.contains(value) && message.contains("may be"), "{message}");
        }
        assert!(with(ORIGIN, "cloud").is_err_and(|message| message.contains("driver-pool")));
        assert_eq!(with(ORIGIN, "Segments").map(|options| options.origin), Ok(PoolOrigin::Segments));
    }

    #[test]
    fn the_variables_are_those_of_the_table() {
        let asked = RefCell::new(Vec::new());
        options(|name| {
            asked.borrow_mut().push(name.to_string());
            None
        })
        .expect("defaults");
        assert_eq!(asked.into_inner(), settings::variables(Surface::Torch).collect::<Vec<_>>());
        for name in settings::variables(Surface::Torch) {
            assert!(with(name, "nonsense").is_err_and(|message| message.contains(name)), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_a_setting_s_is_told() {
        let told = misspelt("TERRACE_TORCH_FRACTON");
        assert_eq!(told.as_deref(), Some("terrace: TERRACE_TORCH_FRACTON is no setting; TERRACE_TORCH_FRACTION is"));
        assert_eq!([FRACTION, "TERRACE_CAPACITY", "PATH"].map(misspelt), [None, None, None]);
    }
}
