//! The generic laws: every operation's examples, driven through the engine over a model of the nodes.

mod cancel;
mod drive;
mod ended;
mod ending;
mod follow_up;
mod kill;
mod laws;
mod pairs;
mod queue;
mod relied;
mod restart;
mod undone;
mod world;
