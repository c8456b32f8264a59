//! Every method against every role, by calls without content over TCP, on the master and on a node.
//!
//! A new method needs a row in [`TABLE`]: the test fails on one that is missing.

use std::collections::BTreeSet;
use std::fs;

use muster_proto::transport::{ClientRole, Identity, METHODS};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::doors::{Door, Doors, Empty, Shown, call};
use crate::cluster::Cluster;

/// Who may call a method.
type Callers = &'static [&'static str];

const ANYONE: Callers = &["none", "reader", "operator", "admin", "node", "master"];
const PROBES: Callers = &["reader", "operator", "admin", "node", "master"];
const REFLECTION: Callers = &["reader", "operator", "admin", "master"];
const READERS: Callers = &["reader", "operator", "admin"];
const OPERATORS: Callers = &["operator", "admin"];
const ADMINS: Callers = &["admin"];
const NODES: Callers = &["node"];
const MASTERS: Callers = &["master"];
const ROLES: Callers = ANYONE;

/// All methods, and who may call them.
const TABLE: [(&str, Callers); 56] = [
    ("/grpc.health.v1.Health/Check", PROBES),
    ("/grpc.health.v1.Health/Watch", PROBES),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECTION),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECTION),
    ("/muster.v1.EnrolmentService/Enrol", ANYONE),
    ("/muster.v1.EnrolmentService/Collect", ANYONE),
    ("/muster.v1.TokenService/CreateToken", ADMINS),
    ("/muster.v1.TokenService/ListPending", ADMINS),
    ("/muster.v1.OperationService/Submit", OPERATORS),
    ("/muster.v1.JobService/GetJob", READERS),
    ("/muster.v1.JobService/ListJobs", READERS),
    ("/muster.v1.JobService/FollowJob", READERS),
    ("/muster.v1.JobService/CancelJob", OPERATORS),
    ("/muster.v1.JobService/ArchiveJobs", OPERATORS),
    ("/muster.v1.JobService/GetQueue", READERS),
    ("/muster.v1.JobService/SetQueue", ADMINS),
    ("/muster.v1.QueryService/GetCluster", READERS),
    ("/muster.v1.QueryService/ListNodes", READERS),
    ("/muster.v1.QueryService/ListGroups", READERS),
    ("/muster.v1.QueryService/ListNetworks", READERS),
    ("/muster.v1.QueryService/ListTags", READERS),
    ("/muster.v1.QueryService/ListInstances", READERS),
    ("/muster.v1.QueryService/ListExports", READERS),
    ("/muster.v1.QueryService/ListNodeHooks", READERS),
    ("/muster.v1.QueryService/Explain", READERS),
    ("/muster.v1.QueryService/Verify", READERS),
    ("/muster.v1.QueryService/ListNodeOses", READERS),
    ("/muster.v1.QueryService/InstanceConsole", OPERATORS),
    ("/muster.v1.BackupService/Backup", ADMINS),
    ("/muster.v1.CommandService/RunCommand", ADMINS),
    ("/muster.v1.CommandService/CopyFile", ADMINS),
    ("/muster.v1.HookSetService/SyncHookSet", ADMINS),
    ("/muster.v1.HookSetService/DiffHookSets", READERS),
    ("/muster.v1.HookRunsService/RunAgain", ADMINS),
    ("/muster.v1.HookRunsService/ListHookRuns", READERS),
    ("/muster.v1.MasterService/HandOver", NODES),
    ("/muster.v1.MasterService/TakeBack", NODES),
    ("/muster.v1.AgentService/Hello", MASTERS),
    ("/muster.v1.AgentService/EndJob", MASTERS),
    ("/muster.v1.AgentService/PutFacts", MASTERS),
    ("/muster.v1.AgentService/Watch", MASTERS),
    ("/muster.v1.AgentService/MakeSigningRequest", MASTERS),
    ("/muster.v1.AgentService/InstallCertificate", MASTERS),
    ("/muster.v1.AgentService/Leave", MASTERS),
    ("/muster.v1.HookService/RunHooks", MASTERS),
    ("/muster.v1.HookService/RunScript", MASTERS),
    ("/muster.v1.HookService/ListHooks", MASTERS),
    ("/muster.v1.HookService/SyncHooks", MASTERS),
    ("/muster.v1.HookService/CheckHookSet", MASTERS),
    ("/muster.v1.NodeService/Execute", MASTERS),
    ("/muster.v1.NodeService/ReadImage", MASTERS),
    ("/muster.v1.NodeService/WriteImage", MASTERS),
    ("/muster.v1.NodeService/ListOses", MASTERS),
    ("/muster.v1.NodeService/Console", MASTERS),
    ("/muster.v1.NodeCommandService/Run", MASTERS),
    ("/muster.v1.NodeCommandService/PutFile", MASTERS),
];

/// What must become of a call.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// The method answers, or refuses it for another reason than the caller's role.
    Passes,
    /// The method refuses this caller itself, by these words: the role would do, the node is the wrong one.
    RefusedByMethod(&'static str),
    /// No daemon of this kind accepts such a certificate.
    NotAccepted,
    /// The caller must show a certificate.
    NoCertificate,
    /// The caller's role is too small.
    Role,
}

