//! The node daemon from outside: as a process of its own, by its unix socket.

mod calls;
mod guests;
mod images;
mod oses;
mod process;
mod program;
mod qemu;
