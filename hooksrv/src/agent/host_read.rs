//! Reads what a host is from the kernel's and the system's files. What is missing, or looks otherwise than known, gives an
//! absent value and never an error.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use muster_core::facts::{HostDisk, NodeFacts};

/// The most that is read of one file: the kernel writes about 2 KiB on each processor.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Where the system's release is described; the first that is there counts.
const OS_RELEASE: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];
/// Block devices that are no disks of the host: images, memory, discs that can be taken out, and what lies above disks.
const NO_DISKS: [&str; 8] = ["loop", "ram", "zram", "sr", "fd", "nbd", "dm-", "md"];
/// Sectors of the kernel's tables in a MiB.
const SECTORS_IN_MIB: u64 = 2048;

/// All facts but those of hypervisors. Blocks.
pub(super) fn host(root: &Path) -> NodeFacts {
    let text = |path: &str| text(&root.join(path));
    let release = OS_RELEASE.iter().map(|path| text(path)).find(|text| !text.is_empty()).unwrap_or_default();
    let release = os_release(&release);
    let of_release = |key: &str| release.get(key).cloned().unwrap_or_default();
    let (cpus, cpu_model) = processors(&text("proc/cpuinfo"));
    let mut addresses = ipv4_addresses(&text("proc/net/fib_trie"));
    addresses.extend(ipv6_addresses(&text("proc/net/if_inet6")));
    NodeFacts {
        cpus,
        cpu_model,
        memory_mib: memory_mib(&text("proc/meminfo")),
        disks: disks(&root.join("sys/block")),
        addresses,
        os_name: of_release("ID"),
        os_version: of_release("VERSION_ID"),
        os_sp: service_pack(&release, &text("etc/debian_version")),
        os_string: os_string(&release),
        kernel: text("proc/sys/kernel/osrelease").trim().to_owned(),
        hypervisors: Vec::new(),
        qemu_version: String::new(),
    }
}

