//! Nodes that know each other's certificates: they serve copies to each other, mirror disks, and send guests.

use std::{collections::HashMap, fs, net::Ipv4Addr, os::unix::fs::FileExt, path::PathBuf};

use muster_proto::{
    transport::Ca,
    v1::{
        CopiesRelease, CopiesServe, CopiesServed, DiskCreate, DiskSnapshot, DisksSnapshot, Guest,
        GuestResume, MigrateCancel, MigrateFinish, MigrateReceive, MigrateSend, MigrationCall, MirrorCall,
        MirrorLink, MirrorStatus, MirrorSync, MirrorsCheck, MirrorsClean, MirrorsStart, MirrorsStop,
        MirrorsTrust, Output, ServedCopy, migration_call, mirror_call, node_call::Call,
    },
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    data_certificates::Node,
    program::{uuid, wait_for},
    qemu::Bench,
};

/// The size of all disks here, in MiB.
const SIZE_MIB: u64 = 16;

/// A node.
pub(crate) struct Host {
    pub(crate) bench: Bench,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

impl Host {
    pub(crate) async fn start(ca: &Ca, number: u8) -> Self {
        let node = Node::start(number, &format!("node{number}")).await;
        node.install(ca, true).await;
        let Node { program, name, address, .. } = node;
        Host { bench: Bench::on(program), name: name.to_string(), address }
    }

    pub(crate) async fn restart(&mut self) {
        self.bench.program.kill();
        self.bench.program.begin().await;
    }

    pub(crate) async fn disk(&self, number: u128) {
        let call = Call::DiskCreate(DiskCreate { disk_uuid: uuid(number), size_mib: SIZE_MIB });
        self.bench.call(call).await.expect("a disk");
    }

    pub(crate) fn file(&self, disk: u128) -> PathBuf {
        self.bench.program.path("storage_dir").join(format!("{}.raw", uuid(disk)))
    }

    /// How many records a disk's file has without a gap.
    pub(crate) fn records(&self, disk: u128) -> u64 {
        let file = fs::File::open(self.file(disk)).expect("the disk is there");
        let holds = |number: &u64| {
            let mut block = [0; 512];
            file.read_exact_at(&mut block, *number * 512).expect("few records were written");
            block.starts_with(format!("record {number}\n").as_bytes())
        };
        (1..).take_while(holds).last().unwrap_or_default()
    }

    /// Asserts that a disk here and a copy there have the same content.
    pub(crate) fn is_same(&self, disk: u128, other: &Host, copy: u128) {
        let read = |path: PathBuf| fs::read(path).expect("the file is there");
        assert!(read(self.file(disk)) == read(other.file(copy)), "{disk} and its copy {copy} differ");
    }

    async fn mirror_call(&self, call: mirror_call::Call) -> Result<Output, String> {
        self.bench.output(Call::Mirror(MirrorCall { call: Some(call) })).await
    }

    /// Serves a copy to a node; its port.
    pub(crate) async fn serve(&self, copy: u128, peer: &str) -> Result<u32, String> {
        let serve = CopiesServe {
            copies: vec![ServedCopy { copy_uuid: uuid(copy), size_mib: SIZE_MIB }],
            peer: peer.to_owned(),
            listen_ip: self.address.to_string(),
        };
        Ok(self.mirror_call(mirror_call::Call::Serve(serve)).await?.ports[&uuid(copy)])
    }

    pub(crate) async fn release(&self, copy: u128) -> Result<Output, String> {
        let release = CopiesRelease { copy_uuids: vec![uuid(copy)] };
        self.mirror_call(mirror_call::Call::Release(release)).await
    }

    /// Whether a copy has been served to a node all the time.
    pub(crate) async fn served(&self, copy: u128, peer: &str) -> MirrorStatus {
        let served = CopiesServed { copy_uuids: vec![uuid(copy)], peer: peer.to_owned() };
        let told = self.mirror_call(mirror_call::Call::Served(served)).await.expect("it tells");
        MirrorStatus::try_from(told.mirrors[&uuid(copy)]).expect("a status")
    }

    /// Makes a copy follow a disk of the guest, and waits until it has everything.
    pub(crate) async fn mirror(
        &self,
        disk: u128,
        to: &Host,
        (copy, port): (u128, u32),
        sync: MirrorSync,
    ) -> Result<Output, String> {
        let start = MirrorsStart {
            instance_uuid: uuid(1),
            name: "web1".to_owned(),
            peer: to.name.clone(),
            ip: to.address.to_string(),
            mirrors: vec![MirrorLink { disk_uuid: uuid(disk), copy_uuid: uuid(copy), port }],
            sync: sync.into(),
            wait: true,
        };
        self.mirror_call(mirror_call::Call::Start(start)).await
    }

