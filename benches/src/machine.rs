//! Where and when a benchmark ran.
//!
//! Promises upward: a name that can stand in a file name; how busy the machine was before.
//! Asks from below: `/proc/cpuinfo` and `/proc/loadavg` where there are such.

use serde::{Deserialize, Serialize};

/// What is known of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, as it names itself; its architecture where it does not.
    pub cpu: String,
    /// Processors that this program may use.
    pub cores: usize,
    /// Operating system and architecture.
    pub system: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: model_of(&info).unwrap_or(std::env::consts::ARCH).into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }

    /// Small letters, digits and dashes.
    ///
    /// ```
    /// use terrace_benches::machine::Machine;
    /// let machine = Machine { cpu: "Intel(R) Xeon(R) CPU @ 2.0GHz".into(), cores: 2, system: "linux".into() };
    /// assert_eq!(machine.name(), "intel-xeon-cpu-2-0ghz-2-cores");
    /// ```
    pub fn name(&self) -> String {
        let plain = self.cpu.replace("(R)", " ").replace("(TM)", " ").to_lowercase();
        let words: Vec<&str> =
            plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let plural = if self.cores == 1 { "" } else { "s" };
        format!("{}-{}-core{plural}", words.join("-"), self.cores)
    }
}

/// The first `model name` of a `/proc/cpuinfo`.
fn model_of(info: &str) -> Option<&str> {
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

/// Programs that ran or waited to, on average over the last minute; `None` where the system does not say.
pub fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Now, in UTC, to the second: `2026-01-31T12:00:00Z`.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_where_there_is_one() {
        assert_eq!(model_of("processor\t: 0\nmodel name\t: Some CPU\nmodel name : other\n"), Some("Some CPU"));
        assert_eq!(model_of("processor\t: 0\n"), None);
        assert_eq!(model_of("model name\t:\n"), None);
    }

    #[test]
    fn this_machine_has_a_name_and_a_date() {
        assert!(Machine::here().name().contains("-core"));
        assert_eq!(now().len(), "2026-01-31T12:00:00Z".len());
    }
}
