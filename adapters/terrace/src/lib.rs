//! Contract suite (being written).
