//! OS definitions and disks from outside.

use std::{fs, os::unix::fs::PermissionsExt};

use muster_proto::v1::{DiskCreate, DiskResize, ListOsesRequest, OsCreate, OsRename, node_call::Call};

use crate::{
    program::{Program, context, uuid, wait_for},
    qemu::guest,
};

fn definition(program: &Program, create: &str) {
    let folder = program.path("os_dir/debian");
    fs::create_dir_all(&folder).expect("the folder can be made");
    fs::write(folder.join("ganeti_api_version"), "20\n").expect("the file can be written");
    for script in ["create", "import", "export", "rename"] {
        let path = folder.join(script);
        fs::write(&path, format!("#!/bin/sh\n{create}\n")).expect("the file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the mode can be set");
    }
}

fn os_create(os: &str, hypervisor: &str) -> Call {
    let mut guest = guest(os);
    guest.hypervisor = hypervisor.to_owned();
    Call::OsCreate(OsCreate { guest: Some(guest), reinstall: false })
}

#[tokio::test]
async fn a_system_comes_onto_the_disk_whatever_runs_the_guest() {
    let program = Program::start().await;
    definition(&program, "echo $HYPERVISOR $INSTANCE_NAME $OLD_INSTANCE_NAME >$DISK_0_PATH");
    let size = |size_mib| DiskCreate { disk_uuid: uuid(2), size_mib };
    program.call("1/1/1", Call::DiskCreate(size(16))).await.unwrap();
    let disk = program.path("storage_dir").join(format!("{}.raw", uuid(2)));
    for (id, hypervisor, said) in [("1/2/1", "fake", "fake web1\n"), ("1/3/1", "qemu", "kvm web1\n")] {
        program.call(id, os_create("debian", hypervisor)).await.unwrap();
        assert_eq!(fs::read_to_string(&disk).unwrap(), said);
    }
    let rename = OsRename { guest: Some(guest("debian")), old_name: "old1".to_owned() };
    program.call("1/4/1", Call::OsRename(rename)).await.unwrap();
    assert_eq!(fs::read_to_string(&disk).unwrap(), "kvm web1 old1\n");
    let resize = |size_mib| Call::DiskResize(DiskResize { disk_uuid: uuid(2), size_mib });
    for (id, size_mib) in [("2/1/1", 32), ("2/2/1", 16)] {
        program.call(id, resize(size_mib)).await.unwrap();
        assert_eq!(program.state().await.disks[0].size_mib, size_mib);
    }
    let refused = program.call("1/5/1", os_create("debain", "fake")).await.unwrap_err();
    assert!(refused.ends_with("did you mean debian?"), "{refused}");
    let mut running = guest("debian");
    running.hypervisor = "fake".to_owned();
    program.call("1/6/1", crate::qemu::start(running)).await.unwrap();
    let refused = program.call("1/7/1", os_create("debian", "fake")).await.unwrap_err();
    assert!(refused.contains("web1 runs"), "{refused}");
    program.faults("[os_create]\nfail = \"no mirror\"\n");
    assert_eq!(program.call("1/8/1", os_create("debian", "fake")).await.unwrap_err(), "no mirror");
}

#[tokio::test]
async fn definitions_are_told_with_what_is_wrong() {
    let program = Program::start().await;
    let list = async || {
        let request = ListOsesRequest { context: context() };
        program.node().await.list_oses(request).await.unwrap().into_inner().oses
    };
    assert_eq!(list().await, vec![]);
    definition(&program, "exit 0");
    let good = list().await;
    assert_eq!(
        (good[0].name.as_str(), good[0].kind.as_str(), &good[0].problem),
        ("debian", "scripts", &None)
    );
    assert_eq!(good[0].path, program.path("os_dir/debian").display().to_string());
    fs::remove_file(program.path("os_dir/debian/export")).unwrap();
    let problem = list().await[0].problem.clone().unwrap();
    assert!(problem.contains("export"), "{problem}");
}

#[tokio::test]
async fn a_script_whose_daemon_died_is_ended_before_it_is_run_again() {
    let mut program = Program::start().await;
    let pids = program.path("pids");
    definition(&program, &format!("echo $$ >>{}; exec sleep 1000", pids.display()));
    let size = DiskCreate { disk_uuid: uuid(2), size_mib: 1 };
    program.call("1/1/1", Call::DiskCreate(size)).await.unwrap();
    let _stream = program.execute("1/2/1", os_create("debian", "fake")).await.unwrap();
    let pid = wait_for(async || {
        let text = fs::read_to_string(&pids).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
    .await;
    program.kill();
    let status = format!("/proc/{pid}/stat");
    assert!(!fs::read_to_string(&status).unwrap().contains(") Z "), "it goes on without the daemon");
    program.begin().await;
    let stat = fs::read_to_string(&status);
    assert!(stat.is_err() || stat.unwrap().contains(") Z "), "the script still runs");
    definition(&program, "exit 0");
    program.call("1/2/1", os_create("debian", "fake")).await.unwrap();
}
