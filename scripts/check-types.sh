#!/bin/sh
# Checks the types with mypy. A new checkout begins with the results of an earlier one, which are kept in the cache: mypy
# checks again what differs from it by content.
set -eu
cd "$(dirname "$0")/.."
kept=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/mypy.tar

is_new=
if [ ! -e .mypy_cache ]; then
    is_new=1
    [ ! -e "$kept" ] || tar -xf "$kept" || rm -rf .mypy_cache
fi
.venv/bin/mypy
if [ -n "$is_new" ]; then
    mkdir -p "${kept%/*}"
    tar -cf "$kept.$$" .mypy_cache
    mv "$kept.$$" "$kept"
fi
