//! The node traffic against real sockets: a node's services in this process, and a proxy that can cut and freeze.

mod background;
mod console;
mod copying;
mod fixture;
mod greeting;
mod hooks;
mod proxy;
mod server;
mod silence;
mod tls;
