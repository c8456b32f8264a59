//! Scripts that ask back: answered on the master; off it they learn who is master, or use a client certificate.

use std::fs;

use super::{PRE, cluster_with_webs, file, gnt, path, succeeds};
use crate::cluster::Cluster;

/// What scripts ask, and how the answers are kept: `OUT.what`, with the exit code as the last line.
fn asking(cluster: &Cluster) -> String {
    let out = path(cluster, "out").display().to_string();
    let ask = |what: &str, line: &str| {
        format!("{{ {} {line}; echo $?; }} > '{out}-'$GANETI_HOST_NAME.{what} 2>&1", gnt())
    };
    let asks = [
        ask("getmaster", "cluster getmaster"),
        ask("list", "instance list --no-headers -o name"),
        ask("own", "job info $GANETI_JOB_ID --json"),
        ask("wait", "node info node1"),
        ask("submit", "instance start web2 --submit"),
    ];
    asks.join("\n")
}

/// An answer's text, and its exit code.
#[track_caller]
fn answer(cluster: &Cluster, node: &str, what: &str) -> (String, String) {
    let text = fs::read_to_string(path(cluster, &format!("out-{node}.{what}"))).unwrap();
    let text = text.trim_end();
    let (text, code) = text.rsplit_once('\n').unwrap_or(("", text));
    (text.to_owned(), code.to_owned())
}

#[test]
fn scripts_are_answered_on_the_master_and_told_where_it_is_elsewhere() {
    let cluster = cluster_with_webs(2);
    for node in [1, 2] {
        cluster.script(node, PRE, "10-asks", &asking(&cluster));
    }
    cluster.ok("instance modify -m 96 web1");
    let owned = |text: &str, code: &str| (text.to_owned(), code.to_owned());
    assert_eq!(answer(&cluster, "node1", "getmaster"), owned("node1", "0"));
    assert_eq!(answer(&cluster, "node1", "list"), owned("web1\nweb2", "0"));
    let (own, code) = answer(&cluster, "node1", "own");
    let own: serde_json::Value = serde_json::from_str(&own).unwrap();
    assert_eq!((own["phase"].as_str(), code.as_str()), (Some("pre-hooks"), "0"));
    assert_eq!(answer(&cluster, "node1", "wait").1, "0");
    let (submitted, code) = answer(&cluster, "node1", "submit");
    assert_eq!(code, "0", "{submitted}");
    let id = submitted.strip_prefix("JobID: ").and_then(|id| id.parse().ok()).unwrap();
    assert_eq!(Some(succeeds(&cluster, id).parent_job), own["id"].as_u64());

    assert_eq!(answer(&cluster, "node2", "getmaster"), owned("node1", "0"));
    for what in ["list", "own", "wait", "submit"] {
        let (text, code) = answer(&cluster, "node2", what);
        assert_eq!(code, "3", "{text}");
        assert!(text.starts_with("error: this host is not the master: node1 is"), "{text}");
    }
    assert_eq!(cluster.last_job().id, id, "one job was made, by the script on the master");
}

#[test]
fn a_host_with_a_client_certificate_asks_the_master_from_anywhere() {
    let cluster = cluster_with_webs(2);
    cluster.ok(&format!("cluster client-cert sign --role operator --out {} joe", cluster.dir().display()));
    let (cert, key, ca) = (file(&cluster, "joe.pem"), file(&cluster, "joe.key"), file(&cluster, "ca.pem"));
    let master = format!("{}:1810", cluster.address(1));
    let configured =
        format!("export MUSTER_MASTER={master} MUSTER_CERT={cert} MUSTER_KEY={key} MUSTER_CA={ca}");
    cluster.script(2, PRE, "10-asks", &format!("{configured}\n{}", asking(&cluster)));
    cluster.ok("instance modify -m 96 web1");
    assert_eq!(answer(&cluster, "node2", "getmaster").0, "node1");
    assert_eq!(answer(&cluster, "node2", "list").0, "web1\nweb2");
    let (submitted, code) = answer(&cluster, "node2", "submit");
    assert_eq!(code, "0", "{submitted}");
    let job = succeeds(&cluster, cluster.last_job().id);
    assert_eq!(submitted, format!("JobID: {}", job.id));
    assert_ne!(job.parent_job, 0);
}

#[test]
fn a_cycle_is_refused_from_another_node_too() {
    let cluster = cluster_with_webs(2);
    cluster.ok(&format!("cluster client-cert sign --role operator --out {} joe", cluster.dir().display()));
    let flags = format!(
        "--master {}:1810 --cert {} --key {} --ca {}",
        cluster.address(1),
        file(&cluster, "joe.pem"),
        file(&cluster, "joe.key"),
        file(&cluster, "ca.pem")
    );
    cluster.script(2, PRE, "10-waits", &format!("{} instance start web1 {flags}", gnt()));
    cluster.gnt("instance modify -m 96 web1").exits(1).says(&["node2: 10-waits", "that would never end"]);
}

#[test]
fn beside_a_standby_the_facts_name_the_master() {
    let cluster = Cluster::with(&["--nodes", "2", "--masters", "2"]);
    cluster.ok("instance add -t diskless -n node2 -m 64 -o none --no-start web1");
    cluster.script(2, PRE, "10-asks", &asking(&cluster));
    cluster.ok("instance modify -m 96 web1");
    assert_eq!(answer(&cluster, "node2", "getmaster"), ("node1".to_owned(), "0".to_owned()));
    let (text, code) = answer(&cluster, "node2", "list");
    assert!(code == "3" && text.contains("the master is node1"), "{code}: {text}");
}
