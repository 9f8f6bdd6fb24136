//! The sources of a program's metrics, each by a label, and their text.
//!
//! Promises upward: a source that was dropped is reported no more; a source that panics costs its own samples only, and is
//! counted.
//! Asks from below: statistics, which each source reads at every scrape.
//!
//! Invariant: no two sources have the same label. No source is called under the lock.

use crate::families::{Families, Labels, MetricDescription};
use crate::sources;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_core::Stats;
use terrace_guard::catch_panic;

/// Adds the samples of a source; false if the source was dropped.
type Collect = dyn Fn(&mut Families, &str) -> bool + Send + Sync;

struct RegisteredSource {
    label: String,
    collect: Arc<Collect>,
}

#[derive(Default)]
struct MetricsState {
    sources: Mutex<Vec<RegisteredSource>>,
    /// Number of calls of sources that panicked.
    panics: AtomicU64,
}

/// The sources of metrics of a program, each under a label of its own. Clones share them.
///
/// It is a [`Collector`] too, for programs with a [`Registry`] of their own.
///
/// # Example
/// ```
/// use terrace_core::Stats;
/// use terrace_metrics::Metrics;
/// let metrics = Metrics::new();
/// metrics.pool("scratch", || Some(Stats { in_use: 4096, ..Stats::default() }))?;
/// assert!(metrics.open_metrics().contains("terrace_pool_in_use_bytes{pool=\"scratch\"} 4096\n"));
/// # Ok::<(), terrace_metrics::MetricsError>(())
/// ```
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<MetricsState>,
}

/// Why a source was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricsError {
    /// A source has the label already.
    LabelInUse(String),
    /// The label is empty.
    EmptyLabel,
}

impl fmt::Display for MetricsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelInUse(label) => write!(
                f,
                "a source of metrics has the label {label:?} already; give each source a label of its own, or remove the other"
            ),
            Self::EmptyLabel => write!(f, "the label of a source of metrics is empty; name the source"),
        }
    }
}

impl std::error::Error for MetricsError {}

impl Metrics {
    /// Metrics without a source.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an allocator by a function that reads its counters.
    ///
    /// Its metrics are `terrace_pool_...{pool="LABEL"}`.
    ///
    /// A function that returns `None` says that the allocator was dropped: it is not called again. The function should hold
    /// the allocator weakly. It is called at each scrape, on the thread of the endpoint.
    ///
    /// # Errors
    /// [`MetricsError`]: a label is not empty, and names one source.
    pub fn pool(
        &self,
        label: impl Into<String>,
        read: impl Fn() -> Option<Stats> + Send + Sync + 'static,
    ) -> Result<(), MetricsError> {
        self.register(label.into(), move |families, label| {
            let Some(stats) = read() else { return false };
            sources::allocator(families, "terrace_pool", &labels("pool", label), &stats);
            true
        })
    }

    /// Registers the allocator of the process: metrics `terrace_host_...{process="LABEL"}`.
    ///
    /// # Errors
    /// [`MetricsError`]: a label is not empty, and names one source.
    #[cfg(feature = "host")]
    pub fn host(&self, label: impl Into<String>) -> Result<(), MetricsError> {
        self.register(label.into(), |families, label| {
            sources::host(families, &labels("process", label), &terrace_host::stats());
            true
        })
    }

    /// Registers a device, held weakly: metrics `terrace_device_...{device="LABEL"}`.
    ///
    /// # Errors
    /// [`MetricsError`]: a label is not empty, and names one source.
    #[cfg(feature = "device")]
    pub fn device(&self, label: impl Into<String>, device: &terrace_device::Device) -> Result<(), MetricsError> {
        let weak = terrace_device::WeakDevice::new(device);
        self.register(label.into(), move |families, label| {
            let Some(stats) = weak.stats() else { return false };
            sources::device(families, &labels("device", label), &stats);
            true
        })
    }

