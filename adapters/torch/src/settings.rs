//! Parses the environment variables of this library, once, before the first device is opened.
//!
//! Promises upward: the options, or a message that names the variable, its value and the allowed values.
//! Asks from below: a lookup function, so that tests need no environment.

use terrace_core::spelling;
use terrace_device::{DeviceOptions, PoolOrigin};

/// Limit of the bytes reserved from a device: a number, optionally with `K`, `M`, `G` or `T` (powers of 1024).
const CAPACITY: &str = "TERRACE_TORCH_CAPACITY";
/// Limit as a fraction of the device's memory, above 0 and at most 1.
const FRACTION: &str = "TERRACE_TORCH_FRACTION";
/// The origin of memory: a name of [`ORIGINS`].
const ORIGIN: &str = "TERRACE_TORCH_ORIGIN";

const ORIGINS: [(&str, PoolOrigin); 5] = [
    ("auto", PoolOrigin::Auto),
    ("pages", PoolOrigin::Pages),
    ("segments", PoolOrigin::Segments),
    ("driver-pool", PoolOrigin::DriverPool),
    ("managed", PoolOrigin::Managed),
];

/// The warning for a variable whose name nearly matches one of these.
pub fn misspelt(name: &str) -> Option<String> {
    let known = spelling::nearest(name.as_bytes(), [CAPACITY, FRACTION, ORIGIN])?;
    Some(format!("terrace: {name} is no setting; {known} is"))
}

/// The options that the environment sets.
pub fn options(lookup: impl Fn(&str) -> Option<String>) -> Result<DeviceOptions, String> {
    // As PyTorch's own allocator, use all of the device's memory by default. PyTorch enables peer access between devices without
    // telling its allocator, so memory must always be accessible to peers.
    let mut options = DeviceOptions { device_fraction: 1.0, peers: true, ..DeviceOptions::default() };
    let given = |name: &'static str| lookup(name).filter(|value| !value.trim().is_empty());
    if let Some(text) = given(CAPACITY) {
        let wanted = "bytes above 0, such as 12G, 500M or 1073741824";
        options.capacity = bytes(text.trim()).ok_or_else(|| refused(CAPACITY, &text, wanted))?;
    }
    if let Some(text) = given(FRACTION) {
        let share = text.trim().parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        options.device_fraction = share.ok_or_else(|| refused(FRACTION, &text, "a number above 0 and at most 1"))?;
    }
    if let Some(text) = given(ORIGIN) {
        let known = ORIGINS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
        let wanted = ORIGINS.map(|(name, _)| name).join(", ");
        options.origin = known.map(|(_, origin)| *origin).ok_or_else(|| refused(ORIGIN, &text, &wanted))?;
    }
    Ok(options)
}

fn refused(name: &str, value: &str, wanted: &str) -> String {
    format!("the variable {name} is `{value}`; it may be: {wanted}")
}

/// Parses a size; `12G`, `12GB` and `12GiB` are the same, in powers of 1024.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_name_that_is_nearly_a_setting_s_is_told() {
        let told = misspelt("TERRACE_TORCH_FRACTON");
        assert_eq!(told.as_deref(), Some("terrace: TERRACE_TORCH_FRACTON is no setting; TERRACE_TORCH_FRACTION is"));
        assert_eq!([FRACTION, "TERRACE_CAPACITY", "PATH"].map(misspelt), [None, None, None]);
    }
}
