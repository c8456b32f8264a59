#!/bin/sh
# Installs what a Debian machine with Rust lacks for a build; with `tests`, for the tests too. Changes nothing where all is there.
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
fi
if [ -n "$missing" ]; then
    root=
    [ "$(id -u)" = 0 ] || root=sudo
    echo "installing:$missing"
    $root apt-get update -qq
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
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
