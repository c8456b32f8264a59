//! The connection to the master: where it is, and calls with a limit.

use std::{error::Error, ffi::OsString, future::Future, net::SocketAddr, path::PathBuf, time::Duration};

use muster_proto::{
    transport::{CONNECT_LIMIT, ClientTls, Expect, TlsState, connect_tls, connect_unix},
    v1::{
        backup_service_client::BackupServiceClient, command_service_client::CommandServiceClient,
        hook_runs_service_client::HookRunsServiceClient, hook_set_service_client::HookSetServiceClient,
        job_service_client::JobServiceClient, operation_service_client::OperationServiceClient,
        query_service_client::QueryServiceClient, token_service_client::TokenServiceClient,
    },
};
use tokio::time::timeout;
use tonic::{Response, Status, transport::Channel};

use crate::{args::ConnectionFlags, callback::LocalMaster, exit::Failure};

/// Limit of one call; following a job has none, pings watch over it.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Largest answer: a listing of the largest cluster and a full job queue fit in.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where the master is.
#[derive(Debug, PartialEq, Eq)]
enum Endpoint {
    Unix(LocalMaster),
    Tls { address: String, cert: PathBuf, key: PathBuf, ca: PathBuf },
}

/// Reads flags and environment; flags win, and a remote master wins over a socket.
fn endpoint(flags: &ConnectionFlags, env: impl Fn(&str) -> Option<OsString>) -> Result<Endpoint, Failure> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    let address = match (&flags.master, env("MUSTER_MASTER")) {
        (Some(address), _) => Some(address.clone()),
        (None, Some(address)) => Some(address.into_string().map_err(|address| {
            Failure::Usage(format!("MUSTER_MASTER is not UTF-8 text: {}", address.display()))
        })?),
        (None, None) => None,
    };
    let Some(address) = address else {
        if flags.cert.is_some() || flags.key.is_some() || flags.ca.is_some() {
            return Err(Failure::Usage("--cert, --key and --ca go with --master HOST:PORT".to_owned()));
        }
        return Ok(Endpoint::Unix(LocalMaster::find(env)));
    };
    let file = |flag: &Option<PathBuf>, name: &str, variable: &str| {
        flag.clone().or_else(|| env(variable).map(PathBuf::from)).ok_or_else(|| {
            Failure::Usage(format!("a master elsewhere needs {name} FILE (or {variable}) as well"))
        })
    };
    Ok(Endpoint::Tls {
        cert: file(&flags.cert, "--cert", "MUSTER_CERT")?,
        key: file(&flags.key, "--key", "MUSTER_KEY")?,
        ca: file(&flags.ca, "--ca", "MUSTER_CA")?,
        address,
    })
}

/// The master's name by the facts of this host's node, where its own socket is what would be asked.
pub(crate) fn master_by_facts(flags: &ConnectionFlags) -> Option<String> {
    match endpoint(flags, |name| std::env::var_os(name)) {
        Ok(Endpoint::Unix(local)) => local.master_by_facts(),
        Ok(Endpoint::Tls { .. }) | Err(_) => None,
    }
}

/// A failure to reach the master on this host also names the master, where the node's facts do: it may be elsewhere.
pub(crate) fn naming_the_master(failure: Failure, flags: &ConnectionFlags) -> Failure {
    let Failure::Unreachable(why) = failure else { return failure };
    match master_by_facts(flags).filter(|master| !why.contains(master.as_str())) {
        Some(master) => {
            Failure::Unreachable(format!("{why}; by the facts of this host's node the master is {master}"))
        }
        None => Failure::Unreachable(why),
    }
}

/// A connection to the master. Made anew by itself when it is lost and another call is made.
#[derive(Clone)]
pub(crate) struct Master {
    channel: Channel,
}

impl Master {
    /// Connects, within 3 s.
    pub(crate) async fn connect(flags: &ConnectionFlags) -> Result<Self, Failure> {
        let channel = match endpoint(flags, |name| std::env::var_os(name))? {
            Endpoint::Unix(local) if !local.has_socket() => return Err(local.no_socket()),
            Endpoint::Unix(local) => connect_unix(&local.socket).await.map_err(|error| {
                Failure::Unreachable(format!(
                    "the master can't be reached: {error} (MUSTER_SOCKET names its socket; on another host use --master)"
                ))
            })?,
            Endpoint::Tls { address, cert, key, ca } => {
                let own = TlsState::load(&ca, &cert, &key)
                    .map_err(|error| Failure::Usage(format!("the certificate can't be used: {}", chain(&error))))?;
                let tls = ClientTls::new(&own, Expect::Master { cluster: own.identity().cluster });
                let address = resolve(&address).await?;
                connect_tls(address, &tls)
                    .await
                    .map_err(|error| Failure::Unreachable(format!("the master can't be reached: {error}")))?
            }
        };
        Ok(Master { channel })
    }

    /// Submits operations.
    pub(crate) fn operations(&self) -> OperationServiceClient<Channel> {
        OperationServiceClient::new(self.channel.clone())
    }

