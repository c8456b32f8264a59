//! Who may call what: the roles, and one table over all methods of all services.
//!
//! A new method needs a row in [`METHODS`]; a test compares the table with the compiled descriptors and names
//! each method that is missing and each row that has no method. A method without a row can't be called.
use std::{collections::HashMap, fmt, str::FromStr, sync::LazyLock};

use serde::{Deserialize, Serialize};

/// Metadata by which a node that refuses a master's epoch says which one it has seen.
pub const EPOCH_SEEN: &str = "muster-epoch-seen";

/// What a caller is to this cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A caller without a certificate: may enrol.
    None,
    /// Lists, shows, follows.
    Reader,
    /// Also submits and cancels.
    Operator,
    /// Also tokens, certificates, cluster parameters.
    Admin,
    /// A node daemon.
    Node,
    /// The master.
    Master,
}

/// The roles a client certificate can carry; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientRole {
    /// Lists, shows, follows.
    Reader,
    /// Also submits and cancels.
    Operator,
    /// Also tokens, certificates, cluster parameters.
    Admin,
}

impl Role {
    const ALL: [Self; 6] = [Self::None, Self::Reader, Self::Operator, Self::Admin, Self::Node, Self::Master];

    const fn bit(self) -> u8 {
        match self {
            Self::None => 0b00_0001,
            Self::Reader => 0b00_0010,
            Self::Operator => 0b00_0100,
            Self::Admin => 0b00_1000,
            Self::Node => 0b01_0000,
            Self::Master => 0b10_0000,
        }
    }

    /// Whether this is admin.
    pub fn is_admin(self) -> bool {
        self == Self::Admin
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Node => "node",
            Self::Master => "master",
        })
    }
}

impl From<ClientRole> for Role {
    fn from(role: ClientRole) -> Self {
        match role {
            ClientRole::Reader => Self::Reader,
            ClientRole::Operator => Self::Operator,
            ClientRole::Admin => Self::Admin,
        }
    }
}

impl fmt::Display for ClientRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Role::from(*self).fmt(f)
    }
}

/// The text is no role of a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a client's role is reader, operator or admin")]
pub struct ClientRoleError;

impl FromStr for ClientRole {
    type Err = ClientRoleError;

    fn from_str(text: &str) -> Result<Self, ClientRoleError> {
        match text {
            "reader" => Ok(Self::Reader),
            "operator" => Ok(Self::Operator),
            "admin" => Ok(Self::Admin),
            _ => Err(ClientRoleError),
        }
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Whoever asks.
    pub const ANYONE: Self = Self(0b11_1111);
    /// Reader and above.
    pub const READER: Self = Self(Role::Reader.bit() | Self::OPERATOR.0);
    /// Operator and above.
    pub const OPERATOR: Self = Self(Role::Operator.bit() | Self::ADMIN.0);
    /// Admin.
    pub const ADMIN: Self = Self(Role::Admin.bit());
    /// Node daemons.
    pub const NODE: Self = Self(Role::Node.bit());
    /// The master.
    pub const MASTER: Self = Self(Role::Master.bit());

    /// Both sets.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the role is in the set.
    pub const fn contains(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }
}

impl fmt::Display for Roles {
    /// The least role of a client that will do, and the daemons' roles: `operator`, `reader, node or master`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Vec::new();
        let mut client = false;
        for role in Role::ALL.into_iter().filter(|role| self.contains(*role)) {
            let of_client = matches!(role, Role::Reader | Role::Operator | Role::Admin);
            if !(of_client && client) {
                names.push(role.to_string());
            }
            client |= of_client;
        }
        match names.split_last() {
            None => f.write_str("nobody"),
            Some((last, [])) => f.write_str(last),
            Some((last, rest)) => write!(f, "{} or {last}", rest.join(", ")),
        }
    }
}

const PROBE: Roles = Roles::READER.or(Roles::NODE).or(Roles::MASTER);
const REFLECTION: Roles = Roles::READER.or(Roles::MASTER);

