//! A subscriber that keeps spans and events, for tests of what is traced.
//!
//! Promises upward: [`Traced`] has every span and event as a name and fields; fields that are recorded later are added to
//! their span.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

/// A span or an event: its name or message, and its fields as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRecord {
    /// The name of a span; the message of an event.
    pub name: String,
    /// The module that it comes from.
    pub target: String,
    /// The other fields.
    pub fields: BTreeMap<String, String>,
    /// The id of a span.
    id: Option<u64>,
}

impl TraceRecord {
    /// The text of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |text| text)
    }
}

impl Visit for TraceRecord {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.name = text,
            name => _ = self.fields.insert(name.into(), text),
        }
    }
}

/// All that was traced. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Traced(Arc<Mutex<Vec<TraceRecord>>>);

impl Traced {
    /// A subscriber that adds to this.
    pub fn subscriber(&self) -> impl Subscriber + Send + Sync + 'static {
        Registry::default().with(self.clone())
    }

    /// What was traced so far under a name.
    pub fn named(&self, name: &str) -> Vec<TraceRecord> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|record| record.name == name).cloned().collect()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<TraceRecord>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<S: Subscriber> Layer<S> for Traced {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let (name, target) = (attributes.metadata().name().into(), attributes.metadata().target().into());
        let mut record = TraceRecord { name, target, id: Some(id.into_u64()), ..TraceRecord::default() };
        attributes.record(&mut record);
        self.change(|all| all.push(record));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let id = Some(id.into_u64());
        // Ids are used again: the last span with it is the one.
        self.change(|all| {
            all.iter_mut().rev().find(|record| record.id == id).into_iter().for_each(|it| values.record(it))
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut record = TraceRecord { target: event.metadata().target().into(), ..TraceRecord::default() };
        event.record(&mut record);
        self.change(|all| all.push(record));
    }
}
