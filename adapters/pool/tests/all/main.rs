//! Pools of objects and arrays, as programs use them.

mod arrays;
mod objects;
mod refusals;
mod threads;
mod upkeep;
mod waiting;
