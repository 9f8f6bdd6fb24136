//! Fields of a JSON object, each with an error that names it.

use crate::error::EstimateError;
use crate::model::Activation;
use serde_json::{Map, Value};

/// The fields of one object.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    file: &'a str,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The fields of a value, which must be an object.
    pub fn new(file: &'a str, value: &'a Value) -> Result<Self, EstimateError> {
        let fields = value.as_object().ok_or_else(|| EstimateError::new(file, "JSON", "give an object, {...}"))?;
        Ok(Self { file, fields })
    }

    /// The error of a field: what it is, and what is allowed.
    pub fn error(&self, field: &str, allowed: &str) -> EstimateError {
        let value = self.fields.get(field).map_or_else(|| "nothing".into(), Value::to_string);
        let shown: String = value.chars().take(60).collect();
        EstimateError::new(self.file, field, format!("`{shown}` {allowed}"))
    }

    /// The value of a field; `null` is none.
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// A whole number that is not negative.
    pub fn number(&self, field: &str) -> Result<Option<u64>, EstimateError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_u64().map(Some).ok_or_else(|| self.error(field, "is no whole number from 0 on"))
    }

    /// The first of several fields that is there.
    pub fn first(&self, fields: &[&str]) -> Result<Option<u64>, EstimateError> {
        for field in fields {
            if let Some(number) = self.number(field)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// A number that must be there.
    pub fn needed(&self, field: &str) -> Result<u64, EstimateError> {
        self.number(field)?.ok_or_else(|| EstimateError::new(self.file, field, "is missing"))
    }

    /// A text.
    pub fn text(&self, field: &str) -> Result<Option<&'a str>, EstimateError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.error(field, "is no text"))
    }

    /// `true` or `false`.
    pub fn switch(&self, field: &str) -> Result<Option<bool>, EstimateError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.error(field, "is neither true nor false"))
    }

    /// A number that may be a fraction.
    pub fn fraction(&self, field: &str) -> Result<Option<f64>, EstimateError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.error(field, "is no number"))
    }

    /// The texts of a list, or none.
    pub fn texts(&self, field: &str) -> impl Iterator<Item = &'a str> {
        self.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// The activation function that a field names.
    pub fn activation(&self, field: &str, usual: Activation) -> Result<Activation, EstimateError> {
        Ok(match self.text(field)? {
            None => usual,
            Some("relu") => Activation::Result,
            Some("gelu_new" | "gelu_fast" | "relu2") => Activation::Steps,
            Some(_) => Activation::Input,
        })
    }

    /// The width of one of `heads` heads that together are `hidden` wide.
    pub fn split(&self, hidden: u64, heads: u64, field: &str) -> Result<u64, EstimateError> {
        match hidden.checked_rem(heads) {
            Some(0) => Ok(hidden / heads),
            _ => Err(self.error(field, &format!("heads do not divide a hidden size of {hidden}"))),
        }
    }
}