/// A file's beginning as text; empty where there is none.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    // A named pipe or a device in the place of a file must not hold the reader up.
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file && let Ok(file) = File::open(path) {
        // What was read before an error is as good as a short file.
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The assignments of an os-release file, quotes taken away.
fn os_release(text: &str) -> BTreeMap<String, String> {
    let assignments = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let assignments = assignments.filter_map(|line| line.split_once('='));
    assignments.map(|(key, value)| (key.to_owned(), unquoted(value))).collect()
}

/// The text that a shell would read.
fn unquoted(value: &str) -> String {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    if let Some(plain) = inner('\'') {
        return plain.to_owned();
    }
    let mut plain = String::new();
    let mut chars = inner('"').unwrap_or(value).chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

/// The line for people, or one made of name and version.
fn os_string(release: &BTreeMap<String, String>) -> String {
    let field = |key: &str| release.get(key).map_or("", String::as_str);
    match field("PRETTY_NAME") {
        "" => format!("{} {}", field("NAME"), field("VERSION")).trim().to_owned(),
        pretty => pretty.to_owned(),
    }
}

/// `5` of `15-SP5`, or the point release that Debian keeps in a file of its own.
fn service_pack(release: &BTreeMap<String, String>, debian_version: &str) -> String {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let version = release.get("VERSION").map_or("", String::as_str);
    if let Some((_, rest)) = version.split_once("-SP") {
        return digits(rest);
    }
    if release.get("ID").is_some_and(|id| id == "debian") {
        return debian_version.trim().split_once('.').map(|(_, point)| digits(point)).unwrap_or_default();
    }
    String::new()
}

/// How many processors there are, and what the first calls itself.
fn processors(cpuinfo: &str) -> (Option<u32>, String) {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let fields: Vec<(&str, &str)> = fields.map(|(key, value)| (key.trim(), value.trim())).collect();
    let count = fields.iter().filter(|(key, _)| *key == "processor").count();
    let model = ["model name", "Model", "cpu model", "cpu"]
        .iter()
        .find_map(|wanted| fields.iter().find(|(key, value)| key == wanted && !value.is_empty()));
    let model = model.map(|(_, value)| (*value).to_owned()).unwrap_or_default();
    (u32::try_from(count).ok().filter(|count| *count > 0), model)
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// The host's block devices, by name.
fn disks(folder: &Path) -> Vec<HostDisk> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let disk = |name: String| {
        let sectors: u64 = text(&folder.join(&name).join("size")).trim().parse().ok()?;
        (sectors > 0).then_some(HostDisk { name, size_mib: sectors / SECTORS_IN_MIB })
    };
    let is_disk = |name: &String| {
        !NO_DISKS.iter().any(|prefix| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let mut disks: Vec<HostDisk> = names.filter(is_disk).filter_map(disk).collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks
}

/// The addresses that the kernel's routing table calls local, without those of loopback; each may come twice.
fn ipv4_addresses(fib_trie: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => last = address.parse().ok(),
            None if line == "/32 host LOCAL" => {
                let known = last.filter(|address| !address.is_loopback());
                found.extend(known.map(IpAddr::from).filter(|address| !found.contains(address)));
            }
            None => {}
        }
    }
    found
}

/// The addresses of all network devices that others can reach: neither loopback nor of one link only.
fn ipv6_addresses(if_inet6: &str) -> Vec<IpAddr> {
    let digits = if_inet6.lines().filter_map(|line| line.split_whitespace().next());
    let addresses = digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok()).map(Ipv6Addr::from);
    addresses.filter(|ip| !ip.is_loopback() && !ip.is_unicast_link_local()).map(IpAddr::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\nID=debian\n";
    const SLES: &str = "# a comment\nNAME='SLES'\nVERSION=\"15-SP5\"\nVERSION_ID=\"15.5\"\nID=\"sles\"\n";

    #[test]
    fn the_system_is_read_as_a_shell_would() {
        let check = |text: &str, debian: &str, expected: [&str; 4]| {
            let release = os_release(text);
            let field = |key: &str| release.get(key).cloned().unwrap_or_default();
            let found =
                [field("ID"), field("VERSION_ID"), service_pack(&release, debian), os_string(&release)];
            assert_eq!(found, expected);
        };
        check(DEBIAN, "12.7\n", ["debian", "12", "7", "Debian GNU/Linux 12 (bookworm)"]);
        check(DEBIAN, "bookworm/sid\n", ["debian", "12", "", "Debian GNU/Linux 12 (bookworm)"]);
        check(SLES, "", ["sles", "15.5", "5", "SLES 15-SP5"]);
        check("ID=x\\ y\nPRETTY_NAME=\"a \\\"b\\\"\"\nbroken\n=\n", "", ["x y", "", "", "a \"b\""]);
        check("", "12.7", ["", "", "", ""]);
    }

    #[test]
    fn processors_of_several_kinds_of_machine() {
        let x86 = "processor\t: 0\nmodel name\t: Big CPU @ 2.0GHz\n\nprocessor\t: 1\nmodel name\t: Big CPU\n";
        assert_eq!(processors(x86), (Some(2), "Big CPU @ 2.0GHz".to_owned()));
        let arm = "processor\t: 0\nBogoMIPS\t: 100\n\nModel\t\t: Some Board\n";
        assert_eq!(processors(arm), (Some(1), "Some Board".to_owned()));
        assert_eq!(processors(""), (None, String::new()));
        assert_eq!(memory_mib("MemTotal:  4028440 kB\n"), Some(3934));
        assert_eq!(memory_mib("MemTotal:\n"), None);
    }

    #[test]
    fn addresses_of_loopback_and_of_one_link_are_left_out() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n     |-- 192.0.2.7\n        /32 host LOCAL\n";
        assert_eq!(ipv4_addresses(trie), [IpAddr::from([192, 0, 2, 7])]);
        let table = "20010db8000000000000000000000001 02 40 00 80 eth0\nfe8000000000000000fc00fffe000001 02 40 20 80 eth0\n00000000000000000000000000000001 01 80 10 80 lo\nnonsense\n";
        assert_eq!(ipv6_addresses(table), ["2001:db8::1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_host_that_tells_nothing_has_no_facts_and_is_no_error() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(host(empty.path()), NodeFacts::default());
        // A directory where a file is expected is as good as none.
        fs::create_dir_all(empty.path().join("etc/os-release")).unwrap();
        fs::create_dir_all(empty.path().join("proc/cpuinfo")).unwrap();
        assert_eq!(host(empty.path()), NodeFacts::default());
    }

    #[test]
    fn disks_are_those_of_the_host() {
        let root = tempfile::tempdir().unwrap();
        for (name, sectors) in
            [("vda", "204800"), ("loop0", "8"), ("nvme0n1", "4096"), ("sdb", "0"), ("mdx", "2048")]
        {
            let folder = root.path().join("sys/block").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("size"), format!("{sectors}\n")).unwrap();
        }
        let disks = host(root.path()).disks;
        let found: Vec<(&str, u64)> = disks.iter().map(|disk| (disk.name.as_str(), disk.size_mib)).collect();
        assert_eq!(found, [("mdx", 1), ("nvme0n1", 2), ("vda", 100)]);
    }

    #[test]
    fn this_host_tells_something() {
        let facts = host(Path::new("/"));
        assert!(!facts.kernel.is_empty(), "{facts:?}");
    }
}
