//! The generic laws: every operation's examples, driven through the engine over a model of the nodes.

mod cancel;
mod drive;
mod ended;
mod kill;
mod laws;
mod queue;
mod restart;
mod undone;
mod world;
