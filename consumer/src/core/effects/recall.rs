//! What becomes of effects that are not begun when an operator pauses their topic.

use super::{Action, Core, Item, Leased, give_back, take_out};

impl<M> Core<M> {
    /// Whether the item is ours, and an operator has paused its topic.
    pub(super) fn is_halted(&self, item: &Item<M>) -> bool {
        self.halted.contains(item.partition) && self.goes_on(item)
    }

    /// Puts an undecided item of a halted partition back into its buffer. Nothing waits behind it any more; a message that
    /// was held is still in the database.
    pub(super) fn shelve(&mut self, item: Item<M>) {
        let key = self.place(&item).key;
        if let Some(effects) = &mut self.effects {
            effects.free(key);
        }
        self.put_back(vec![item]);
    }

    /// Puts everything that is not begun back into the buffers of partitions that are halted; leases that were taken ahead
    /// are given back.
    pub(in crate::core) fn recall(&mut self, actions: &mut Vec<Action<M>>) {
        let redo = self.recall_redo();
        let Some(effects) = &mut self.effects else { return self.put_back(redo) };
        let halted = &self.halted;
        let of = |it: &Item<M>| halted.contains(it.partition);
        // First what waits behind others: what is freed below must not bring it back.
        let mut waiting = Vec::new();
        for queue in effects.busy.values_mut() {
            waiting.extend(take_out(queue, of));
        }
        let ready = take_out(&mut effects.ready, of);
        let later: Vec<Item<M>> = effects.later.extract_if(.., |it| of(&it.1)).map(|it| it.1).collect();
        let ahead = Vec::from(take_out(&mut effects.ahead, |it: &Leased<M>| of(&it.item)));
        self.put_back(waiting);
        let fences = ahead.iter().map(|it| it.fence).collect();
        let leased = ahead.into_iter().map(|it| it.item);
        let all: Vec<Item<M>> = redo.into_iter().chain(ready).chain(later).chain(leased).collect();
        all.into_iter().for_each(|it| self.shelve(it));
        give_back(fences, actions);
    }
}
