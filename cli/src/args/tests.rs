//! Command lines that are taken, and those that are refused.

use super::*;

fn parsed(line: &str) -> CommandLine {
    parse(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// The text of a refusal; its exit code must be 2.
fn refused(line: &str) -> String {
    let error = match parse(words(line)) {
        Err(error) => error,
        Ok(line) => panic!("taken: {line:?}"),
    };
    assert_eq!(error.exit_code(), 2, "{line}");
    error.to_string()
}

#[test]
fn the_definitions_hold_together() {
    Gnt::command().debug_assert();
}

#[test]
fn a_link_and_its_group_are_the_same() {
    for (group, verb) in [
        ("cluster", "info --json"),
        ("node", "list node1 -o name"),
        ("instance", "remove -f web1"),
        ("backup", "export -n node1 web1"),
        ("job", "wait 7"),
        ("hooks", "list"),
        ("os", "diagnose deb -o name"),
    ] {
        let long = parsed(&format!("gnt {group} {verb}"));
        let link = parsed(&format!("/usr/bin/gnt-{group} {verb}"));
        assert_eq!(format!("{long:?}"), format!("{link:?}"));
    }
    let usage = refused("gnt-instance start");
    assert!(usage.contains("Usage: gnt-instance start"), "{usage}");
}

/// One of each form that the documents print.
const PRINTED: &[&str] = &[
    "gnt-cluster init dev",
    "gnt-cluster verify --json",
    "gnt-cluster getmaster",
    "gnt-cluster master-failover -f",
    "gnt-cluster renew-certs",
    "gnt-cluster renew-certs node1 node2",
    "gnt-cluster modify --hook-exit-codes graded",
    "gnt-cluster modify --hook-on-error default --hook-unreachable deny --hook-timeout allow",
    "gnt-cluster modify --hook-master-required no --hook-timeout-max 24h",
    "gnt-cluster destroy dev -f",
    "gnt-cluster client-cert sign ci --role operator --out /tmp",
    "gnt-cluster client-cert list --json",
    "gnt-cluster client-cert revoke ci --submit",
    "gnt-node token create",
    "gnt-node token create --node node4 --lifetime 10m",
    "gnt-node pending --no-headers",
    "gnt-node add node4 -s 192.0.2.4 --address 2001:db8::4 --readd",
    "gnt-node remove node4 --dry-run --reason weekly",
    "gnt-node list -o +age --separator=| --no-headers",
    "gnt-node info --json node1",
    "gnt-node modify node1 --offline yes --drained no",
    "gnt-node migrate node1",
    "gnt-node migrate -f node1",
    "gnt-node evacuate node1",
    "gnt-node evacuate --force node1",
    "gnt-node evacuate -p --ignore-consistency --fenced node1",
    "gnt-node evacuate -s -n node2 node1",
    "gnt-node evacuate -a node1 --submit",
    "gnt-instance move -n node2 web1",
    "gnt-instance move -f -n node2 web1",
    "gnt-instance recreate-disks web1",
    "gnt-instance recreate-disks --disk sda --disk 1 web1",
    "gnt-instance recreate-disks -n node1:node2 web1",
    "gnt-cluster rename prod",
    "gnt-cluster rename -f prod",
    "gnt-instance add -t diskless -n node1 -o none web1",
    "gnt-instance add -t file -n node1 -s 10G --swap-size 512M -m 1G -p 2 -i 192.0.2.9 -o none --no-start web1",
    "gnt-instance add -t remote_raid1 -n node1:node2 -s 1024 -m 512 -p 1 -i none -o none web1",
    "gnt-instance add -t drbd -n node1:node2 -s 1T -o debian web1",
    "gnt-instance list --live",
    "gnt-instance start --force web1 web2",
    "gnt-instance startup web1",
    "gnt-instance shutdown --timeout 5 web1",
    "gnt-instance stop web1 --submit",
    "gnt-instance shutdown --fenced web1",
    "gnt-node evacuate -p --ignore-unmovable node1",
    "gnt-node migrate --ignore-unmovable node1",
    "gnt-instance modify -m 2G -p 4 -i none web1",
    "gnt-instance set -i 192.0.2.7 web1",
    "gnt-instance failover -f --ignore-consistency web1",
    "gnt-instance remove -f web1",
    "gnt-instance add-mirror -b sda -n node3 web1",
    "gnt-instance remove-mirror -b sdb -p 3 web1",
    "gnt-instance replace-disks web1",
    "gnt-instance replace-disks -n node3 web1",
    "gnt-backup export -n node2 --noshutdown web1",
    "gnt-backup import -t file -n node1 -s 1G -o none --src-node node2 --src-dir web1 web9",
    "gnt-backup import -t mirror -n node1:node3 --src-node node2 web1",
    "gnt-backup list --node node1 --node node2 --json",
    "gnt-job list --running",
    "gnt-job info 17 18 --verbose",
    "gnt-job cancel 17",
    "gnt-job cancel 17 18 --kill",
    "gnt-job repair 17 --reason again",
    "gnt-job archive 17 18 --json",
    "gnt-job autoarchive 7d",
    "gnt-job autoarchive all --json",
    "gnt-cluster queue drain",
    "gnt-cluster queue undrain",
    "gnt-cluster queue pause --json",
    "gnt-cluster queue resume",
    "gnt-cluster queue info --json",
    "gnt-instance start web1 --depend 12 --depend 13:error,canceled --priority high",
    "gnt-instance start --priority -20 web1",
    "gnt-instance start --priority=-5 web1 --submit",
    "gnt-job watch 17",
    "gnt-hooks list node1",
    "gnt-group add rack2",
    "gnt-group assign-nodes rack2 node3",
    "gnt-group modify --alloc-policy last_resort rack2",
    "gnt-node add --node-group rack2 node4",
    "gnt-network add --network 198.51.100.0/24 --gateway 198.51.100.254 --mac-prefix aa:00:55 lan",
    "gnt-network connect -N mode=bridged,link=br0 lan default",
    "gnt-network modify --add-reserved-ips 198.51.100.9 lan",
    "gnt-node add-tags node2 site:north",
    "gnt-instance add-tags web1 --from -",
    "gnt-cluster remove-tags --from /tmp/tags old",
    "gnt-cluster search-tags site:*",
    "gnt-instance add -t file -n node1 -s 1G -o none --tags prod,site:north web1",
    "gnt-backup import -t mirror -n node1:node3 --src-node node2 --tags prod web1",
    "gnt-hooks policy set instance-add-pre.d exit_codes=graded timeout=allow kill_limit=5s phase_budget=10s",
    "gnt-hooks policy list",
    "gnt-hooks policy reset instance-add-pre.d",
    "gnt-hooks sync --node node2",
    "gnt-hooks sync --full",
    "gnt-hooks sync --on-change",
    "gnt-hooks diff",
    "gnt-hooks history --failed --since 24h",
    "gnt-hooks history --node node2 --script instance-*-pre.d/* -o +detail",
    "gnt-hooks run node2 instance-start-pre.d/10-quota --from-job 17",
    "gnt-hooks lint --hooks-version 2",
    "gnt-cluster command /bin/uname -r",
    "gnt-cluster command --fold -n node2 -n node3 --timeout 10m /usr/bin/apt-get install htop",
    "gnt-cluster copyfile /etc/motd",
    "gnt --master 192.0.2.1:1810 --cert c --key k --ca a node list",
    "gnt node list --master 192.0.2.1:1810 --cert c --key k --ca a",
];

#[test]
fn all_printed_forms_are_taken() {
    for line in PRINTED {
        parsed(line);
    }
}

#[test]
fn the_forms_for_guests_are_taken() {
    for line in [
        "gnt-cluster init dev --hypervisor fake",
        "gnt-cluster modify --accel tcg --nic bridge:br0 --fence-command /usr/sbin/fence",
        "gnt-instance reboot web1 web2",
        "gnt-instance reboot -t hard web1",
        "gnt-instance reboot --type full web1 --submit",
        "gnt-instance reinstall -f web1",
        "gnt-instance reinstall -o debian -f web1",
        "gnt-instance rename web1 web9",
        "gnt-instance grow-disk web1 sda 2G",
        "gnt-instance grow-disk web1 1 64",
        "gnt-instance console web1",
        "gnt-os list --no-headers",
        "gnt-os info --json debian",
        "gnt-os diagnose",
    ] {
        parsed(line);
    }
}

#[test]
fn the_forms_for_hooks_are_taken() {
    for line in [
        "gnt-hooks explain instance add -t file -n node1 -s 64M -o none web1",
        "gnt-hooks explain --new-master node2 --json cluster master-failover",
        "gnt-hooks init --dir /tmp/hooks --json",
        "gnt-hooks init --config noded.toml",
        "gnt-hooks lint",
        "gnt-hooks lint /tmp/hooks --daemon-user 7 --json",
    ] {
        parsed(line);
    }
}

#[test]
fn wrong_usage_is_refused_and_names_the_value() {
    let long = "a".repeat(254);
    for (line, part) in [
        ("gnt", "Usage"),
        ("gnt-node", "Usage"),
        ("gnt node lst", "list"),
        ("gnt-cluster modify", "--hook-exit-codes"),
        ("gnt-cluster modify --hook-exit-codes lax", "strict"),
        ("gnt-cluster modify --hook-master-required maybe", "yes or no"),
        ("gnt-cluster modify --hook-timeout-max 0s", "zero"),
        ("gnt-cluster init Dev", "\"Dev\" is not valid"),
        ("gnt-cluster client-cert sign ci --role root", "operator"),
        ("gnt-node modify node1", "--offline"),
        ("gnt-node add -x", "-x"),
        ("gnt-node add node_1", "\"node_1\""),
        ("gnt-node add node1 -s 1.2.3", "1.2.3"),
        (&format!("gnt-node add {long}"), "longer than 253"),
        ("gnt-instance add -t file -n node1 -o none web1", "--os-size"),
        ("gnt-instance add -t tape -n node1 -s 1G -o none web1", "mirror"),
        ("gnt-instance add -t file -n node1 -s 0 -o none web1", "size of 0"),
        ("gnt-instance add -t file -n node1 -s -5G -o none web1", "negative"),
        ("gnt-instance add -t file -n node1 -s 5X -o none web1", "unknown unit"),
        ("gnt-instance add -t file -n node1 -s 99999999999999999999 -o none web1", "too large"),
        ("gnt-instance add -t file -n node1 -s 1G -p 0 -o none web1", "from 1"),
        ("gnt-instance add -t file -n node1: -s 1G -o none web1", "it is empty"),
        ("gnt-instance modify web1", "--memory"),
        ("gnt-instance start", "NAME"),
        ("gnt-instance add-mirror -b sdc -n node1 web1", "sda"),
        ("gnt-instance remove-mirror -b sda -p -1 web1", "-1"),
        ("gnt-hooks explain", "<OPERATION>"),
        ("gnt-hooks explain --new-master node_2 cluster master-failover", "node_2"),
        ("gnt-hooks lint a b", "'b'"),
        ("gnt-job info x", "'x'"),
        ("gnt-job wait -1", "-1"),
        ("gnt-job cancel --kil 17", "--kill"),
        ("gnt-job repair", "<ID>"),
        ("gnt-job repair 0", "from 1"),
        ("gnt-job archive x", "'x'"),
        ("gnt-job archive", "<ID>"),
        ("gnt-job autoarchive 7y", "7y"),
        ("gnt-job autoarchive -5", "'-5'"),
        ("gnt-job autoarchive", "<AGE>"),
        ("gnt-cluster queue drian", "drain"),
        ("gnt-cluster queue", "Usage"),
        ("gnt-instance start web1 --depend x", "'x'"),
        ("gnt-instance start web1 --depend 12:done", "success, error and canceled"),
        ("gnt-instance start web1 --depend -1", "'-1'"),
        ("gnt-instance start web1 --priority urgent", "'urgent'"),
        ("gnt-instance start web1 --priority 20", "-20 (first) to 19 (last)"),
        ("gnt-instance start web1 --priority -21", "'-21'"),
        ("gnt-instance list --json --separator=,", "cannot be used with"),
        ("gnt-cluster search-tags ^site:", "no regular expression"),
        ("gnt-cluster search-tags site:.*", "for example 'site:*'"),
        ("gnt-cluster search-tags (a|b)", "no tag has such characters"),
        ("gnt-cluster add-tags", "<TAG>"),
        ("gnt-instance add -t file -n node1 -s 1G -o none --tags a,b|c web1", "\"b|c\""),
    ] {
        let text = refused(line);
        assert!(text.contains(part), "{line}: {text}");
        assert!(text.starts_with("error: ") || part == "Usage", "{line}: {text}");
    }
    let long_reason = ["gnt-instance", "start", "web1", "--reason", &"x".repeat(1025)].map(OsString::from);
    let error = parse(long_reason.to_vec()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("1024 bytes"), "{error}");
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    use std::os::unix::ffi::OsStringExt;
    let argv =
        vec![OsString::from("gnt-instance"), OsString::from("start"), OsString::from_vec(b"w\xe9b".to_vec())];
    let error = parse(argv).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("argument 2 is not UTF-8"), "{error}");
}

#[test]
fn help_and_version_are_no_errors() {
    for line in ["gnt --version", "gnt --help", "gnt-instance add --help", "gnt-cluster client-cert sign -h"]
    {
        assert_eq!(parse(words(line)).unwrap_err().exit_code(), 0, "{line}");
    }
}
