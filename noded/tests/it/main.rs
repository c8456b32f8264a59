//! The node daemon from outside: as a process of its own, by its unix socket.

mod calls;
mod images;
mod process;
mod program;
