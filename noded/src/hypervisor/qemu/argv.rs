//! The command line of a guest, by a pure function: what stands here is all that QEMU is told at the start.

use std::path::Path;

use muster_core::hypervisor::NicMode;
use serde_json::json;
use uuid::Uuid;

use super::{
    super::{Accel, Boot},
    files::GuestFiles,
};

/// Spare ports into which network cards and disks can be plugged while the guest runs.
const SPARE_PORTS: u32 = 4;

/// A guest as QEMU is to make it.
#[derive(Debug, Clone)]
pub(crate) struct Machine<'a> {
    pub(crate) uuid: Uuid,
    pub(crate) name: &'a str,
    pub(crate) memory_mib: u64,
    pub(crate) vcpus: u32,
    pub(crate) accel: Accel,
    /// The files of its disks, in the order in which the guest sees them.
    pub(crate) disks: Vec<&'a Path>,
    pub(crate) nic: &'a NicMode,
    pub(crate) mac: &'a str,
    /// What it boots where that is not what is on its first disk.
    pub(crate) boot: Option<&'a Boot>,
    pub(crate) files: &'a GuestFiles,
    pub(crate) begin: Begin,
}

/// What a guest does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// It computes.
    Running,
    /// It waits until it is told to.
    Paused,
    /// It awaits the state of another, and then it waits until it is told to compute.
    Incoming,
}

/// The block node of a guest's disk, by its place.
pub(crate) fn disk_node(index: usize) -> String {
    format!("disk{index}")
}

/// All arguments, the program's name left out.
pub(crate) fn arguments(machine: &Machine<'_>) -> Vec<String> {
    let mut line = Line::default();
    line.option("-name", format!("guest={},debug-threads=on", comma(machine.name)));
    line.option("-uuid", machine.uuid.to_string());
    // A guest can learn its name (`product_serial`): several may boot the same system.
    line.option("-smbios", format!("type=1,manufacturer=Muster,serial={}", comma(machine.name)));
    let (accel, cpu) = match machine.accel {
        Accel::Kvm => ("kvm", "host"),
        Accel::Tcg => ("tcg", "qemu64"),
    };
    line.option("-machine", format!("q35,accel={accel}"));
    line.option("-cpu", cpu);
    line.option("-m", format!("size={}M", machine.memory_mib));
    line.option("-smp", format!("cpus={}", machine.vcpus));
    line.0.extend(["-nodefaults", "-no-user-config"].map(str::to_owned));
    line.option("-display", "none");
    line.option("-rtc", "base=utc");
    line.option("-msg", "timestamp=on");
    // A guest that shuts itself down waits until that was seen: so it is never taken for one that crashed.
    line.option("-action", "shutdown=pause,reboot=reset");
    line.option("-pidfile", text(&machine.files.pid));
    sockets(&mut line, machine.files);
    for number in 0..SPARE_PORTS {
        line.option("-device", format!("pcie-root-port,id=rp{number},chassis={}", number + 1));
    }
    for (index, path) in machine.disks.iter().enumerate() {
        disk(&mut line, index, path);
    }
    nic(&mut line, machine);
    line.option("-object", "rng-random,id=rng0,filename=/dev/urandom");
    line.option("-device", "virtio-rng-pci,rng=rng0");
    if let Some(kernel) = machine.boot {
        boot(&mut line, kernel);
    }
    match machine.begin {
        Begin::Running => {}
        Begin::Paused => line.0.push("-S".to_owned()),
        Begin::Incoming => {
            line.0.push("-S".to_owned());
            line.option("-incoming", "defer");
        }
    }
    // The bridge helper is a program of its own, with privileges.
    if !matches!(machine.nic, NicMode::Bridge(_)) {
        line.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    }
    line.0
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn option(&mut self, name: &str, value: impl Into<String>) {
        self.0.push(name.to_owned());
        self.0.push(value.into());
    }
}

