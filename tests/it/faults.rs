//! Kinds of fault that others had in public: `tests/README.md` says which test stands for which.

mod bench;
mod offsets;
mod rebalances;