    pub(crate) async fn end_mirror(&self, copy: u128) -> Result<Output, String> {
        let stop = MirrorsStop { instance_uuid: uuid(1), copy_uuids: vec![uuid(copy)] };
        self.mirror_call(mirror_call::Call::Stop(stop)).await
    }

    pub(crate) async fn clean(&self, copy: u128) -> Result<Output, String> {
        let clean = MirrorsClean { instance_uuid: uuid(1), copy_uuids: vec![uuid(copy)] };
        self.mirror_call(mirror_call::Call::Clean(clean)).await
    }

    /// Vouches for a copy of a disk.
    pub(crate) async fn trust(&self, disk: u128, copy: u128) -> Result<Output, String> {
        let (copy_uuids, disk_uuids) = (vec![uuid(copy)], vec![uuid(disk)]);
        let trust = MirrorsTrust { instance_uuid: uuid(1), copy_uuids, disk_uuids };
        self.mirror_call(mirror_call::Call::Trust(trust)).await
    }

    /// What the mirror to a copy does, as a call tells it.
    pub(crate) async fn check(&self, copy: u128) -> MirrorStatus {
        self.checked(copy).await.expect("something is known of it")
    }

    /// The same of a copy of which nothing may be known.
    pub(crate) async fn checked(&self, copy: u128) -> Option<MirrorStatus> {
        let check = MirrorsCheck { instance_uuid: uuid(1), copy_uuids: vec![uuid(copy)] };
        let told = self.mirror_call(mirror_call::Call::Check(check)).await.expect("it tells");
        let of_copy: HashMap<String, i32> = told.mirrors;
        of_copy.get(&uuid(copy)).map(|status| MirrorStatus::try_from(*status).expect("a status"))
    }

    /// Waits until the node's state says this of the mirror to a copy.
    pub(crate) async fn is(&self, copy: u128, status: MirrorStatus) {
        let same = async || {
            let guests = self.bench.program.state().await.guests;
            let mirrors = guests.into_iter().flat_map(|guest| guest.mirrors);
            mirrors
                .into_iter()
                .any(|mirror| mirror.copy_uuid == uuid(copy) && mirror.status() == status)
                .then_some(())
        };
        wait_for(same).await;
    }

    /// The process that serves a copy.
    pub(crate) async fn server(&self, copy: u128) -> i32 {
        let pid = self.bench.program.path("state_dir/node/serving").join(uuid(copy)).join("pid");
        wait_for(async || fs::read_to_string(&pid).ok()?.trim().parse().ok()).await
    }

    pub(crate) async fn snapshot(&self, from: u128, to: u128) -> Result<String, String> {
        let disks = vec![DiskSnapshot { disk_uuid: uuid(from), snapshot_uuid: uuid(to) }];
        let call = DisksSnapshot { instance_uuid: uuid(1), name: "web1".to_owned(), disks };
        self.bench.call(Call::DisksSnapshot(call)).await
    }

    pub(crate) async fn resume(&self) -> Result<String, String> {
        let call = GuestResume { instance_uuid: uuid(1), name: "web1".to_owned() };
        self.bench.call(Call::GuestResume(call)).await
    }

    /// Makes it await the guest from a node of that name; the port.
    pub(crate) async fn receive(&self, guest: Guest, peer: &str) -> Result<u32, String> {
        let receive =
            MigrateReceive { guest: Some(guest), peer: peer.to_owned(), listen_ip: self.address.to_string() };
        let call = migration(migration_call::Call::Receive(receive));
        Ok(self.bench.output(call).await?.ports[&uuid(1)])
    }

    pub(crate) async fn send(&self, to: &Host, port: u32) -> Result<String, String> {
        let send = MigrateSend {
            instance_uuid: uuid(1),
            name: "web1".to_owned(),
            peer: to.name.clone(),
            ip: to.address.to_string(),
            port,
        };
        self.bench.call(migration(migration_call::Call::Send(send))).await
    }

    pub(crate) async fn finish(&self) -> Result<String, String> {
        let finish = MigrateFinish { instance_uuid: uuid(1), name: "web1".to_owned() };
        self.bench.call(migration(migration_call::Call::Finish(finish))).await
    }

    pub(crate) async fn cancel(&self) -> Result<String, String> {
        let cancel = MigrateCancel { instance_uuid: uuid(1), name: "web1".to_owned() };
        self.bench.call(migration(migration_call::Call::Cancel(cancel))).await
    }
}

impl Drop for Host {
    /// What serves copies outlives the daemon.
    fn drop(&mut self) {
        let folder = self.bench.program.path("state_dir/node/serving");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let pid = fs::read_to_string(entry.path().join("pid")).unwrap_or_default();
            if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
                let _ended_already_is_fine = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn migration(call: migration_call::Call) -> Call {
    Call::Migration(MigrationCall { call: Some(call) })
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process has a number"), signal).expect("a signal can be sent");
}
