#!/bin/sh
# Pins the newest version of every dependency, with the hashes of all its files, in requirements.lock and
# requirements-dev.lock. Works in a throw-away environment; the lock files name no package index.
set -eu
cd "$(dirname "$0")/.."
. scripts/progress.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

"${PYTHON:-python3}" -m venv "$work/venv"
start_log lock
watched "installing the resolver" "" "" "$work/venv/bin/pip" install --disable-pip-version-check uv
pin() {
    "$work/venv/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-annotate --no-header "$@"
}
pin requirements.in --output-file "$work/runtime"
pin requirements-data.in --no-deps --output-file "$work/data"
{
    echo "# Made by 'make lock' from requirements.in and requirements-data.in."
    cat "$work/runtime" "$work/data"
} >requirements.lock
pin requirements-dev.in --output-file "$work/dev"
{
    echo "# Made by 'make lock' from requirements-dev.in."
    cat "$work/dev"
} >requirements-dev.lock
say "    requirements.lock: $(grep -c == requirements.lock) packages, requirements-dev.lock: $(grep -c == requirements-dev.lock)"
