//! The plain-text copies of cluster facts for scripts (`GANETI_DATA_DIR`), and the accepted client certificates.
//!
//! Each file is replaced by rename, so that a script reads the old or the new text, never half of one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use muster_core::{
    hooks::{HOOKS_VERSION_FILE, HooksVersion},
    names::{ClusterName, InstanceName, NodeName},
};
use muster_proto::{
    convert::hooks::version_from_wire,
    transport::{ClientRole, FileError, Fingerprint, MODE_PRIVATE, MODE_PUBLIC, write_whole},
    v1,
};
use serde::{Deserialize, Serialize};
use tonic::Status;

use super::files;

/// Scripts of any user may read the facts.
const DATA_DIR_MODE: u32 = 0o755;
/// The name of the link to the master's socket.
const MASTER_SOCKET: &str = "master_socket";
/// The names of all files of facts.
const FILES: [&str; 7] = [
    "ssconf_cluster_name",
    "ssconf_master_node",
    "ssconf_node_list",
    "ssconf_node_primary_ips",
    "ssconf_node_secondary_ips",
    "ssconf_instance_list",
    HOOKS_VERSION_FILE,
];

/// Facts that were checked: every text is one line's part and no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    serial: u64,
    cluster_name: ClusterName,
    master_node: NodeName,
    nodes: Vec<(NodeName, IpAddr, IpAddr)>,
    instances: Vec<InstanceName>,
    clients: BTreeMap<Fingerprint, ClientRole>,
    /// A master of old does not say it.
    hooks_version: Option<HooksVersion>,
}

fn wrong(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("facts: {error}"))
}

impl Facts {
    /// Checks facts from the wire.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when a part is not what it must be.
    pub fn parse(wire: Option<v1::Facts>) -> Result<Self, Status> {
        let wire = wire.ok_or_else(|| wrong("they are missing"))?;
        let node = |node: &v1::NodeFact| {
            let ip =
                |text: &str| text.parse::<IpAddr>().map_err(|_| wrong(format!("{text:?} is no address")));
            let name = NodeName::parse(&node.name).map_err(wrong)?;
            Ok::<_, Status>((name, ip(&node.primary_ip)?, ip(&node.secondary_ip)?))
        };
        let client = |client: &v1::AcceptedClient| {
            let fingerprint: Fingerprint = client.fingerprint.parse().map_err(wrong)?;
            let role: ClientRole = client.role.parse().map_err(wrong)?;
            Ok::<_, Status>((fingerprint, role))
        };
        Ok(Facts {
            serial: wire.serial,
            cluster_name: ClusterName::parse(&wire.cluster_name).map_err(wrong)?,
            master_node: NodeName::parse(&wire.master_node).map_err(wrong)?,
            nodes: wire.nodes.iter().map(node).collect::<Result<_, _>>()?,
            instances: wire
                .instances
                .iter()
                .map(|name| InstanceName::parse(name).map_err(wrong))
                .collect::<Result<_, _>>()?,
            clients: wire.clients.iter().map(client).collect::<Result<_, _>>()?,
            hooks_version: wire.hooks_version.and_then(version_from_wire),
        })
    }

    /// The files' content, in the order of [`FILES`].
    fn texts(&self) -> [String; 7] {
        let lines = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect::<String>();
        let ips = |which: fn(&(NodeName, IpAddr, IpAddr)) -> IpAddr| {
            lines(self.nodes.iter().map(|node| format!("{} {}", node.0, which(node))).collect())
        };
        [
            lines(vec![self.cluster_name.to_string()]),
            lines(vec![self.master_node.to_string()]),
            lines(self.nodes.iter().map(|node| node.0.to_string()).collect()),
            ips(|node| node.1),
            ips(|node| node.2),
            lines(self.instances.iter().map(ToString::to_string).collect()),
            lines(self.hooks_version.iter().map(ToString::to_string).collect()),
        ]
    }
}

/// What is known of the facts on disk, as `facts.json` keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Of the master that sent them; within an epoch the serial grows.
    epoch: u64,
    serial: u64,
    clients: BTreeMap<Fingerprint, ClientRole>,
    /// The boot in which they were written: the files are not synced, and may be empty after a loss of power.
    #[serde(default)]
    boot: String,
}

