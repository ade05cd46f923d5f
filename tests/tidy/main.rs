//! House rules that the compiler does not know. Each failure says where and what to do.

mod dependencies;
mod names;
mod rust;
mod shape;
mod text;
mod tree;
mod walls;
