//! The values of all settings: what was set, over the defaults of a profile.
//!
//! Promises upward: the same rules for every surface that is filled from the table; nothing allocates.
//! Asks from below: the table.

use super::{BadSetting, Profile, Spec, Surface, TABLE, Value, check};

/// Values of settings: those that were set, and the defaults of a profile for the others.
///
/// # Example
/// ```
/// use terrace_core::settings::{ChosenSettings, MEMORY, Profile, SHARE_OF_DISK, Surface, Value};
/// let mut chosen = ChosenSettings::new(Profile::Constrained);
/// chosen.set(&MEMORY, Value::Number(1 << 30));
/// assert_eq!(chosen.of(&MEMORY), Value::Number(1 << 30));
/// assert_eq!(chosen.of(&SHARE_OF_DISK), Value::Share(0.1));
/// chosen.set(&SHARE_OF_DISK, Value::Share(1.5));
/// assert_eq!(chosen.check(Surface::Manager).unwrap_err().name, "share_of_disk");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenSettings {
    profile: Profile,
    /// In the order of the table.
    set: [Option<Value>; TABLE.len()],
}

impl Default for ChosenSettings {
    fn default() -> Self {
        Self::new(Profile::Usual)
    }
}

impl ChosenSettings {
    /// Nothing set, over the defaults of a profile.
    pub const fn new(profile: Profile) -> Self {
        Self { profile, set: [None; TABLE.len()] }
    }

    /// The profile whose defaults hold where nothing is set.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Takes the defaults of another profile where nothing is set.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// Sets a value, unchecked: see [`check`](Self::check).
    pub fn set(&mut self, spec: &Spec, value: Value) {
        if let Some(at) = position(spec) {
            self.set[at] = Some(value);
        }
    }

    /// The value that was set.
    pub fn get(&self, spec: &Spec) -> Option<Value> {
        position(spec).and_then(|at| self.set[at])
    }

    /// The value that holds: what was set, else the profile's default.
    pub fn of(&self, spec: &Spec) -> Value {
        self.get(spec).unwrap_or(spec.of(self.profile).default)
    }

    /// Takes everything that was set in `over`, and its profile unless that is [`Profile::Usual`].
    pub fn extend(&mut self, over: &Self) {
        if over.profile != Profile::Usual {
            self.profile = over.profile;
        }
        for (value, set) in self.set.iter_mut().zip(over.set) {
            *value = set.or(*value);
        }
    }

    /// Checks the values of a surface, as [`check`] does.
    ///
    /// # Errors
    /// The first setting that is out of bounds, and what it accepts.
    pub fn check(&self, surface: Surface) -> Result<(), BadSetting> {
        // A share as the default of bytes is none of the values that can be set.
        let value_of = |spec: &Spec| self.get(spec).or(Some(self.of(spec)).filter(|value| spec.allowed.holds(*value)));
        check(surface, |name| TABLE.iter().find(|spec| spec.name == name).and_then(value_of))
    }
}

fn position(spec: &Spec) -> Option<usize> {
    TABLE.iter().position(|row| row.name == spec.name)
}
