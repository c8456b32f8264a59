#!/bin/sh
# Puts the example hooks into a node's hook directory: install.sh [HOOKS_DIR [1|2]], default /etc/ganeti/hooks and the directories
# of both versions of the hook interface, so that the guards stay where they are when the cluster's version is changed.
set -eu
from=$(dirname "$0")
to=${1:-/etc/ganeti/hooks}
versions=${2:-1 2}

# put SCRIPT DIRECTORY
put() {
    mkdir -p "$to/$2"
    cp "$from/$1" "$to/$2/.$1.new"
    chmod 755 "$to/$2/.$1.new"
    mv "$to/$2/.$1.new" "$to/$2/$1"
    echo "$to/$2/$1"
}

put 10-allow-list instance-add-pre.d
for version in $versions; do
    case $version in
    1)
        interrupting="instance-shutdown instance-failover instance-remove mirror-replace"
        all="cluster-init master-failover node-add node-remove instance-add instance-export instance-start instance-shutdown
            instance-modify instance-failover instance-remove mirror-add mirror-remove mirror-replace"
        ;;
    2)
        interrupting="instance-stop instance-failover instance-remove instance-reboot instance-reinstall instance-move mirrors-replace"
        all="cluster-init cluster-destroy cluster-modify node-add node-remove node-modify instance-add instance-export
            instance-start instance-stop instance-modify instance-failover instance-migrate instance-remove
            instance-reboot instance-reinstall instance-rename disk-grow mirror-add mirror-remove mirrors-replace
            cluster-rename cluster-verify node-migrate instance-move instance-recreate-disks group-add group-modify
            group-remove group-rename network-add network-modify network-remove network-connect network-disconnect"
        ;;
    *)
        echo "install.sh: there is no version $version of the hook interface" >&2
        exit 2
        ;;
    esac
    for operation in $interrupting; do
        put 20-maintenance-window "$operation-pre.d"
    done
    for operation in $all; do
        put 90-audit-log "$operation-post.d"
    done
done
