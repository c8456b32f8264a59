#!/bin/sh
# Puts the example hooks into a node's hook directory: install.sh [HOOKS_DIR], default /etc/ganeti/hooks.
set -eu
from=$(dirname "$0")
to=${1:-/etc/ganeti/hooks}

# put SCRIPT DIRECTORY
put() {
    mkdir -p "$to/$2"
    cp "$from/$1" "$to/$2/.$1.new"
    chmod 755 "$to/$2/.$1.new"
    mv "$to/$2/.$1.new" "$to/$2/$1"
    echo "$to/$2/$1"
}

put 10-allow-list instance-add-pre.d
for operation in instance-shutdown instance-failover instance-remove mirror-replace; do
    put 20-maintenance-window "$operation-pre.d"
done
for operation in cluster-init master-failover node-add node-remove instance-add instance-export instance-start instance-shutdown \
    instance-modify instance-failover instance-remove mirror-add mirror-remove mirror-replace; do
    put 90-audit-log "$operation-post.d"
done
