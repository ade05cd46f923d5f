//! What a process hears from the database, with the rest of its housekeeping.

use sekali_consumer::core::Event;

use super::Process;
use crate::world::World;

impl Process {
    /// What an operator has paused, as the database says now.
    pub(crate) fn hear(&mut self, world: &mut World) {
        self.halted = world.tables.paused;
        self.apply(world, Event::Paused(world.paused_topics()));
    }

    /// Whether it knows what an operator has paused.
    pub(crate) fn has_heard(&self, world: &World) -> bool {
        self.halted == world.tables.paused
    }

    /// The regular look of housekeeping.
    pub(crate) fn look_for_ready(&mut self, world: &mut World) {
        if world.tables.holds.values().any(|it| it.ready) {
            self.apply(world, Event::HoldsReady);
        }
    }
}
