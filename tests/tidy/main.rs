//! House rules that the compiler does not know. Each failure says where and what to do.
// clippy.toml allows it in test functions; this, in the functions that they share.
#![allow(clippy::unwrap_used)]

mod cases;
mod dependencies;
mod docs;
mod names;
mod rust;
mod shape;
mod text;
mod tree;
mod walls;
