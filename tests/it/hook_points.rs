//! Hook points beside an operation's own directories, and what holds in single directories: a used-up budget, graded
//! results, global scripts exactly once at every end, scripts of failed operations, events.

use std::fs;
use std::process::Command;

use crate::cluster::{Cluster, devcluster_program, start, wait_for};

/// Tells of its run in a line.
fn told(cluster: &Cluster) -> String {
    let file = cluster.dir().join("told");
    format!(
        "echo \"$GANETI_JOB_ID $GANETI_OP_ID ${{GANETI_POST_STATUS:-none}} $GANETI_HOOKS_PATH $GANETI_HOOKS_PHASE \
         $GANETI_HOST_NAME\" >> {}",
        file.display()
    )
}

/// The lines told so far, each as its words.
fn lines(cluster: &Cluster) -> Vec<String> {
    let text = fs::read_to_string(cluster.dir().join("told")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn of_job(cluster: &Cluster, job: u64) -> Vec<String> {
    let job = format!("{job} ");
    lines(cluster).into_iter().filter_map(|line| line.strip_prefix(&job).map(str::to_owned)).collect()
}

#[test]
fn global_scripts_hear_of_every_end_once_and_failed_ones_of_failures() {
    let cluster = Cluster::up(2);
    cluster.script(1, "global-pre.d", "10-told", &told(&cluster));
    cluster.script(1, "global-post.d", "10-told", &told(&cluster));
    cluster.script(2, "global-post.d", "10-told", &told(&cluster));
    let failed = cluster.dir().join("failed");
    for node in [1, 2] {
        let body = format!(
            "{}\ncp \"$GANETI_ERROR_MESSAGE_PATH\" {}.$GANETI_HOST_NAME\ncat \"$GANETI_POST_NODES_PATH\"",
            told(&cluster),
            failed.display()
        );
        cluster.script(node, "instance-add-failed.d", "10-told", &body);
    }
    // A success; the next operation has no hooks of its own in version 1.
    cluster.ok("instance add -t file -n node2 -s 16M -o none --no-start web1");
    let job = cluster.last_job().id;
    let path = "global";
    assert_eq!(
        of_job(&cluster, job),
        [
            format!("OP_INSTANCE_ADD none {path} PRE node1"),
            format!("OP_INSTANCE_ADD success {path} POST node1")
        ]
    );
    cluster.ok("cluster modify --hook-exit-codes graded");
    let job = cluster.last_job().id;
    let op = "OP_CLUSTER_MODIFY";
    assert_eq!(
        of_job(&cluster, job),
        [format!("{op} none {path} PRE node1"), format!("{op} success {path} POST node1")]
    );
    // Refused at check.
    cluster.gnt("instance add -t file -n node2 -s 16M -o none web1").exits(1).says(&["refused"]);
    assert_eq!(of_job(&cluster, cluster.last_job().id), [format!("OP_INSTANCE_ADD error {path} POST node1")]);
    // Denied by a global script; a warning is told to who asked.
    cluster.script(1, "global-pre.d", "20-no", "[ $GANETI_OP_TARGET != web9 ] || { echo not web9; exit 3; }");
    cluster.script(2, "instance-add-pre.d", "20-hm", "echo nearly full >&2; exit 40");
    let denied = cluster.gnt("instance add -t file -n node2 -s 16M -o none web9").exits(1);
    denied.says(&[
        "denied",
        "global-pre.d/20-no",
        "not web9",
        "warning: node2: 20-hm exit code 40",
        "nearly full",
    ]);
    let mut told = of_job(&cluster, cluster.last_job().id);
    told.sort();
    assert_eq!(
        told,
        [
            "OP_INSTANCE_ADD error global POST node1",
            "OP_INSTANCE_ADD error instance-add FAILED node1",
            "OP_INSTANCE_ADD error instance-add FAILED node2",
            "OP_INSTANCE_ADD none global PRE node1",
        ]
    );
    for node in ["node1", "node2"] {
        let error = fs::read_to_string(format!("{}.{node}", failed.display())).unwrap();
        assert!(error.contains("denied by hooks on node1") && error.contains("not web9"), "{error}");
    }
    // Canceled before it began: nobody is waited for, and it is told.
    cluster.ok("cluster queue pause");
    let waiting = cluster.submit("instance start web1");
    cluster.ok(&format!("job cancel {waiting}"));
    wait_for("the end of the canceled job to be told", || {
        of_job(&cluster, waiting) == ["OP_INSTANCE_START canceled global POST node1"]
    });
    cluster.ok("cluster queue resume");
}

#[test]
fn a_killed_master_tells_the_end_once_and_nobodys_locks_are_held() {
    let cluster = Cluster::up(1);
    cluster.ok("instance add -t file -n node1 -s 16M -o none --no-start web1");
    let begun = cluster.dir().join("begun");
    let (tell, file) = (told(&cluster), begun.display());
    let body = format!("{tell}\ntouch {file}\nsleep 4\necho done >> {file}.done");
    cluster.script(1, "global-post.d", "10-slow", &body);
    let job = cluster.submit("instance modify -m 48M web1");
    wait_for("the end to be told", || begun.exists());
    // Its locks are free: the same instance can be changed meanwhile.
    let other = cluster.submit("instance modify -m 64M --dry-run web1");
    wait_for("the other job to reach its own end", || {
        lines(&cluster).iter().any(|line| line.starts_with(&format!("{other} ")))
    });
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    for id in [job, other] {
        cluster.ok(&format!("job watch {id}"));
        assert_eq!(of_job(&cluster, id).len(), 1, "{:?}", lines(&cluster));
    }
    let done = fs::read_to_string(format!("{}.done", begun.display())).unwrap();
    assert_eq!(done.lines().count(), 2, "no run was begun again");
}

#[test]
fn r4_r10_ten_hanging_scripts_share_a_budget_of_ten_seconds() {
    let cluster = Cluster::up(1);
    cluster
        .gnt("hooks policy set instance-ad-pre.d kill_limit=5s")
        .exits(1)
        .says(&["no directory of hooks", "the nearest name is instance-add-pre.d"]);
    cluster
        .gnt("hooks policy set instance-add-post.d hook_unreachable=deny")
        .exits(1)
        .says(&["`unreachable` means nothing in instance-add-post.d"]);
    cluster.ok("hooks policy set instance-add-pre.d hook_kill_limit=5s phase_budget=10s");
    cluster.ok("hooks policy list").says(&["instance-add-pre.d", "5.0 s", "10.0 s"]);
    for number in 10..20 {
        cluster.script(1, "instance-add-pre.d", &format!("{number}-hang"), "sleep 1000");
    }
    let denied = cluster.gnt("instance add -t file -n node1 -s 16M -o none web1").exits(1);
    denied.says(&["over its time limit of 5000 ms", "budget of 10000 ms is used up"]);
    let job = cluster.last_job();
    let scripts = &job.pre[0].result.as_ref().unwrap().scripts;
    use muster_proto::v1::script_outcome::Kind;
    let kinds: Vec<_> = scripts.iter().map(|script| script.outcome.clone().unwrap().kind.unwrap()).collect();
    assert_eq!(kinds[..2], [Kind::TimedOutLimitMs(5_000), Kind::OverBudgetMs(10_000)]);
    assert_eq!(kinds[2..], vec![Kind::NotBegunBudgetMs(10_000); 8]);
    // The whole wait, with all that comes before, between and after the scripts.
    let waited = job.timings.unwrap().pre_ms.unwrap();
    println!("10 hanging scripts with a limit of 5 s each and a budget of 10 s: {waited} ms");
    assert!(waited < 12_000, "{waited} ms: {scripts:?}");

    // The same as a warning.
    cluster.ok("hooks policy set instance-add-pre.d timeout=allow phase_budget=3s");
    cluster
        .ok("instance add -t file -n node1 -s 16M -o none --no-start web1")
        .says(&["warning: node1: 10-hang", "warning: node1: 19-hang not begun"]);
    cluster.ok("hooks policy reset instance-add-pre.d");
    cluster.ok("hooks policy list --no-headers").does_not_say("instance-add");
}

#[test]
fn events_run_on_the_master() {
    let cluster = Cluster::bare(2);
    let dir = cluster.dir().to_owned();
    cluster.ok("cluster init --hypervisor fake dev");
    let file = |name: &str| dir.join(name);
    let body = format!("echo $GANETI_CONFIG_SERIAL >> {}", file("serials").display());
    cluster.script(1, "config-update-post.d", "10-told", &body);
    let body = format!(
        "echo \"$GANETI_NODE_NAME $GANETI_NODE_PIP\" >> {}; cp \"$GANETI_FACTS_PATH\" {facts}.new; mv {facts}.new {facts}",
        file("pending").display(),
        facts = file("facts").display()
    );
    cluster.script(1, "node-pending-post.d", "10-told", &body);
    let (why, asked) = (file("why"), file("asked"));
    let body = format!(
        "cp \"$GANETI_FACTS_PATH\" {}\n\
         echo \"$GANETI_NODE_NAME $GANETI_NODE_PIP\" >{why}.new\n\
         cat \"$GANETI_ERROR_MESSAGE_PATH\" >>{why}.new\n\
         mv {why}.new {why}",
        asked.display(),
        why = why.display()
    );
    cluster.script(1, "node-enrol-failed-post.d", "10-told", &body);
    cluster.ok("cluster modify --hook-phase-budget 60s");
    wait_for("the change to be told", || file("serials").exists());
    // A token for another host: the request comes to nothing, and the site hears of it without the token.
    let token = cluster.ok("node token create --node node9").stdout;
    let mut join = Command::new(devcluster_program().with_file_name("muster-noded"));
    join.arg("join").arg("--config").arg(cluster.node_dir(2).join("noded.toml")).args(["--token-file", "-"]);
    start(join, &token).finish().exits(1).says(&["the master refused"]);
    wait_for("the refused host to be told", || why.exists());
    let told = fs::read_to_string(&why).unwrap();
    let (who, reason) = told.split_once('\n').unwrap();
    // Where the request came from, not what the host says of itself.
    assert!(who.starts_with("node2 127."), "{told}");
    assert!(reason.contains("token"), "{told}");
    let asked = fs::read_to_string(&asked).unwrap();
    assert!(asked.contains("\"name\": \"node2\"") && !asked.contains(token.trim()), "{asked}");
    assert!(!file("pending").exists(), "it is not pending");

    cluster.join(2);
    wait_for("the pending node to be told", || file("facts").exists());
    let pending = fs::read_to_string(file("pending")).unwrap();
    assert_eq!(pending, format!("node2 {}\n", cluster.address(2)));
    assert!(fs::read_to_string(file("facts")).unwrap().contains("\"name\": \"node2\""));
}
