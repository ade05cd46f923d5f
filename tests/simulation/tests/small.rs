//! The promises hold in every state of the small worlds.

use sekali_simulation::{SMALL_WORLDS, SmallWorld, explore_all};

/// The larger ones are for `make sim`.
#[test]
#[allow(clippy::print_stdout)]
fn every_state_of_a_small_world_keeps_the_promises_and_leads_to_rest() {
    let worlds: Vec<&SmallWorld> = SMALL_WORLDS.iter().filter(|it| it.quick).collect();
    let (mut states, mut transitions) = (0, 0);
    for (world, explored) in explore_all(&worlds, false) {
        let explored = explored.unwrap_or_else(|counterexample| panic!("{counterexample}"));
        // An exploration in which nothing happens proves nothing.
        assert!(explored.is_plausible(world), "{}: {explored:?}", world.name);
        states += explored.states;
        transitions += explored.transitions;
    }
    println!("{} small worlds: {states} states, {transitions} transitions", worlds.len());
    assert!(15 < worlds.len() && 250_000 < states && 800_000 < transitions, "{states} {transitions}");
}
