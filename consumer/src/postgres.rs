//! SQL of the hot path: claims, decisions, positions.

pub(crate) mod attempt;
pub(crate) mod claim;
pub(crate) mod dead_letter;
pub(crate) mod decision;
pub(crate) mod expectation;
pub(crate) mod hold;
pub(crate) mod inbox;
pub(crate) mod lease;
pub(crate) mod progress;
pub(crate) mod route;
