//! A module that was loaded.

/// A module.
pub struct Module {
    /// Its context.
    pub context: u64,
    /// The kernels that its text names; `None` where it is no text, and has all.
    pub kernels: Option<Vec<String>>,
}

impl Module {
    /// Whether it has a kernel of this name.
    pub fn has(&self, name: &str) -> bool {
        self.kernels.as_ref().is_none_or(|kernels| kernels.iter().any(|kernel| kernel == name))
    }
}