    /// Registers a manager, held weakly.
    ///
    /// Its metrics are `terrace_manager_...{manager="LABEL"}` and `terrace_tier_...{manager="LABEL"}`.
    ///
    /// # Errors
    /// [`MetricsError`]: a label is not empty, and names one source.
    #[cfg(all(feature = "tiers", target_os = "linux"))]
    pub fn manager(&self, label: impl Into<String>, manager: &terrace_tiers::Manager) -> Result<(), MetricsError> {
        let weak = manager.downgrade();
        self.register(label.into(), move |families, label| {
            let (Some(stats), Some(tiers)) = (weak.stats(), weak.tiers()) else { return false };
            crate::tiers::manager(families, &labels("manager", label), &stats, &tiers);
            true
        })
    }

    /// Removes the source with a label; false if there is none. A scrape in progress may still report it.
    pub fn remove(&self, label: &str) -> bool {
        let mut sources = self.sources();
        let found = sources.iter().position(|source| source.label == label);
        let removed = found.map(|at| sources.remove(at));
        // A source's destructor may use these metrics: it runs without the lock.
        drop(sources);
        removed.is_some()
    }

    /// All metrics as [OpenMetrics](https://openmetrics.io) text.
    pub fn open_metrics(&self) -> String {
        let mut out = String::new();
        // Writing to a string never fails; a registry without its end would be refused by any reader.
        text::encode(&mut out, &self.registry()).map_or_else(|_| String::new(), |()| out)
    }

    /// All metrics in the older text format of Prometheus, 0.0.4, which more programs read.
    pub fn prometheus_text(&self) -> String {
        let mut out = String::new();
        prometheus_text::encode(&mut out, &self.registry()).map_or_else(|_| String::new(), |()| out)
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        registry
    }

    fn sources(&self) -> MutexGuard<'_, Vec<RegisteredSource>> {
        self.inner.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(
        &self,
        label: String,
        collect: impl Fn(&mut Families, &str) -> bool + Send + Sync + 'static,
    ) -> Result<(), MetricsError> {
        if label.is_empty() {
            return Err(MetricsError::EmptyLabel);
        }
        let in_use = |sources: &[RegisteredSource]| sources.iter().any(|source| source.label == label);
        if in_use(&self.sources()) {
            // The source that has the label may be gone, which only reading it tells.
            drop(self.collect());
        }
        let mut sources = self.sources();
        if in_use(&sources) {
            return Err(MetricsError::LabelInUse(label));
        }
        sources.push(RegisteredSource { label, collect: Arc::new(collect) });
        Ok(())
    }

    /// Reads all sources, and removes those that were dropped.
    fn collect(&self) -> Families {
        let sources: Vec<_> =
            self.sources().iter().map(|source| (source.label.clone(), Arc::clone(&source.collect))).collect();
        let (mut families, mut gone) = (Families::default(), Vec::new());
        for (label, collect) in sources {
            let (mut own, mut there) = (Families::default(), None);
            catch_panic(|| there = Some(collect(&mut own, &label)));
            match there {
                Some(true) => families.append(own),
                Some(false) => gone.push(collect),
                None => _ = self.inner.panics.fetch_add(1, Ordering::Relaxed),
            }
        }
        // The address tells a source from a later one with the same label. `retain` drops nothing: `gone` holds a reference.
        self.sources().retain(|source| !gone.iter().any(|gone| Arc::ptr_eq(gone, &source.collect)));
        let panics =
            MetricDescription::counter("terrace_metrics_source_panics", "Sources that panicked when they were read.");
        families.add(panics, &Labels::new(), self.inner.panics.load(Ordering::Relaxed));
        families
    }
}

fn labels(name: &'static str, value: &str) -> Labels {
    vec![(name, value.into())]
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.collect().encode(&mut encoder)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.sources().iter().map(|source| source.label.clone()).collect();
        f.debug_struct("Metrics").field("sources", &labels).finish_non_exhaustive()
    }
}
