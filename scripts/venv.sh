#!/bin/sh
# Creates .venv with the locked dependencies, pjsua2 and this project; does nothing if it is up to date.
# usage: venv.sh [cluster | dev | peer]
#                               cluster: also the packages for PostgreSQL and object stores
#                               dev: also these and the packages for tests and checks
#                               peer: instead, build/peer, build/peer-turn and build/peer-models with the software that
#                               the benchmarks of the API, of turns and of models are compared with (FastAPI, Pipecat,
#                               xllamacpp)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/progress.sh
log=
venv=$root/.venv
remedy="see ${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/logs/venv.log; check that pip reaches its package index, then run the same command again"

hash_of() { cat "$@" | sha256sum | cut -c 1-64; }
is_stamped() { [ "$(cat "$venv/.stamp-$1" 2>/dev/null)" = "$2" ]; }
stamp() { echo "$2" >"$venv/.stamp-$1"; }

make_venv() {
    python=$("${PYTHON:-python3}" -c 'import sys; print(sys.version, sys.base_prefix)')
    is_stamped python "$python" && "$venv/bin/python" -c '' 2>/dev/null && return
    say "==> Python environment in ${venv#"$root"/}"
    "${PYTHON:-python3}" -m venv --clear "$venv" ||
        fail "python -m venv failed" "install python3-venv, or name another Python: make PYTHON=/path/to/python3"
    stamp python "$python"
}

install_lock() { # NAME LOCKFILE
    content=$(hash_of "$2")
    is_stamped "$1" "$content" && return
    started
    watched "installing Python packages ($1)" '^Collecting' "$(grep -c '==' "$2")" \
        "$venv/bin/pip" install --no-input --disable-pip-version-check --no-deps --require-hashes -r "$2"
    stamp "$1" "$content"
}

# build-llama.sh has built the wheel for this machine; `path` prints its folder.
install_llama() {
    wheel=$(scripts/build-llama.sh path)
    is_stamped llama "$wheel" && return
    started
    watched "installing llama.cpp" "" "" "$venv/bin/pip" install --no-input --disable-pip-version-check \
        --no-deps --no-index --force-reinstall "$wheel"/*.whl
    stamp llama "$wheel"
}

# pjsua2 stays in the cache with the libraries that it is linked with.
add_pjsua2() {
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    readlink -f build/pjsip/python >"$site/pjsua2.pth"
}

# Compiled once for each content of the sources; other checkouts copy it from the cache.
build_extension() {
    prefix=$(readlink -f build/pjsip)
    suffix=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    key=$({ find setup.py sipcore/native -type f | sort | xargs tail -n +1; echo "$prefix $suffix"; } | sha256sum | cut -c 1-16)
    cached=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/native-$key.so
    built=sipcore/_native$suffix
    if [ ! -e "$cached" ]; then
        started
        watched "compiling the audio pump" "" "" "$venv/bin/python" setup.py -q build_ext --force --build-lib build/native --build-temp build/native
        cp "build/native/$built" "$cached.$$"
        mv "$cached.$$" "$cached"
    fi
    cmp -s "$cached" "$built" && return
    # Replaced by a rename, because a running server has mapped the old file.
    cp "$cached" "$built.$$"
    mv "$built.$$" "$built"
}

install_project() {
    content=$(hash_of setup.cfg setup.py pyproject.toml)
    is_stamped project "$content" && return
    started
    watched "installing Trunkline itself (editable)" "" "" "$venv/bin/pip" install --no-input --disable-pip-version-check \
        --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
    stamp project "$content"
}

started() { [ -n "${log:-}" ] || start_log venv; }

if [ "${1:-}" = peer ]; then
    venv=$root/build/peer
    make_venv
    install_lock peer requirements-bench.lock
    venv=$root/build/peer-turn
    make_venv
    install_lock peer requirements-bench-turn.lock
    venv=$root/build/peer-models
    make_venv
    install_lock peer requirements-bench-models.lock
    exit
fi
make_venv
install_lock runtime requirements.lock
case "${1:-}" in cluster | dev) install_lock cluster requirements-cluster.lock ;; esac
[ "${1:-}" != dev ] || install_lock dev requirements-dev.lock
install_llama
add_pjsua2
build_extension
install_project
