//! The node daemon from outside: as a process of its own, by its unix socket.

mod calls;
mod data_certificates;
mod guests;
mod hosts;
mod images;
mod mirror_ends;
mod mirrors;
mod moves;
mod oses;
mod process;
mod program;
mod qemu;