fn expected(door: Door, path: &str, role: &str, callers: Callers) -> Expected {
    match (door, role) {
        // Of a master's certificates only its own is accepted, by which it calls nobody but nodes.
        (Door::Master, "master") => Expected::NotAccepted,
        (Door::Node(_), "node") => Expected::NotAccepted,
        (Door::Master, "node") if path.ends_with("/HandOver") => {
            Expected::RefusedByMethod("node3 can't act for ")
        }
        (Door::Master | Door::Node(_), _) if callers.contains(&role) => Expected::Passes,
        (Door::Master | Door::Node(_), "none") => Expected::NoCertificate,
        (Door::Master | Door::Node(_), _) => Expected::Role,
    }
}

fn is_as_expected(path: &str, role: &str, expected: Expected, answer: &Result<(), Status>) -> bool {
    let (code, message) = match answer {
        Ok(()) => (Code::Ok, ""),
        Err(status) => (status.code(), status.message()),
    };
    match expected {
        Expected::Passes if path.ends_with("/Enrol") && code == Code::PermissionDenied => {
            // Whoever may ask must have a token to get anything.
            message.starts_with("the token is not")
        }
        // A node takes no call of a master without its context.
        Expected::Passes if role == "master" && of_a_node(path) => code == Code::InvalidArgument,
        Expected::Passes => !matches!(
            code,
            Code::Unauthenticated
                | Code::PermissionDenied
                | Code::Internal
                | Code::Unknown
                | Code::Unavailable
        ),
        Expected::RefusedByMethod(words) => code == Code::PermissionDenied && message.contains(words),
        Expected::NotAccepted => code == Code::Unauthenticated && message.contains("is refused: "),
        Expected::NoCertificate => {
            code == Code::Unauthenticated
                && message.starts_with(&format!("{path} needs role "))
                && message.ends_with("the caller has no certificate")
        }
        Expected::Role => {
            code == Code::PermissionDenied
                && message.starts_with(&format!("{path} needs role "))
                && message.ends_with(&format!("has role {role}"))
        }
    }
}

/// Whether the method is one that a master calls on nodes.
fn of_a_node(path: &str) -> bool {
    ["AgentService", "HookService", "NodeService", "NodeCommandService"]
        .iter()
        .any(|service| path.contains(service))
}

/// What a caller of each role shows; all of them are known everywhere where they ever will be.
fn callers(doors: &Doors<'_>) -> Vec<(&'static str, Shown)> {
    let mut callers = vec![("none", Shown::Nothing)];
    for role in [ClientRole::Reader, ClientRole::Operator, ClientRole::Admin] {
        let name = match role {
            ClientRole::Reader => "reader",
            ClientRole::Operator => "operator",
            ClientRole::Admin => "admin",
        };
        let own = doors.client(name, role);
        doors.known_at(Door::Master, &own);
        doors.known_at(Door::Node(2), &own);
        callers.push((name, Shown::Certificate(own)));
    }
    callers.push(("node", Shown::Certificate(doors.node_certificate(3))));
    let master = Identity::master(doors.uuid, doors.node_uuid(1), doors.cluster.info().epoch);
    callers.push(("master", Shown::Certificate(doors.signed(&master))));
    callers
}

/// Calls every method as one caller at one door; what is not as expected, in words.
fn wrong_answers(doors: &Doors<'_>, door: Door, role: &str, channel: &Channel) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, callers) in TABLE {
        let answer = doors.wait(call(channel, path, Empty {}));
        let expected = expected(door, path, role, callers);
        if !is_as_expected(path, role, expected, &answer) {
            wrong.push(format!("{path} as {role} at {door:?}: expected {expected:?}, found {answer:?}"));
        }
    }
    // What is no method is one for nobody.
    let unknown = doors.wait(call(channel, "/muster.v1.JobService/Unknown", Empty {}));
    if unknown.as_ref().map_err(Status::code) != Err(Code::Unimplemented) {
        wrong.push(format!("an unknown method as {role} at {door:?}: {unknown:?}"));
    }
    wrong
}

#[test]
fn the_table_has_every_method() {
    let rows: BTreeSet<&str> = TABLE.iter().map(|(path, _)| *path).collect();
    let methods: BTreeSet<&str> = METHODS.iter().map(|(path, _)| *path).collect();
    assert_eq!(rows, methods);
    assert_eq!(rows.len(), TABLE.len(), "a method has two rows");
}

#[test]
fn each_role_may_call_what_the_table_says_and_no_empty_call_does_anything() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t file -n node2 -s 1M -o none --no-start web1");
    let doors = Doors::new(&cluster);
    let callers = callers(&doors);
    assert_eq!(callers.iter().map(|(role, _)| *role).collect::<Vec<_>>(), ROLES);
    let certificates =
        || [1, 2, 3].map(|node| fs::read(cluster.node_dir(node).join("state/node/node.pem")).unwrap());
    let jobs = || cluster.jobs().len();
    let before = (cluster.snapshot(), cluster.info().epoch, certificates(), jobs());

    let mut wrong = Vec::new();
    for door in [Door::Master, Door::Node(2)] {
        for (role, shown) in &callers {
            let channel = doors.knock(door, shown).unwrap();
            wrong.extend(wrong_answers(&doors, door, role, &channel));
        }
    }
    assert!(wrong.is_empty(), "{} wrong answers: {wrong:#?}", wrong.len());

    assert_eq!((cluster.snapshot(), cluster.info().epoch, certificates(), jobs()), before);
    cluster.ok("node pending").does_not_say("node");
    cluster.ok("instance start web1");
}
