//! Kills, restarts, stuck agents and commands at the wrong moment: nothing is lost, and nothing is done twice.

mod crashes;
mod interleavings;
mod random_kills;
mod restarts;
mod supervision;