    /// Asks about jobs.
    pub(crate) fn jobs(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Asks about the cluster.
    pub(crate) fn queries(&self) -> QueryServiceClient<Channel> {
        QueryServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Runs commands on nodes and copies files to them.
    pub(crate) fn commands(&self) -> CommandServiceClient<Channel> {
        CommandServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Asks what hook scripts did, and has one run again.
    pub(crate) fn hook_runs(&self) -> HookRunsServiceClient<Channel> {
        HookRunsServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Brings the cluster's own hook set to the nodes.
    pub(crate) fn hook_sets(&self) -> HookSetServiceClient<Channel> {
        HookSetServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Copies the store.
    pub(crate) fn backups(&self) -> BackupServiceClient<Channel> {
        BackupServiceClient::new(self.channel.clone())
    }

    /// Makes tokens, asks for pending hosts.
    pub(crate) fn tokens(&self) -> TokenServiceClient<Channel> {
        TokenServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

/// Waits for the answer of one call, within the limit.
pub(crate) async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match timeout(CALL_LIMIT, call).await {
        Ok(answered) => answered.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!("the limit is {} s", CALL_LIMIT.as_secs()))),
    }
}

/// An address with a port; a host's name is looked up here, on the client's side, and nowhere else.
async fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let host_and_port =
        address.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if host_and_port.is_none() {
        return Err(Failure::Usage(format!("{address:?} is not HOST:PORT, for example 192.0.2.1:1810")));
    }
    match timeout(CONNECT_LIMIT, tokio::net::lookup_host(address)).await {
        Ok(Ok(mut found)) => {
            found.next().ok_or_else(|| Failure::Unreachable(format!("{address} has no address")))
        }
        Ok(Err(error)) => Err(Failure::Unreachable(format!("{address} can't be looked up: {error}"))),
        Err(_) => Err(Failure::Unreachable(format!("{address} could not be looked up in time"))),
    }
}

/// An error with its causes: `a: b: c`.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &ConnectionFlags, env: &[(&str, &str)]) -> Result<Endpoint, String> {
        endpoint(flags, |name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
            .map_err(|failure| {
                assert_eq!(failure.code(), 2);
                failure.to_string()
            })
    }

    #[test]
    fn empty_variables_count_as_none() {
        let none = ConnectionFlags::default();
        let found = check(&none, &[("MUSTER_SOCKET", ""), ("MUSTER_MASTER", ""), ("GANETI_DATA_DIR", "")]);
        assert_eq!(found, check(&none, &[]));
        assert!(matches!(found, Ok(Endpoint::Unix(_))));
    }

    #[test]
    fn a_remote_master_needs_its_files_and_wins() {
        let tls = |address: &str, cert: &str| Endpoint::Tls {
            address: address.to_owned(),
            cert: cert.into(),
            key: "k".into(),
            ca: "a".into(),
        };
        let files = [("MUSTER_CERT", "c"), ("MUSTER_KEY", "k"), ("MUSTER_CA", "a"), ("MUSTER_SOCKET", "/s")];
        let mut env = files.to_vec();
        env.push(("MUSTER_MASTER", "h:1"));
        assert_eq!(check(&ConnectionFlags::default(), &env), Ok(tls("h:1", "c")));
        let flags = ConnectionFlags {
            master: Some("f:2".to_owned()),
            cert: Some("mine".into()),
            ..ConnectionFlags::default()
        };
        assert_eq!(check(&flags, &env), Ok(tls("f:2", "mine")));
        assert!(check(&flags, &[("MUSTER_KEY", "k")]).unwrap_err().contains("--ca FILE (or MUSTER_CA)"));
        let flags = ConnectionFlags { cert: Some("mine".into()), ..ConnectionFlags::default() };
        assert!(check(&flags, &[]).unwrap_err().contains("--master"));
    }

    #[tokio::test]
    async fn addresses_need_a_port() {
        assert_eq!(resolve("127.0.0.1:1810").await.unwrap(), "127.0.0.1:1810".parse().unwrap());
        for wrong in ["node1", "127.0.0.1", ":1810", "node1:x", "node1:70000", ""] {
            assert_eq!(resolve(wrong).await.unwrap_err().code(), 2, "{wrong}");
        }
    }

    #[tokio::test]
    async fn no_master_is_exit_code_3_and_names_the_socket() {
        let folder = std::env::temp_dir().join(format!("gnt-test-{}", uuid::Uuid::new_v4()));
        let failure = connect_unix(&folder.join("none.sock")).await.unwrap_err();
        assert!(failure.to_string().contains("none.sock"), "{failure}");
        let flags = ConnectionFlags {
            master: Some("127.0.0.1:9".to_owned()),
            cert: Some(folder.join("c")),
            key: Some(folder.join("k")),
            ca: Some(folder.join("a")),
        };
        let Err(failure) = Master::connect(&flags).await else { panic!("no such files") };
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains(&folder.join("a").display().to_string()), "{failure}");
    }
}
