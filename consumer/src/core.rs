//! The decisions, without a clock, a socket or `await`: events in, actions out.
//!
//! [`Core::apply`] takes the time and one event and returns what the runtime must carry out; the result of an action
//! comes back as another event. [`retry::RetryPolicy`] says where a failed message goes, [`verdict::arrival`] what a
//! message meets in the inbox, [`hold`] who waits for whom,
//! [`operator`] what becomes of dead letters. The simulation drives exactly this code.

mod assignment;
mod budget;
mod effects;
mod event;
pub mod hold;
mod known;
mod lane;
pub mod operator;
mod partition;
mod pause;
pub mod retry;
pub mod verdict;
mod work;

pub use assignment::Core;
pub use event::{
    Action, Care, Epoch, Event, Fence, Findings, Item, KeyId, LaneId, Leased, Limits, Offset, Order, Outcome,
    Partition, PauseReason, Performed, Record, Recorded, Timestamp, Verdict,
};
