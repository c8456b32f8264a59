#!/bin/sh
# Builds Muster, starts a cluster of three nodes on loopback addresses with the example hooks, and shows the main job.
#
#   deploy/quickstart.sh [DIR]            DIR holds the cluster; default /tmp/muster-quickstart
#   deploy/quickstart.sh --qemu [DIR]     the same with a real guest: QEMU, its console, a failover
#
# Needs Rust and no root. The cluster stays up for you to go on with; the last lines say how, and how to end it.
set -eu
cd "$(dirname "$0")/.."
top=$PWD
qemu=
if [ "${1-}" = --qemu ]; then
    qemu=qemu
    shift
fi
case "${1-}" in
-*)
    echo "usage: deploy/quickstart.sh [--qemu] [DIR]" >&2
    exit 2
    ;;
esac
dir=${1:-/tmp/muster-quickstart}

deploy/prepare.sh $qemu
echo "Building (a few minutes the first time) ..."
cargo build --workspace --bins
programs=${CARGO_TARGET_DIR:-target}/debug

if [ -e "$dir/devcluster.json" ]; then
    "$programs/muster-devcluster" down --dir "$dir"
    rm -rf "$dir"
fi

say() {
    printf '\n\033[1m# %s\033[0m\n' "$*"
}
# Shows a command, runs it, and stops here unless it ends with the exit code that is expected.
expect() {
    wanted=$1
    shift
    line=
    for word in "$@"; do
        case $word in
        *' '*) line="$line '$word'" ;;
        *) line="$line $word" ;;
        esac
    done
    printf '\033[36m$%s\033[0m\n' "$line"
    code=0
    "$@" || code=$?
    [ "$code" = "$wanted" ] || {
        echo "quickstart: expected exit code $wanted, got $code" >&2
        exit 1
    }
}
run() {
    expect 0 "$@"
}

goodbye() {
    cat <<END

The cluster is up in $dir. To go on with it in this shell:

    . $dir/env
    gnt-hooks list                 which scripts would run where, and which are skipped and why
    gnt-job info 5                 what each script on each node said in job 5
    gnt-cluster verify             check everything
    gnt --help                     all commands; docs/guide.md is the operator's guide
    muster-devcluster kill node2   break something (pause, resume, start)

To end it:

    muster-devcluster down --dir $dir
END
}

# Waits until the guest of web1 has said on a node that it is up: what it says is kept there.
marker() {
    log=$dir/$1/state/node/qemu/$(gnt-instance list --no-headers -o uuid web1)/console.log
    seconds=0
    until grep -a -s "GUEST READY" "$log"; do
        seconds=$((seconds + 1))
        [ "$seconds" -le 120 ] || {
            echo "quickstart: the guest did not boot within 120 s; it says:" >&2
            cat "$log" >&2
            exit 1
        }
        sleep 1
    done
}

if [ -n "$qemu" ]; then
    say "A guest of a few megabytes, made from Debian's packages, as an OS definition on each of three nodes."
    run tests/guest/build.sh
    for node in node1 node2 node3; do
        mkdir -p "$dir/$node/os"
        cp -r tests/.cache/guest "$dir/$node/os/tiny"
    done
    run "$programs/muster-devcluster" up --dir "$dir" --nodes 3 --hypervisor qemu
    # shellcheck disable=SC1091
    . "$dir/env"
    dir=$MUSTER_DIR
    run gnt-os list

    say "An instance of it, with room for its disk on two nodes. It boots; its serial console says so."
    run gnt-instance add -t mirror -n node2:node3 -s 64M -m 96M -p 1 -o tiny web1
    marker node2
    run gnt-instance list

    say "Its console, here between pipes; on a terminal, Ctrl-] and then q leaves it."
    printf '\033[36m$ %s\033[0m\n' "echo 'uname -a; record write 3; record count' | gnt-instance console web1"
    echo 'uname -a; record write 3; record count' | timeout --preserve-status -s INT 10 gnt-instance console web1
    echo

    say "The power button, and on again."
    run gnt-instance shutdown web1
    run gnt-instance list
    run gnt-instance start web1

    say "Each write is on both nodes before the guest hears that it is done. So its virtual machine may die ..."
    run gnt-instance info web1
    pid=$(cat "$dir/node2/state/node/qemu/$(gnt-instance list --no-headers -o uuid web1)/pid")
    run kill -9 "$pid"
    say "... and it goes on from the copy on its secondary node."
    run gnt-instance failover -f web1
    marker node3
    echo 'record count' | timeout --preserve-status -s INT 5 gnt-instance console web1
    echo

    say "The copy that is left behind is brought in sync by itself; then the guest moves back while it runs."
    seconds=0
    until gnt-instance info web1 | grep "consistent (in sync)"; do
        seconds=$((seconds + 1))
        [ "$seconds" -le 60 ] || {
            echo "quickstart: the copy is not in sync after 60 s" >&2
            exit 1
        }
        sleep 1
    done
    run gnt-instance migrate -f web1
    run gnt-instance list
    goodbye
    exit 0
fi

say "Three hosts: each has a node daemon and hook directories of its own; the first has the master daemon too."
"$programs/muster-devcluster" up --dir "$dir" --nodes 3 --bare
# shellcheck disable=SC1091
. "$dir/env"
dir=$MUSTER_DIR
for node in node1 node2 node3; do
    "$top/deploy/examples/hooks/install.sh" "$dir/$node/hooks" >/dev/null
    printf 'web*\n' >"$dir/$node/hooks/allowed-instances"
done

say "The first host becomes the master of a new cluster; the others ask to join with a token, and are taken in."
run gnt-cluster init dev
for node in node2 node3; do
    printf '\033[36m$ %s\033[0m\n' "gnt-node token create | muster-noded join --config $dir/$node/noded.toml --token-file -"
    gnt-node token create | muster-noded join --config "$dir/$node/noded.toml" --token-file -
    run gnt-node add "$node"
done
run gnt-node list

say "An instance, mirrored on two nodes. The scripts of node1 (master), node2 and node3 are asked first."
run gnt-instance add -t mirror -n node2:node3 -s 64M -m 128M -p 1 -o none --no-start --reason "first one" web1
run gnt-instance start web1
run gnt-instance list

say "An instance that is not on the site's allow-list: a script says no, with its own words, and nothing has changed."
expect 1 gnt-instance add -t file -n node2 -s 64M -o none db1
run gnt-instance list

say "A node is down: that is no 'no'. The operation goes on, and the warning names the node."
run muster-devcluster kill node3
run gnt-instance modify -m 256M --reason "node3 is in repair" web1
run muster-devcluster start node3

say "Shut down and removed. Nothing in this guest hears the power button, so it is ended after two seconds."
run gnt-instance shutdown --timeout 2 web1
run gnt-instance remove -f web1
run gnt-job list

say "What the example audit script wrote on node2, after each operation that it was told of:"
cat "$dir/node2/hooks/audit.log"

goodbye
