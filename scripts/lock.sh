#!/bin/sh
# Pins the newest version of every dependency, with the hashes of all its files, in requirements.lock,
# requirements-cluster.lock, requirements-dev.lock and the locks of the benchmarks, llama.cpp, the embedding model, fuzzing, and the SBOM and
# audit tools. Works in a temporary environment; the lock files name no package index.
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
for name in cluster dev bench bench-turn bench-models llama llama-build minilm fuzz supply; do
    nodeps=
    case $name in llama | minilm) nodeps=--no-deps ;; esac
    pin "requirements-$name.in" $nodeps --output-file "$work/$name"
    {
        echo "# Made by 'make lock' from requirements-$name.in."
        cat "$work/$name"
    } >"requirements-$name.lock"
done
say "    packages:"
for file in requirements*.lock; do
    say "    $file $(grep -c == "$file")"
done