/// A value within a list of `name=value`: QEMU reads a doubled comma as one.
fn comma(text: &str) -> String {
    text.replace(',', ",,")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Two control sockets, since each serves one client: the daemon's, and one for whoever looks after the guest by hand.
fn sockets(line: &mut Line, files: &GuestFiles) {
    for (id, path) in [("control", &files.control), ("operator", &files.operator)] {
        let socket = format!("socket,id={id},path={},server=on,wait=off", comma(&text(path)));
        line.option("-chardev", socket);
        line.option("-mon", format!("chardev={id},mode=control"));
    }
    let (socket, log) = (comma(&text(&files.console)), comma(&text(&files.console_log)));
    let console = format!("socket,id=console,path={socket},server=on,wait=off,logfile={log},logappend=on");
    line.option("-chardev", console);
    line.option("-serial", "chardev:console");
}

fn disk(line: &mut Line, index: usize, path: &Path) {
    let node = disk_node(index);
    let file = json!({
        "driver": "file", "node-name": format!("{node}-file"), "filename": text(path), "discard": "unmap",
    });
    let raw = json!({ "driver": "raw", "node-name": node, "file": format!("{node}-file") });
    line.option("-blockdev", file.to_string());
    line.option("-blockdev", raw.to_string());
    line.option("-device", format!("virtio-blk-pci,drive={node},id=vd-{node},bootindex={}", index + 1));
}

fn nic(line: &mut Line, machine: &Machine<'_>) {
    match machine.nic {
        NicMode::None => return,
        NicMode::User => line.option("-netdev", "user,id=net0"),
        NicMode::Bridge(bridge) => line.option("-netdev", format!("bridge,id=net0,br={}", comma(bridge))),
    }
    line.option("-device", format!("virtio-net-pci,netdev=net0,id=nic0,mac={}", machine.mac));
}

fn boot(line: &mut Line, boot: &Boot) {
    line.option("-kernel", text(&boot.kernel));
    if let Some(initrd) = &boot.initrd {
        line.option("-initrd", text(initrd));
    }
    if !boot.append.is_empty() {
        line.option("-append", boot.append.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> GuestFiles {
        GuestFiles::of(Path::new("/state"), Path::new("/run"), Uuid::from_u128(7))
    }

    /// One option a line, as people read it.
    fn golden(machine: &Machine<'_>) -> String {
        let arguments = arguments(machine);
        let mut text = String::new();
        for argument in arguments {
            text.push_str(if argument.starts_with('-') { "\n" } else { " " });
            text.push_str(&argument);
        }
        text.trim_start().to_owned()
    }

    #[test]
    fn the_whole_line_of_a_guest_with_kernel_disks_and_network() {
        let files = files();
        let boot = Boot {
            kernel: "/os/vmlinuz".into(),
            initrd: Some("/os/initrd".into()),
            append: "console=ttyS0 quiet".to_owned(),
        };
        let machine = Machine {
            uuid: Uuid::from_u128(7),
            name: "web1.example",
            memory_mib: 96,
            vcpus: 2,
            accel: Accel::Tcg,
            disks: vec![Path::new("/srv/a,b.raw"), Path::new("/srv/c.raw")],
            nic: &NicMode::User,
            mac: "aa:00:00:00:00:01",
            boot: Some(&boot),
            files: &files,
            begin: Begin::Running,
        };
        let guest = "00000000-0000-0000-0000-000000000007";
        let expected = format!(
            r#"-name guest=web1.example,debug-threads=on
-uuid {guest}
-smbios type=1,manufacturer=Muster,serial=web1.example
-machine q35,accel=tcg
-cpu qemu64
-m size=96M
-smp cpus=2
-nodefaults
-no-user-config
-display none
-rtc base=utc
-msg timestamp=on
-action shutdown=pause,reboot=reset
-pidfile /state/{guest}/pid
-chardev socket,id=control,path=/run/{guest}.q,server=on,wait=off
-mon chardev=control,mode=control
-chardev socket,id=operator,path=/run/{guest}.o,server=on,wait=off
-mon chardev=operator,mode=control
-chardev socket,id=console,path=/run/{guest}.c,server=on,wait=off,logfile=/state/{guest}/console.log,logappend=on
-serial chardev:console
-device pcie-root-port,id=rp0,chassis=1
-device pcie-root-port,id=rp1,chassis=2
-device pcie-root-port,id=rp2,chassis=3
-device pcie-root-port,id=rp3,chassis=4
-blockdev {{"discard":"unmap","driver":"file","filename":"/srv/a,b.raw","node-name":"disk0-file"}}
-blockdev {{"driver":"raw","file":"disk0-file","node-name":"disk0"}}
-device virtio-blk-pci,drive=disk0,id=vd-disk0,bootindex=1
-blockdev {{"discard":"unmap","driver":"file","filename":"/srv/c.raw","node-name":"disk1-file"}}
-blockdev {{"driver":"raw","file":"disk1-file","node-name":"disk1"}}
-device virtio-blk-pci,drive=disk1,id=vd-disk1,bootindex=2
-netdev user,id=net0
-device virtio-net-pci,netdev=net0,id=nic0,mac=aa:00:00:00:00:01
-object rng-random,id=rng0,filename=/dev/urandom
-device virtio-rng-pci,rng=rng0
-kernel /os/vmlinuz
-initrd /os/initrd
-append console=ttyS0 quiet
-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"#
        );
        assert_eq!(golden(&machine), expected);
        // The same machine, so that it can take another's state: it only begins otherwise.
        let last = "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
        for (begin, options) in [(Begin::Paused, "-S\n"), (Begin::Incoming, "-S\n-incoming defer\n")] {
            let line = golden(&Machine { begin, ..machine.clone() });
            assert_eq!(line, expected.replace(last, &format!("{options}{last}")));
        }
    }

    #[test]
    fn kvm_and_a_bridge() {
        let (files, bridge) = (files(), NicMode::Bridge("br,0".to_owned()));
        let machine = Machine {
            uuid: Uuid::from_u128(7),
            name: "db1",
            memory_mib: 4096,
            vcpus: 1,
            accel: Accel::Kvm,
            disks: Vec::new(),
            nic: &bridge,
            mac: "aa:00:00:00:00:02",
            boot: None,
            files: &files,
            begin: Begin::Incoming,
        };
        let line = golden(&machine);
        for part in
            ["-machine q35,accel=kvm", "-cpu host", "-netdev bridge,id=net0,br=br,,0", "-incoming defer"]
        {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
        assert!(!line.contains("-sandbox") && !line.contains("-kernel"), "{line}");
    }
}
