//! The archive: jobs leave the list, are shown all the same, and their numbers are not given again.

use muster_proto::v1::JobStatus;
use serde_json::{Value, json};

use super::{
    PRE, cluster_with_webs, ends_as, gate_is_reached, gated, info, open_gate, restart_master, succeeds,
};
use crate::cluster::{Cluster, wait_for};

fn listed(cluster: &Cluster) -> Vec<u64> {
    cluster.jobs().iter().map(|job| job.id).collect()
}

#[test]
fn an_archived_job_leaves_the_list_and_is_still_shown() {
    let cluster = cluster_with_webs(1);
    let id = cluster.submit("instance start web1 --reason kept");
    let before = succeeds(&cluster, id);
    cluster.ok(&format!("job archive {id}")).says(&[&format!("job {id} is archived")]);
    for restarted in [false, true] {
        if restarted {
            restart_master(&cluster);
        }
        assert!(!listed(&cluster).contains(&id), "after a restart: {restarted}");
        cluster.gnt(&format!("job list {id}")).exits(1).says(&[&format!("gnt-job info {id}")]);
        let shown = info(&cluster, id);
        assert_eq!((&shown["archived"], &shown["status"]), (&json!(true), &json!("success")));
        assert_eq!(shown["reason"], json!("kept"));
        let after = cluster.job(id);
        assert_eq!((after.log, after.uuid), (before.log.clone(), before.uuid.clone()));
        cluster.ok(&format!("job info {id}")).says(&["archived:    Y"]);
        cluster.ok(&format!("job wait {id}"));
        cluster.gnt(&format!("job cancel {id}")).exits(1);
        // Once more: nothing happens, and it is said why.
        let again = cluster.gnt(&format!("job archive {id} --json")).exits(1);
        let again: Value = serde_json::from_str(&again.stdout).unwrap();
        let kept = json!([{"id": id, "reason": format!("job {id} is archived already")}]);
        assert_eq!(again, json!({"archived": [], "kept": kept}));
        // It had the highest number.
        assert!(cluster.submit("instance modify -m 96 web1") > id);
    }
    let queue: Value = serde_json::from_str(&cluster.ok("cluster queue info --json").stdout).unwrap();
    assert_eq!(queue["archived"], json!(1));
}

#[test]
fn numbers_are_not_given_again_when_all_jobs_are_in_the_archive() {
    let cluster = cluster_with_webs(1);
    let last = cluster.last_job().id;
    cluster.ok("job autoarchive all").says(&["archived, from 1 to"]);
    assert_eq!(listed(&cluster), [0; 0]);
    restart_master(&cluster);
    assert_eq!(cluster.submit("instance start web1"), last + 1);
}

#[test]
fn what_is_not_over_is_kept() {
    let cluster = cluster_with_webs(1);
    cluster.script(1, PRE, "10-wait", &gated(&cluster));
    let done = cluster.submit("instance start web2");
    succeeds(&cluster, done);
    let running = cluster.submit("instance modify -m 96 web1");
    gate_is_reached(&cluster);
    let output = cluster.gnt(&format!("job archive {running} {done} 4711")).exits(1);
    assert_eq!(output.stdout, format!("job {done} is archived\n"));
    output.says(&[&format!("job {running} is kept: job {running} is not over"), "there is no job 4711"]);
    cluster.ok("job autoarchive all");
    assert_eq!(listed(&cluster), [running]);
    open_gate(&cluster);
    succeeds(&cluster, running);
}

#[test]
fn a_job_that_left_something_undone_is_kept_until_it_is_repaired() {
    let cluster = cluster_with_webs(1);
    cluster.faults(
        1,
        "[guest_start]\nfail = \"no such machine\"\n[disk_remove]\nfail = \"no such disk store\"\n",
    );
    let id = cluster.submit("instance add -t file -n node1 -s 8M -m 64 -o none web3");
    let job = ends_as(&cluster, id, JobStatus::Error);
    assert_eq!(job.failed_undos.len(), 1, "{job:#?}");
    let why = format!("job {id} left something undone: run `gnt-job repair {id}`");
    cluster.gnt(&format!("job archive {id}")).exits(1).says(&[&why]);
    cluster.ok("job autoarchive all").says(&[&format!("warning: job {id} is kept: {why}")]);
    assert_eq!(listed(&cluster), [id]);
    cluster.gnt("cluster verify").exits(1).says(&["EUNDO", "no such disk store"]);
    // The reason stands in the way of the repair too.
    cluster
        .gnt(&format!("job repair {id}"))
        .exits(1)
        .says(&["no such disk store", &format!("left of job {id}:")]);
    cluster.faults(1, "");
    cluster.ok(&format!("job repair {id}"));
    assert_eq!(info(&cluster, id)["failed_undos"][0]["made_good"], json!(true));
    cluster.ok("cluster verify").does_not_say("EUNDO");
    cluster.ok(&format!("job archive {id}"));
}

#[test]
fn jobs_are_archived_by_their_age() {
    let cluster = cluster_with_webs(1);
    let id = cluster.last_job().id;
    cluster.ok("job autoarchive 1h").says(&["0 jobs archived"]);
    cluster.ok("job autoarchive 7d --json").says(&["\"archived\": []"]);
    assert!(listed(&cluster).contains(&id));
    wait_for("the job is a second old", || {
        cluster.ok("job autoarchive 1");
        !listed(&cluster).contains(&id)
    });
    assert!(info(&cluster, id)["archived"] == json!(true));
}