/// Every method of every service, and who may call it.
pub const METHODS: &[(&str, Roles)] = &[
    // Every daemon.
    ("/grpc.health.v1.Health/Check", PROBE),
    ("/grpc.health.v1.Health/Watch", PROBE),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECTION),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECTION),
    // Master daemon, for hosts that are to become nodes.
    ("/muster.v1.EnrolmentService/Enrol", Roles::ANYONE),
    ("/muster.v1.EnrolmentService/Collect", Roles::ANYONE),
    // Master daemon, for people and programs.
    ("/muster.v1.TokenService/CreateToken", Roles::ADMIN),
    ("/muster.v1.TokenService/ListPending", Roles::ADMIN),
    ("/muster.v1.OperationService/Submit", Roles::OPERATOR),
    ("/muster.v1.JobService/GetJob", Roles::READER),
    ("/muster.v1.JobService/ListJobs", Roles::READER),
    ("/muster.v1.JobService/FollowJob", Roles::READER),
    ("/muster.v1.JobService/CancelJob", Roles::OPERATOR),
    ("/muster.v1.JobService/ArchiveJobs", Roles::OPERATOR),
    ("/muster.v1.JobService/GetQueue", Roles::READER),
    ("/muster.v1.JobService/SetQueue", Roles::ADMIN),
    ("/muster.v1.QueryService/GetCluster", Roles::READER),
    ("/muster.v1.QueryService/ListNodes", Roles::READER),
    ("/muster.v1.QueryService/ListInstances", Roles::READER),
    ("/muster.v1.QueryService/ListExports", Roles::READER),
    ("/muster.v1.QueryService/ListGroups", Roles::READER),
    ("/muster.v1.QueryService/ListNetworks", Roles::READER),
    ("/muster.v1.QueryService/ListTags", Roles::READER),
    ("/muster.v1.QueryService/ListNodeHooks", Roles::READER),
    ("/muster.v1.QueryService/Explain", Roles::READER),
    ("/muster.v1.QueryService/Verify", Roles::READER),
    ("/muster.v1.QueryService/ListNodeOses", Roles::READER),
    ("/muster.v1.QueryService/InstanceConsole", Roles::OPERATOR),
    ("/muster.v1.BackupService/Backup", Roles::ADMIN),
    ("/muster.v1.CommandService/RunCommand", Roles::ADMIN),
    ("/muster.v1.CommandService/CopyFile", Roles::ADMIN),
    ("/muster.v1.HookSetService/SyncHookSet", Roles::ADMIN),
    ("/muster.v1.HookSetService/DiffHookSets", Roles::READER),
    ("/muster.v1.HookRunsService/RunAgain", Roles::ADMIN),
    ("/muster.v1.HookRunsService/ListHookRuns", Roles::READER),
    // Master daemon, for another node's master daemon that takes over the office.
    ("/muster.v1.MasterService/HandOver", Roles::NODE),
    ("/muster.v1.MasterService/TakeBack", Roles::NODE),
    // Node daemons, for the master.
    ("/muster.v1.AgentService/Hello", Roles::MASTER),
    ("/muster.v1.AgentService/EndJob", Roles::MASTER),
    ("/muster.v1.AgentService/PutFacts", Roles::MASTER),
    ("/muster.v1.AgentService/Watch", Roles::MASTER),
    ("/muster.v1.AgentService/MakeSigningRequest", Roles::MASTER),
    ("/muster.v1.AgentService/InstallCertificate", Roles::MASTER),
    ("/muster.v1.AgentService/Leave", Roles::MASTER),
    ("/muster.v1.HookService/RunHooks", Roles::MASTER),
    ("/muster.v1.HookService/RunScript", Roles::MASTER),
    ("/muster.v1.HookService/ListHooks", Roles::MASTER),
    ("/muster.v1.HookService/SyncHooks", Roles::MASTER),
    ("/muster.v1.HookService/CheckHookSet", Roles::MASTER),
    ("/muster.v1.NodeService/Execute", Roles::MASTER),
    ("/muster.v1.NodeService/ReadImage", Roles::MASTER),
    ("/muster.v1.NodeService/WriteImage", Roles::MASTER),
    ("/muster.v1.NodeService/ListOses", Roles::MASTER),
    ("/muster.v1.NodeService/Console", Roles::MASTER),
    ("/muster.v1.NodeCommandService/Run", Roles::MASTER),
    ("/muster.v1.NodeCommandService/PutFile", Roles::MASTER),
];

/// Who may call the method with this path; `None` for what is no method.
pub fn roles_for(path: &str) -> Option<Roles> {
    static BY_PATH: LazyLock<HashMap<&str, Roles>> = LazyLock::new(|| METHODS.iter().copied().collect());
    BY_PATH.get(path).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;

    fn methods_of(descriptors: &[u8]) -> BTreeSet<String> {
        let set = FileDescriptorSet::decode(descriptors).unwrap();
        let mut methods = BTreeSet::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    methods.insert(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
                }
            }
        }
        methods
    }

    #[test]
    fn every_method_has_one_row_and_every_row_a_method() {
        let mut methods = methods_of(crate::DESCRIPTORS);
        assert!(!methods.is_empty());
        methods.extend(methods_of(tonic_health::pb::FILE_DESCRIPTOR_SET));
        methods.extend(methods_of(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET));
        methods.extend(methods_of(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET));
        let rows: BTreeSet<String> = METHODS.iter().map(|(path, _)| (*path).to_owned()).collect();
        let missing: Vec<_> = methods.difference(&rows).collect();
        let surplus: Vec<_> = rows.difference(&methods).collect();
        assert!(missing.is_empty(), "methods without a row: {missing:?}");
        assert!(surplus.is_empty(), "rows without a method: {surplus:?}");
        assert_eq!(rows.len(), METHODS.len(), "a method has two rows");
    }

    #[test]
    fn only_enrolment_is_open_to_callers_without_a_certificate() {
        for (path, roles) in METHODS {
            assert_eq!(roles.contains(Role::None), path.contains("EnrolmentService"), "{path}");
        }
    }

    #[test]
    fn a_clients_role_includes_those_below_it() {
        for (path, roles) in METHODS {
            assert!(!roles.contains(Role::Reader) || roles.contains(Role::Operator), "{path}");
            assert!(!roles.contains(Role::Operator) || roles.contains(Role::Admin), "{path}");
        }
        assert!(Roles::READER.contains(Role::Admin) && !Roles::READER.contains(Role::Node));
        assert!(!Roles::OPERATOR.contains(Role::Reader) && !Roles::ADMIN.contains(Role::Operator));
        assert!(!Roles::ADMIN.contains(Role::Master) && !Roles::MASTER.contains(Role::Admin));
    }

    #[test]
    fn sets_read_as_an_operator_would_say_them() {
        assert_eq!(Roles::OPERATOR.to_string(), "operator");
        assert_eq!(PROBE.to_string(), "reader, node or master");
        assert_eq!(REFLECTION.to_string(), "reader or master");
    }
}
