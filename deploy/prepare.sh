#!/bin/sh
# Installs what a Debian machine with Rust lacks for a build; with `qemu`, for real guests too; with `tests`, for the tests,
# which have such guests. Changes nothing where all is there.
set -eu
cd "$(dirname "$0")/.."

command -v cargo >/dev/null || {
    echo "cargo is missing: install Rust first (rustup, or Debian's rustup package)" >&2
    exit 1
}

missing=
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
if [ "${1-}" = tests ]; then
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3 python3-venv"
    command -v openssl >/dev/null || missing="$missing openssl"
    command -v ip >/dev/null || missing="$missing iproute2"
    command -v gzip >/dev/null && command -v flock >/dev/null || missing="$missing gzip util-linux"
fi
# What real guests need: QEMU, its tools, its storage daemon (which package has that one differs by release).
guests=
if [ -n "${1-}" ]; then
    for program in qemu-system-x86_64 qemu-img qemu-storage-daemon; do
        command -v $program >/dev/null || guests="qemu-system-x86 qemu-utils"
    done
fi
root=
[ "$(id -u)" = 0 ] || root=sudo
install() {
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=900 \
        --no-install-recommends "$@"
}
if [ -n "$missing$guests" ]; then
    echo "installing:$missing $guests"
    $root apt-get update -qq
fi
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    install $missing
fi
if [ -n "$guests" ]; then
    # Where some of QEMU's packages came from a suite that is not used any more, all are brought to one version.
    # shellcheck disable=SC2086
    install $guests || {
        version=$(apt-cache policy qemu-system-common | sed -n 's/^ *Candidate: //p')
        install --allow-downgrades "qemu-system-x86=$version" "qemu-system-common=$version" "qemu-utils=$version"
    }
fi

if [ "${1-}" = tests ]; then
    venv=tests/.cache/venv
    if ! "$venv/bin/python" -c 'import grpc, grpc_tools, grpc_reflection' 2>/dev/null; then
        echo "making $venv for the Python client"
        rm -rf "$venv"
        mkdir -p tests/.cache
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/python/requirements.txt
    fi
fi

# The small guest of the tests; its packages are looked for anew where the lists of packages are missing or old.
if [ -n "${1-}" ]; then
    tests/guest/build.sh || {
        $root apt-get update -qq
        tests/guest/build.sh
    }
fi
