//! Settings that are changed while a manager runs.
//!
//! Promises upward: a value is checked before anything changes; an error says which settings can be changed.
//! Asks from below: the core's table; the ledger, which follows a new capacity.

use super::{Error, Manager};
use crate::ledger::LedgerEvent;
use std::sync::atomic::Ordering;
use terrace_core::residence::Tier;
use terrace_core::settings::{self, BadSetting, MEMORY, MIN_FREE, PINNED_CAP, Spec, Surface};
use terrace_core::spelling;

/// What can be changed.
const CHANGEABLE: [Spec; 3] = [MEMORY, MIN_FREE, PINNED_CAP];

impl Manager {
    /// Changes `memory`, `min_free` or `pinned_cap` while the manager runs, to a size such as `2GiB`.
    ///
    /// Memory grows to no more than the manager was built with. Buffers leave memory that is taken away, as after
    /// [`resize`](Self::resize); leases above a lower cap stay. What follows from `min_free` changes with the next look at what
    /// the machine has left.
    ///
    /// # Errors
    /// [`Error::BadSetting`]: an unknown name, a value that the setting does not accept, a setting that is fixed once the
    /// manager is built; [`Error::NoTier`].
    ///
    /// # Example
    /// ```
    /// use terrace_tiers::Manager;
    ///
    /// let manager = Manager::builder().memory(8 << 20).build()?;
    /// manager.set("memory", "4MiB")?;
    /// assert_eq!(manager.tiers()[0].view.capacity, 4 << 20);
    /// let error = manager.set("chunk", "64KiB").unwrap_err().to_string();
    /// assert!(error.starts_with("`chunk` is fixed once a manager is built"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set(&self, name: &str, value: &str) -> Result<(), Error> {
        self.shared.check_process()?;
        let names = || settings::of(Surface::Manager).map(|spec| spec.name);
        let Some(spec) = settings::of(Surface::Manager).find(|spec| spec.name == name) else {
            let meant = spelling::nearest(name.as_bytes(), names());
            let meant = meant.map_or(String::new(), |meant| format!("; `{meant}` is"));
            return Err(Error::BadSetting(
                format!("`{}` is no setting of a manager{meant}", name.escape_debug()).into(),
            ));
        };
        if !CHANGEABLE.iter().any(|changeable| changeable.name == name) {
            let [first, second, third] = CHANGEABLE.map(|spec| spec.name);
            let fixed =
                format!("`{name}` is fixed once a manager is built; {first}, {second} and {third} can be changed");
            return Err(Error::BadSetting(fixed.into()));
        }
        let refused = BadSetting { name: spec.name, allowed: spec.allowed };
        let bytes = spec.allowed.parse(value.trim()).ok_or(refused)?.number();
        match name {
            "memory" => {
                let tier = self.shared.memory().ok_or(Error::NoTier("in memory"))?;
                let built = self.shared.tiers[usize::from(tier)].capacity;
                if bytes > built {
                    let most = format!("memory can be at most the {built} bytes that the manager was built with");
                    return Err(Error::BadSetting(most.into()));
                }
                self.resize(tier, bytes)
            }
            "min_free" => {
                self.shared.min_free.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            _ => {
                self.shared.pinned_cap.store(bytes, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Sets the capacity of a tier in bytes: buffers that no longer fit move to lower tiers.
    ///
    /// For memory, of the machine or of a device, this is a limit: maintenance reduces the capacity to what other programs
    /// leave. The tier of the machine's memory grows to no more than it was built with.
    ///
    /// # Errors
    /// [`Error::Rejected`] for no such tier.
    pub fn resize(&self, tier: Tier, capacity: u64) -> Result<(), Error> {
        self.shared.check_process()?;
        let built = self.shared.tiers.get(usize::from(tier)).filter(|_| self.shared.memory() == Some(tier));
        let capacity = capacity.min(built.map_or(u64::MAX, |tier| tier.capacity));
        let mut state = self.shared.state();
        let at = usize::from(tier);
        let before = state.limits.get_mut(at).map(|most| std::mem::replace(most, capacity));
        let allowed = if before.is_some() { state.allowed(&self.shared, tier) } else { capacity };
        let resized = state.handle(&self.shared, LedgerEvent::Resize { tier, capacity: allowed });
        if let (Some(before), Err(_)) = (before, &resized) {
            state.limits[at] = before;
        }
        self.shared.unlock(state);
        resized.map_err(Into::into)
    }
}
