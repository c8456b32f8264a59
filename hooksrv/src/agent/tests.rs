//! A whole daemon in this process: its socket, its port, real scripts, a CA and an enrolment service beside it.

mod daemon;
mod enrol;
mod freeze;
mod hooks;
mod hookset;
mod membership;
