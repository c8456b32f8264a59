//! How a hook script calls back: the job that it belongs to, and who is master by the facts of its node.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use muster_core::names::NodeName;

use crate::{args::job_number, exit::Failure};

/// Names the job that a script belongs to; the node daemon sets it.
const JOB_ID: &str = "GANETI_JOB_ID";
/// Names the node's directory of facts; the node daemon sets it.
const DATA_DIR: &str = "GANETI_DATA_DIR";
/// Where a node daemon keeps the facts unless it is told otherwise.
const DATA_DIR_DEFAULT: &str = "/var/lib/muster/data";
/// The master's socket among the facts: a link, which points nowhere on a node that is not the master.
const SOCKET: &str = "master_socket";
/// The master's socket where nothing else is said.
const SOCKET_DEFAULT: &str = "/run/muster/master.sock";
/// The fact that names the master.
const MASTER_NODE: &str = "ssconf_master_node";
/// More than any name has: what is longer is no name.
const FACT_BYTES_MAX: u64 = 1024;

/// The job whose script this command was called by.
///
/// # Errors
/// A value that is no job's number: a script that changed it would wait for its own job unnoticed.
pub(crate) fn parent_job() -> Result<Option<u64>, Failure> {
    parent_job_in(std::env::var_os(JOB_ID))
}

fn parent_job_in(value: Option<OsString>) -> Result<Option<u64>, Failure> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let number =
        value.to_str().ok_or_else(|| "a job is a whole number from 1".to_owned()).and_then(job_number);
    number.map(Some).map_err(|why| {
        Failure::Usage(format!(
            "{JOB_ID} is {value:?}: {why}; it names the job whose script this is, unset it elsewhere"
        ))
    })
}

/// Where the master on this host is, if there is one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LocalMaster {
    /// Its socket; it may be missing.
    pub(crate) socket: PathBuf,
    /// The facts that tell who is master where there is no socket; none where the socket was named outright.
    pub(crate) facts: Option<PathBuf>,
}

impl LocalMaster {
    /// By the environment, and by what is there. A node's link to its own master socket decides also where it points
    /// nowhere: another socket would be another cluster's.
    pub(crate) fn find(env: impl Fn(&str) -> Option<OsString>) -> LocalMaster {
        if let Some(socket) = env("MUSTER_SOCKET") {
            return LocalMaster { socket: socket.into(), facts: None };
        }
        let given = env(DATA_DIR).map(PathBuf::from);
        let link = given.as_ref().map(|facts| facts.join(SOCKET));
        let socket = link.filter(|link| link.symlink_metadata().is_ok());
        LocalMaster {
            socket: socket.unwrap_or_else(|| SOCKET_DEFAULT.into()),
            facts: Some(given.unwrap_or_else(|| DATA_DIR_DEFAULT.into())),
        }
    }

    /// Whether a master may listen here.
    pub(crate) fn has_socket(&self) -> bool {
        // What can't be looked at is left to the connection, whose error says why.
        self.socket.try_exists().unwrap_or(true)
    }

    /// The master's name by the node's facts.
    pub(crate) fn master_by_facts(&self) -> Option<String> {
        let path = self.facts.as_deref()?.join(MASTER_NODE);
        let text = read_fact(&path)?;
        NodeName::parse(text.trim_end()).map(String::from).ok()
    }

    /// Why nothing can be asked on this host.
    pub(crate) fn no_socket(&self) -> Failure {
        let socket = self.socket.display();
        Failure::Unreachable(match (self.master_by_facts(), &self.facts) {
            (Some(master), _) => format!(
                "this host is not the master: {master} is; run the command there, or use --master HOST:PORT with a client \
                 certificate"
            ),
            (None, Some(facts)) => format!(
                "the master can't be reached: there is no socket {socket}, and {} names no master (MUSTER_SOCKET names its \
                 socket; on another host use --master)",
                facts.join(MASTER_NODE).display()
            ),
            (None, None) => format!(
                "the master can't be reached: MUSTER_SOCKET names {socket}, which does not exist (on another host use --master)"
            ),
        })
    }
}

fn read_fact(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FACT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::ffi::OsStringExt, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn the_scripts_job_is_a_number_or_an_error() {
        let read = |text: &str| parent_job_in(Some(text.into()));
        assert_eq!(parent_job_in(None).unwrap(), None);
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("17").unwrap(), Some(17));
        for wrong in ["x", "0", "-1", "+1", "1 ", "99999999999999999999"] {
            let failure = read(wrong).unwrap_err();
            assert_eq!(failure.code(), 2);
            let text = failure.to_string();
            assert!(text.contains(JOB_ID) && text.contains(&format!("{wrong:?}")), "{text}");
        }
        assert_eq!(parent_job_in(Some(OsString::from_vec(vec![0xe9]))).unwrap_err().code(), 2);
    }

    fn find(env: &[(&str, &str)]) -> LocalMaster {
        LocalMaster::find(|name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_socket_is_found_by_environment() {
        let named = LocalMaster { socket: "/s".into(), facts: None };
        assert_eq!(find(&[("GANETI_DATA_DIR", "/d"), ("MUSTER_SOCKET", "/s")]), named);
        assert_eq!((named.has_socket(), named.master_by_facts()), (false, None));
        assert!(named.no_socket().to_string().contains("MUSTER_SOCKET names /s"));
        let default =
            |facts: &str| LocalMaster { socket: "/run/muster/master.sock".into(), facts: Some(facts.into()) };
        assert_eq!(find(&[]), default("/var/lib/muster/data"));
        assert_eq!(find(&[("GANETI_DATA_DIR", "/nowhere")]), default("/nowhere"));
    }

    #[test]
    fn a_link_that_points_nowhere_is_no_socket_and_the_facts_name_the_master() {
        let folder = std::env::temp_dir().join(format!("gnt-test-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let link = folder.join("master_socket");
        symlink(folder.join("run.sock"), &link).unwrap();
        let local = find(&[("GANETI_DATA_DIR", folder.to_str().unwrap())]);
        assert_eq!((&local.socket, local.has_socket()), (&link, false));
        assert_eq!(local.master_by_facts(), None);
        assert!(local.no_socket().to_string().contains("ssconf_master_node names no master"));
        for (text, name) in [("node1\n", Some("node1")), ("", None), ("No Name\n", None)] {
            fs::write(folder.join("ssconf_master_node"), text).unwrap();
            assert_eq!(local.master_by_facts().as_deref(), name, "{text:?}");
        }
        fs::write(folder.join("ssconf_master_node"), "node1\n").unwrap();
        let failure = local.no_socket();
        assert_eq!(failure.code(), 3);
        assert!(failure.to_string().contains("not the master: node1 is"), "{failure}");
        fs::write(folder.join("run.sock"), "").unwrap();
        assert!(local.has_socket());
        fs::remove_dir_all(&folder).unwrap();
    }
}
