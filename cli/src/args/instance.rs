//! `gnt-instance`, and the flags that it shares with `gnt-backup import`.

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::{
    common::{AsJson, ListFlags, OperationFlags},
    tags::TagsVerb,
    values::{self, IpChange, Placement},
};

/// Verbs of `gnt-instance`.
#[derive(Debug, Subcommand)]
pub(crate) enum InstanceVerb {
    /// Make an instance
    #[command(
        after_help = "Example: gnt-instance add -t mirror -n node1:node2 -s 10G --swap-size 1G -m 2G -p 2 -o none web1"
    )]
    Add {
        #[command(flatten)]
        new: NewInstance,
        #[command(flatten)]
        hardware: Hardware,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// List instances with node, state and memory
    List {
        /// Only these instances
        #[arg(value_name = "NAME", value_parser = values::instance)]
        names: Vec<String>,
        /// Ask the nodes now instead of showing what they last said
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show all about instances, the DISK_ID of each mirror included
    Info {
        /// Only these instances
        #[arg(value_name = "NAME", value_parser = values::instance)]
        names: Vec<String>,
        /// Ask the nodes now instead of showing what they last said
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        json: AsJson,
    },
    /// Start instances, one job each
    #[command(visible_alias = "startup")]
    Start {
        /// The instances
        #[arg(value_name = "NAME", required = true, value_parser = values::instance)]
        names: Vec<String>,
        /// Start even where something speaks against it, such as a secondary node out of reach
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Shut instances down, one job each
    #[command(visible_alias = "stop")]
    Shutdown {
        /// The instances
        #[arg(value_name = "NAME", required = true, value_parser = values::instance)]
        names: Vec<String>,
        /// Seconds for a clean shutdown before it is forced; default 120
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u32>,
        /// The primary node is marked offline, and I have made sure that the instances do not run there
        #[arg(long)]
        fenced: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Restart instances that run, one job each
    Reboot {
        /// The instances
        #[arg(value_name = "NAME", required = true, value_parser = values::instance)]
        names: Vec<String>,
        /// How; default: soft
        #[arg(short = 't', long = "type", value_enum, value_name = "TYPE")]
        kind: Option<RebootKind>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Install an instance's OS definition again; what its disks hold is lost
    Reinstall {
        /// The instance, which is down
        #[arg(value_parser = values::instance)]
        name: String,
        /// Another OS definition
        #[arg(short = 'o', long = "os-type", value_name = "OS", value_parser = values::os)]
        os: Option<String>,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Give an instance another name
    Rename {
        /// The instance, which is down
        #[arg(value_parser = values::instance)]
        name: String,
        /// Its new name
        #[arg(value_parser = values::instance)]
        new_name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Show an instance's serial console and type on it; Ctrl-] and then q leaves it
    Console {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
    },
    /// Change memory, processors, address or network; works from the next start
    #[command(visible_alias = "set", group = ArgGroup::new("change").required(true).multiple(true).args(["memory", "vcpus", "ip", "network"]))]
    Modify {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// New memory
        #[arg(short, long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
        memory: Option<u64>,
        /// New number of virtual processors
        #[arg(short = 'p', long, value_name = "COUNT", value_parser = values::count, allow_hyphen_values = true)]
        vcpus: Option<u32>,
        /// New address, none, or pool for the first of the network that nobody has; name the network with it (--network)
        #[arg(short, long, value_name = "IP", value_parser = values::ip_or_word)]
        ip: Option<IpChange>,
        /// Network that it is in, or none: that takes its address away, too
        #[arg(long, value_name = "NETWORK", value_parser = values::network_or_none)]
        network: Option<String>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Move a mirrored instance to its secondary node
    Failover {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        /// Also when the copy on the secondary is not known to be good
        #[arg(long)]
        ignore_consistency: bool,
        /// The primary node is marked offline, and I have made sure that the instance does not run there
        #[arg(long)]
        fenced: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Move a running mirrored instance to its secondary node without stopping it
    Migrate {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Move an instance without copies to another node; it is down while its disks are copied
    Move {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// Where it goes
        #[arg(short, long, value_name = "NODE", value_parser = values::node)]
        node: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Remove an instance and its disks
    Remove {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    #[command(flatten)]
    Tags(TagsVerb),
    #[command(flatten)]
    OnDisk(DiskVerb),
}

/// Verbs of `gnt-instance` on one disk or its copies.
#[derive(Debug, Subcommand)]
pub(crate) enum DiskVerb {
    /// Make a disk larger
    #[command(after_help = "Example: gnt-instance grow-disk web1 sda 2G")]
    GrowDisk {
        /// The instance, which is down
        #[arg(value_parser = values::instance)]
        name: String,
        /// The disk
        #[arg(value_enum)]
        disk: DiskName,
        /// How much is added
        #[arg(value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
        by: u64,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Add a mirror component to a disk
    AddMirror {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// The disk
        #[arg(short = 'b', long, value_enum)]
        disk: DiskName,
        /// The node that gets the new component
        #[arg(short, long, value_name = "NODE", value_parser = values::node)]
        node: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Remove a mirror component from a disk
    RemoveMirror {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// The disk
        #[arg(short = 'b', long, value_enum)]
        disk: DiskName,
        /// The component's DISK_ID, see `gnt-instance info`
        #[arg(short = 'p', long, value_name = "DISK_ID", allow_negative_numbers = true)]
        disk_id: u32,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Make the files of an instance's disks anew: on another secondary node, or on either of its nodes
    #[command(group = ArgGroup::new("where").multiple(false).args(["new_secondary", "on_secondary", "on_primary"]))]
    ReplaceDisks {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// On this node, which is the secondary afterwards
        #[arg(short = 'n', long = "new-secondary", value_name = "NODE", value_parser = values::node)]
        new_secondary: Option<String>,
        /// On the secondary node; this is the default
        #[arg(short = 's', long)]
        on_secondary: bool,
        /// On the primary node, from the copies; the instance is down
        #[arg(short = 'p', long)]
        on_primary: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Make lost disks anew, empty; one whose file is still there is refused
    #[command(after_help = "Example: gnt-instance recreate-disks --disk sdb web1")]
    RecreateDisks {
        /// The instance, which is down
        #[arg(value_parser = values::instance)]
        name: String,
        /// Only this disk; may be repeated
        #[arg(long = "disk", value_enum, value_name = "DISK")]
        disks: Vec<DiskName>,
        /// On these nodes: primary node and, for mirror, secondary node
        #[arg(short, long, value_name = "NODE[:NODE]", value_parser = values::placement, conflicts_with = "disks")]
        node: Option<Placement>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Bring copies that miss writes in sync now, rather than when the master comes to it by itself
    SyncMirrors {
        /// The instance, which runs
        #[arg(value_parser = values::instance)]
        name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
}

/// What every new instance needs.
#[derive(Debug, Clone, Args)]
pub(crate) struct NewInstance {
    /// The instance's name
    #[arg(value_parser = values::instance)]
    pub(crate) name: String,
    /// How its disks are kept
    #[arg(short = 't', long, value_enum)]
    pub(crate) disk_template: DiskTemplate,
    /// Primary node and, for mirror, secondary node
    #[arg(short, long, value_name = "NODE[:NODE]", value_parser = values::placement)]
    pub(crate) node: Placement,
    /// The instance's address; pool is the first of its network that nobody has
    #[arg(short, long, value_name = "IP", value_parser = values::ip_or_word)]
    pub(crate) ip: Option<IpChange>,
    /// The network that it is in; its address is one of it
    #[arg(long, value_name = "NETWORK", value_parser = values::network)]
    pub(crate) network: Option<String>,
    /// Its tags, with commas
    #[arg(long, value_name = "TAGS", value_delimiter = ',', value_parser = values::tag)]
    pub(crate) tags: Vec<String>,
    /// Leave it down
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Bring its copies in sync later, while it runs
    #[arg(long)]
    pub(crate) no_wait_for_sync: bool,
}

/// What an instance made from nothing is given.
#[derive(Debug, Clone, Args)]
pub(crate) struct Hardware {
    /// Size of the first disk, sda
    #[arg(short = 's', long = "os-size", value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    #[arg(required_if_eq_any([("disk_template", "file"), ("disk_template", "mirror"), ("disk_template", "remote_raid1"), ("disk_template", "drbd")]))]
    pub(crate) disk_size: Option<u64>,
    /// Size of the second disk, sdb; without it there is none
    #[arg(long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) swap_size: Option<u64>,
    /// Memory
    #[arg(short, long, value_name = "SIZE", value_parser = values::size, default_value = "128M", allow_hyphen_values = true)]
    pub(crate) memory: u64,
    /// Number of virtual processors
    #[arg(short = 'p', long, value_name = "COUNT", value_parser = values::count, default_value = "1", allow_hyphen_values = true)]
    pub(crate) vcpus: u32,
    /// OS definition; none makes empty disks
    #[arg(short = 'o', long = "os-type", value_name = "OS", value_parser = values::os)]
    pub(crate) os: String,
}

/// What an instance made from an export is given; what is left out is taken from the export.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImportedHardware {
    /// Size of the first disk, sda; default: as exported
    #[arg(short = 's', long = "os-size", value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) disk_size: Option<u64>,
    /// Size of the second disk, sdb; default: as exported
    #[arg(long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) swap_size: Option<u64>,
    /// Memory; default: as exported
    #[arg(short, long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) memory: Option<u64>,
    /// Number of virtual processors; default: as exported
    #[arg(short = 'p', long, value_name = "COUNT", value_parser = values::count, allow_hyphen_values = true)]
    pub(crate) vcpus: Option<u32>,
    /// OS definition; default: as exported
    #[arg(short = 'o', long = "os-type", value_name = "OS", value_parser = values::os)]
    pub(crate) os: Option<String>,
}

/// Values of `--disk-template`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskTemplate {
    /// No disks
    Diskless,
    /// Files on the primary node
    File,
    /// Files on two nodes
    Mirror,
    /// The same as mirror
    #[value(name = "remote_raid1")]
    RemoteRaid1,
    /// The same as mirror
    Drbd,
}

impl DiskTemplate {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            DiskTemplate::Diskless => "diskless",
            DiskTemplate::File => "file",
            DiskTemplate::Mirror => "mirror",
            DiskTemplate::RemoteRaid1 => "remote_raid1",
            DiskTemplate::Drbd => "drbd",
        }
    }
}

/// Values of `--type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RebootKind {
    /// The guest is asked to shut down and begins anew, in the same process on its node
    Soft,
    /// The same without asking
    Hard,
    /// It is shut down and started, by which changed parameters count
    Full,
}

impl RebootKind {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            RebootKind::Soft => "soft",
            RebootKind::Hard => "hard",
            RebootKind::Full => "full",
        }
    }
}

/// Values of `--disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskName {
    #[value(alias = "0")]
    Sda,
    #[value(alias = "1")]
    Sdb,
}

impl DiskName {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            DiskName::Sda => "sda",
            DiskName::Sdb => "sdb",
        }
    }
}
