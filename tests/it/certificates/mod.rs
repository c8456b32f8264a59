//! Certificates, roles, tokens and sockets at the doors of real daemons: who is refused, by whom and in which words.

mod anonymous;
mod contexts;
mod doors;
mod enrolment;
mod kinds;
mod methods;
mod office;
mod remote;
mod renewal;
mod sockets;
mod withdrawn;
