//! Families of metrics: samples under one name, with its unit, its help and its type, as Prometheus asks.
//!
//! Promises upward: samples of all sources with one name stand together, under one description; names end in their unit, and
//! those of counters in `_total`.
//! Asks from below: the encoder of `prometheus-client`.
//!
//! Invariant: all samples of a family have the same names of labels.

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use std::fmt;

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SampleValue {
    Integer(u64),
    Real(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<usize> for SampleValue {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// What all samples of a name share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricDescription {
    /// Without the unit and without `_total`: the encoder adds both.
    pub name: String,
    pub help: &'static str,
    pub unit: Option<Unit>,
    pub counts: bool,
}

impl MetricDescription {
    /// A number that rises and falls.
    pub fn gauge(name: impl Into<String>, help: &'static str) -> Self {
        Self { name: name.into(), help, unit: None, counts: false }
    }

    /// A number that only rises.
    pub fn counter(name: impl Into<String>, help: &'static str) -> Self {
        Self { counts: true, ..Self::gauge(name, help) }
    }

    pub fn bytes(self) -> Self {
        Self { unit: Some(Unit::Bytes), ..self }
    }

    pub fn seconds(self) -> Self {
        Self { unit: Some(Unit::Seconds), ..self }
    }
}

/// Names of labels and their values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// All samples of one scrape.
#[derive(Debug, Default)]
pub(crate) struct Families(Vec<(MetricDescription, Vec<(Labels, SampleValue)>)>);

impl Families {
    /// Adds a sample.
    pub fn add(&mut self, description: MetricDescription, labels: &Labels, value: impl Into<SampleValue>) {
        self.extend(description, vec![(labels.clone(), value.into())]);
    }

    /// Adds all samples of another scrape behind those of the same names.
    pub fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|(description, samples)| self.extend(description, samples));
    }

    /// Finds the family by its name: there are about a hundred.
    fn extend(&mut self, description: MetricDescription, mut samples: Vec<(Labels, SampleValue)>) {
        match self.0.iter_mut().find(|(other, _)| other.name == description.name) {
            Some((_, present)) => present.append(&mut samples),
            None => self.0.push((description, samples)),
        }
    }

    /// Writes all families.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (MetricDescription { name, help, unit, counts }, samples) in &self.0 {
            let kind = if *counts { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for (labels, value) in samples {
                let mut sample = family.encode_family(labels)?;
                let exemplar = None::<&Exemplar<NoLabelSet, f64>>;
                match (counts, value) {
                    (true, SampleValue::Integer(value)) => sample.encode_counter(value, exemplar)?,
                    (true, SampleValue::Real(value)) => sample.encode_counter(value, exemplar)?,
                    (false, SampleValue::Integer(value)) => sample.encode_gauge(value)?,
                    (false, SampleValue::Real(value)) => sample.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}
