//! Which loopback network a cluster uses: the first one that nobody holds.
//!
//! The lock is a listening socket in the abstract namespace, named after the network. Such a name belongs to one network
//! namespace, as the loopback addresses themselves do, and goes away with the last process that has the socket open; no file
//! is left behind and no stale lock can exist.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::error::DevclusterError;

/// A network that is ours as long as the listener is open somewhere.
#[derive(Debug)]
pub(super) struct Claim {
    /// First three numbers, for example `127.64.1`.
    pub(super) net: String,
    pub(super) lock: UnixListener,
}

/// Second numbers to try; far away from 127.0, where everything else lives.
const SECOND: std::ops::RangeInclusive<u8> = 64..=95;
const THIRD: std::ops::RangeInclusive<u8> = 0..=255;
/// A master's and a node's port: no stranger may listen there.
const PORTS: [u16; 2] = [1810, 1811];

/// Takes the first free network.
pub(super) fn claim() -> Result<Claim, DevclusterError> {
    let mut tried = 0;
    for second in SECOND {
        for third in THIRD {
            tried += 1;
            let net = format!("127.{second}.{third}");
            if let Some(lock) = claim_one(&net) {
                return Ok(Claim { net, lock });
            }
        }
    }
    Err(DevclusterError::NoAddresses(tried))
}

fn claim_one(net: &str) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("muster-devcluster/{net}")).ok()?;
    let lock = UnixListener::bind_addr(&name).ok()?;
    let free = PORTS.iter().all(|port| TcpListener::bind(format!("{net}.1:{port}")).is_ok());
    free.then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_share_a_network() {
        let (first, second) = (claim().unwrap(), claim().unwrap());
        assert_ne!(first.net, second.net);
        assert!(claim_one(&first.net).is_none());
    }

    #[test]
    fn a_network_is_free_again_when_its_holder_is_gone() {
        // Outside of the networks that clusters take, so that none can take it in between.
        let net = "127.63.255";
        let lock = claim_one(net).unwrap();
        assert!(claim_one(net).is_none());
        drop(lock);
        assert!(claim_one(net).is_some());
    }
}
