//! The disk under a copy hangs while all that runs on its node goes on: the guest goes on, and the copy comes back in sync.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use super::writer_on;
use crate::{
    cluster::{wait_for, wait_until},
    guests::{BOOT_LIMIT, cluster, copies_are_identical, in_sync, last_ack, said},
};

/// A file system of its own that can be made to hang; it goes on and is taken away when the value goes away.
struct Disk(PathBuf);

impl Disk {
    /// Mounts one there; `None` where this user may not, or there is no loop device.
    fn mount(at: &Path) -> Option<Self> {
        let image = at.with_extension("image");
        fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let does = |program: &str, args: &[&str], path: &Path| {
            let done = Command::new(program).args(args).arg(path).output();
            done.is_ok_and(|output| output.status.success())
        };
        let mount = ["-o", "loop", image.to_str().unwrap()];
        if !does("mkfs.ext4", &["-q"], &image) || !does("mount", &mount, at) {
            return None;
        }
        let disk = Disk(at.to_owned());
        fs::remove_dir(at.join("lost+found")).unwrap();
        (disk.fsfreeze("--freeze") && disk.fsfreeze("--unfreeze")).then_some(disk)
    }

    fn fsfreeze(&self, how: &str) -> bool {
        Command::new("fsfreeze").arg(how).arg(&self.0).output().is_ok_and(|output| output.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What waits for it can't even be killed.
        self.fsfreeze("--unfreeze");
        let _is_seen_by_its_leftovers = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn a_secondary_whose_disk_hangs_is_cut_off_and_comes_back() {
    let cluster = cluster(3);
    let Some(disk) = Disk::mount(&cluster.node_dir(2).join("storage")) else {
        println!("not run: a disk that hangs wants root, a loop device, `mkfs.ext4` and `fsfreeze`");
        return;
    };
    writer_on(&cluster);
    assert!(disk.fsfreeze("--freeze"));
    let hung = Instant::now();
    // What was under way may still have been acknowledged.
    let wrote = last_ack(&cluster, 1, "web1") + 2;
    let resumed = wait_until(BOOT_LIMIT, || last_ack(&cluster, 1, "web1") > wrote);
    println!("writes resumed {:?} after the disk hung", hung.elapsed());
    assert!(resumed, "{}\n{}", said(&cluster, 1, "web1"), cluster.ok("instance info web1").stdout);
    let degraded = || cluster.ok("instance info web1").stdout.contains("stale");
    wait_for("the copy is stale", degraded);
    cluster.gnt("cluster verify").says(&["web1", "stale"]);

    assert!(disk.fsfreeze("--unfreeze"));
    in_sync(&cluster, "web1");
    cluster.ok("cluster verify");
    cluster.ok("instance shutdown web1");
    copies_are_identical(&cluster, "web1");
}
