#!/bin/sh
# Installs what the tests need and runs them all.
#
#   deploy/test.sh          everything, with the usual counts
#   deploy/test.sh --long   the same, with full counts where a test repeats something
set -eu
cd "$(dirname "$0")/.."

case "${1-}" in
'') ;;
--long) export MUSTER_TEST_LONG=1 ;;
*)
    echo "usage: deploy/test.sh [--long]" >&2
    exit 2
    ;;
esac

began=$(date +%s)
step() {
    echo "=== $1 ($(($(date +%s) - began)) s)"
}

step "what the tests need"
deploy/prepare.sh tests

step "format"
cargo fmt --all --check

step "lints"
cargo clippy --workspace --all-targets -- -D warnings

# One build for all that follows: the programs that the black-box suite runs, and the tests, with the same features.
step "build"
cargo build --workspace --all-targets

if cargo nextest --version >/dev/null 2>&1; then
    # Not by `-p`: with the features of a part alone, much would be built again.
    step "tidy"
    cargo nextest run --workspace -E 'binary_id(muster-tests::it) & test(/^tidy::/)'
    step "unit tests, laws, black-box suite"
    cargo nextest run --workspace
else
    step "tidy"
    cargo test --workspace --test it tidy::
    step "unit tests, laws, black-box suite"
    cargo test --workspace
fi
step "done"