/// Names the present boot of this host.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Kept {
    /// What still holds: after another boot the master is to send the facts again.
    fn checked(self) -> Self {
        if self.boot == boot() { self } else { Kept { epoch: 0, serial: 0, ..self } }
    }
}

/// Why facts could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactsError {
    /// A file can't be written.
    #[error(transparent)]
    Write(#[from] FileError),
    /// A file or directory can't be used.
    #[error("could not {doing} {}", .path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The facts on this node.
#[derive(Debug)]
pub struct FactStore {
    data_dir: PathBuf,
    record: PathBuf,
    master_socket: PathBuf,
    /// Held while files are written: two updates at once must not mix.
    writing: Mutex<()>,
    /// What is on disk; locked for copies only, since calls ask for it that must not wait for a disk.
    kept: Mutex<Kept>,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FactsError {
    let path = path.to_owned();
    move |source| FactsError::File { doing, path, source }
}

impl FactStore {
    /// Opens the facts in `data_dir`, which is made where it is missing; `record` keeps what belongs to them.
    ///
    /// # Errors
    /// When the directory can't be made or the record can't be read.
    pub fn open(data_dir: PathBuf, record: PathBuf, master_socket: PathBuf) -> Result<Self, FactsError> {
        files::make_dir(&data_dir, DATA_DIR_MODE).map_err(failed("make", &data_dir))?;
        let kept = match fs::read(&record) {
            // Damage costs nothing: the master sends facts again when it hears that they are old.
            Ok(text) => Kept::checked(serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %record.display(), %error, "the record of facts is damaged; forgotten");
                Kept::default()
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(source) => return Err(failed("read", &record)(source)),
        };
        let kept = match data_dir.join(HOOKS_VERSION_FILE).exists() {
            true => kept,
            // A daemon of before did not keep it: the same facts are to come once more.
            false => Kept { serial: 0, ..kept },
        };
        let store =
            FactStore { data_dir, record, master_socket, writing: Mutex::default(), kept: Mutex::new(kept) };
        store.link_socket()?;
        Ok(store)
    }

    /// The directory, as scripts are told it.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The serial of the facts on disk; 0 where there are none.
    pub fn serial(&self) -> u64 {
        self.kept().serial
    }

    /// The role of a client's certificate, if it is accepted.
    pub fn client(&self, fingerprint: &Fingerprint) -> Option<ClientRole> {
        self.kept().clients.get(fingerprint).copied()
    }

    /// The accepted client certificates.
    pub fn clients(&self) -> BTreeSet<Fingerprint> {
        self.kept().clients.keys().copied().collect()
    }

    /// Replaces the facts, unless newer ones are there; gives the serial of those on disk. Blocks.
    ///
    /// Not synced: a loss of power at worst takes them away, and the master sends them again before any script runs.
    ///
    /// # Errors
    /// When a file can't be written; some may be new then, and the serial stays old, so that they come again.
    pub fn put(&self, epoch: u64, facts: &Facts) -> Result<u64, FactsError> {
        let _writing = self.writing();
        let (kept_epoch, kept_serial) = {
            let kept = self.kept();
            (kept.epoch, kept.serial)
        };
        if (epoch, facts.serial) < (kept_epoch, kept_serial) {
            return Ok(kept_serial);
        }
        files::make_dir(&self.data_dir, DATA_DIR_MODE).map_err(failed("make", &self.data_dir))?;
        for (name, text) in FILES.into_iter().zip(facts.texts()) {
            let path = self.data_dir.join(name);
            if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
                continue;
            }
            write_whole(&path, text.as_bytes(), MODE_PUBLIC)?;
        }
        self.link_socket()?;
        let next = Kept { epoch, serial: facts.serial, clients: facts.clients.clone(), boot: boot() };
        let text = serde_json::to_vec_pretty(&next).expect("plain data has a JSON form");
        write_whole(&self.record, &text, MODE_PRIVATE)?;
        *self.kept() = next;
        Ok(facts.serial)
    }

    /// Deletes all facts; the link to the socket stays. Blocks.
    ///
    /// # Errors
    /// When a file can't be removed.
    pub fn clear(&self) -> Result<(), FactsError> {
        let _writing = self.writing();
        files::remove(&self.record).map_err(failed("remove", &self.record))?;
        *self.kept() = Kept::default();
        for name in FILES {
            let path = self.data_dir.join(name);
            files::remove(&path).map_err(failed("remove", &path))?;
        }
        Ok(())
    }

    fn link_socket(&self) -> Result<(), FactsError> {
        let path = self.data_dir.join(MASTER_SOCKET);
        if fs::read_link(&path).is_ok_and(|target| target == self.master_socket) {
            return Ok(());
        }
        let new = self.data_dir.join(format!("{MASTER_SOCKET}.new"));
        files::remove(&new).map_err(failed("remove", &new))?;
        std::os::unix::fs::symlink(&self.master_socket, &new).map_err(failed("make", &new))?;
        fs::rename(&new, &path).map_err(failed("rename", &new))
    }

    fn writing(&self) -> std::sync::MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

    use super::*;

    fn wire(serial: u64, names: &[&str]) -> v1::Facts {
        let node = |(number, name): (usize, &&str)| v1::NodeFact {
            name: (*name).to_owned(),
            primary_ip: format!("192.0.2.{number}"),
            secondary_ip: format!("198.51.100.{number}"),
        };
        v1::Facts {
            serial,
            cluster_name: "dev.example.org".to_owned(),
            master_node: "node1".to_owned(),
            nodes: names.iter().enumerate().map(node).collect(),
            instances: vec!["db1".to_owned(), "web1".to_owned()],
            clients: vec![v1::AcceptedClient { fingerprint: "ab".repeat(32), role: "reader".to_owned() }],
            hooks_version: Some(2),
        }
    }

    fn facts(serial: u64, names: &[&str]) -> Facts {
        Facts::parse(Some(wire(serial, names))).unwrap()
    }

    struct Bench {
        folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            Bench { folder: tempfile::tempdir().unwrap() }
        }

        fn open(&self) -> FactStore {
            let path = |name: &str| self.folder.path().join(name);
            FactStore::open(path("data"), path("facts.json"), path("master.sock")).unwrap()
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.folder.path().join("data").join(name)).unwrap()
        }
    }

    #[test]
    fn facts_of_another_boot_are_sent_again() {
        let kept = Kept { epoch: 3, serial: 9, clients: BTreeMap::new(), boot: boot() };
        assert_eq!(kept.clone().checked(), kept);
        let earlier = Kept { boot: "another".to_owned(), ..kept };
        assert_eq!((earlier.clone().checked().epoch, earlier.checked().serial), (0, 0));
    }

    #[test]
    fn scripts_find_the_facts_under_ganetis_names() {
        let bench = Bench::new();
        let store = bench.open();
        assert_eq!(store.put(1, &facts(7, &["node1", "node2"])).unwrap(), 7);
        for (name, expected) in [
            ("ssconf_cluster_name", "dev.example.org\n"),
            ("ssconf_master_node", "node1\n"),
            ("ssconf_node_list", "node1\nnode2\n"),
            ("ssconf_node_primary_ips", "node1 192.0.2.0\nnode2 192.0.2.1\n"),
            ("ssconf_node_secondary_ips", "node1 198.51.100.0\nnode2 198.51.100.1\n"),
            ("ssconf_instance_list", "db1\nweb1\n"),
            ("ssconf_hooks_version", "2\n"),
        ] {
            assert_eq!(bench.text(name), expected, "{name}");
            let mode = fs::metadata(store.data_dir().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644, "{name}");
        }
        let link = fs::read_link(store.data_dir().join("master_socket")).unwrap();
        assert_eq!(link, bench.folder.path().join("master.sock"));
        assert_eq!(fs::read_dir(store.data_dir()).unwrap().count(), 8, "nothing else is left there");
    }

    #[test]
    fn a_file_is_replaced_whole_and_only_when_it_changes() {
        let bench = Bench::new();
        let store = bench.open();
        store.put(1, &facts(1, &["node1"])).unwrap();
        let inode = |name: &str| fs::metadata(store.data_dir().join(name)).unwrap().ino();
        let mut old = fs::File::open(store.data_dir().join("ssconf_node_list")).unwrap();
        let (list, cluster) = (inode("ssconf_node_list"), inode("ssconf_cluster_name"));
        store.put(1, &facts(2, &["node1", "node2"])).unwrap();
        assert_ne!(inode("ssconf_node_list"), list);
        assert_eq!(inode("ssconf_cluster_name"), cluster);
        // Who opened it before reads the old text to its end.
        assert_eq!(io::read_to_string(&mut old).unwrap(), "node1\n");
        assert_eq!(bench.text("ssconf_node_list"), "node1\nnode2\n");
    }

    #[test]
    fn who_asks_what_is_kept_does_not_wait_for_the_disk() {
        let bench = Bench::new();
        let store = bench.open();
        store.put(1, &facts(7, &["node1"])).unwrap();
        // A file of which nothing comes, as on a disk that hangs.
        let stuck = store.data_dir().join("ssconf_instance_list");
        fs::remove_file(&stuck).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &stuck, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        std::thread::scope(|scope| {
            let putting = scope.spawn(|| store.put(1, &facts(8, &["node1", "node2"])).unwrap());
            let open = || fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&stuck);
            // Succeeds once the other end is open.
            let disk = loop {
                if let Ok(disk) = open() {
                    break disk;
                }
                assert!(!putting.is_finished());
                std::thread::yield_now();
            };
            let (said, says) = std::sync::mpsc::channel();
            let store = &store;
            scope.spawn(move || {
                let fingerprint: Fingerprint = "ab".repeat(32).parse().unwrap();
                let kept = (store.serial(), store.client(&fingerprint), store.clients().len());
                said.send(kept).unwrap();
            });
            let said = says.recv_timeout(std::time::Duration::from_secs(20));
            drop(disk);
            assert_eq!(
                said.unwrap(),
                (7, Some(ClientRole::Reader), 1),
                "the old ones, until the new ones are there"
            );
            assert_eq!((putting.join().unwrap(), store.serial()), (8, 8));
        });
    }

    #[test]
    fn older_facts_do_not_replace_newer_ones() {
        let bench = Bench::new();
        let store = bench.open();
        store.put(2, &facts(7, &["node1", "node2"])).unwrap();
        assert_eq!(store.put(2, &facts(6, &["node1"])).unwrap(), 7);
        assert_eq!(bench.text("ssconf_node_list"), "node1\nnode2\n");
        // A newer master with an older store was told to go on (`--accept-loss`).
        assert_eq!(store.put(3, &facts(6, &["node1"])).unwrap(), 6);
        assert_eq!(bench.text("ssconf_node_list"), "node1\n");
    }

    #[test]
    fn serial_and_clients_survive_a_restart_and_end_with_the_membership() {
        let bench = Bench::new();
        let fingerprint: Fingerprint = "ab".repeat(32).parse().unwrap();
        assert_eq!(bench.open().client(&fingerprint), None);
        bench.open().put(1, &facts(7, &["node1"])).unwrap();
        let store = bench.open();
        assert_eq!((store.serial(), store.client(&fingerprint)), (7, Some(ClientRole::Reader)));
        store.clear().unwrap();
        assert_eq!((store.serial(), store.client(&fingerprint)), (0, None));
        assert_eq!(fs::read_dir(store.data_dir()).unwrap().count(), 1, "only the link is left");
        assert_eq!(bench.open().serial(), 0);
    }

    #[test]
    fn what_a_daemon_of_before_did_not_keep_comes_with_the_same_facts() {
        let bench = Bench::new();
        bench.open().put(1, &facts(7, &["node1"])).unwrap();
        let file = bench.folder.path().join("data").join(HOOKS_VERSION_FILE);
        fs::remove_file(&file).unwrap();
        let store = bench.open();
        assert_eq!(store.serial(), 0, "the master sends them again");
        assert_eq!(store.put(1, &facts(7, &["node1"])).unwrap(), 7);
        assert!(file.exists() && bench.open().serial() == 7);
    }

    #[test]
    fn no_text_breaks_out_of_its_line() {
        type Spoil = fn(&mut v1::Facts);
        let spoils: [Spoil; 7] = [
            |facts| facts.cluster_name = "dev\nroot".to_owned(),
            |facts| facts.master_node.clear(),
            |facts| facts.nodes[0].name = "node1 node2".to_owned(),
            |facts| facts.nodes[0].primary_ip = "192.0.2.1\n".to_owned(),
            |facts| facts.instances[0] = "a\nb".to_owned(),
            |facts| facts.clients[0].role = "root".to_owned(),
            |facts| facts.clients[0].fingerprint.clear(),
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            let mut wire = wire(1, &["node1"]);
            spoil(&mut wire);
            let status = Facts::parse(Some(wire)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{number}");
        }
    }
}
