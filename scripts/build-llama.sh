#!/bin/sh
# Builds llama.cpp with its Python bindings for this machine's processor into ~/.cache/trunkline/llama-KEY, once for each
# version, set of options and processor.
# usage: build-llama.sh [path]   path: only prints the folder of the wheel
# With LLAMA_PROCESSORS=all it is built for every processor variant, and the best one is selected when it is loaded.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline
cd "$root"
. scripts/progress.sh
remedy="see $cache/logs/llama.log; check that pip reaches its package index, then run the same command again"

# Built for this machine, because a generic build takes several times as long for every token. Programs, server and
# image support are not needed.
# AMX is disabled, because llama.cpp's kernels for it end the process with SIGSEGV (ggml-org/llama.cpp#20824). The container
# image omits the one variant that has them and uses that of the previous processor generation.
if [ "${LLAMA_PROCESSORS:-}" = all ]; then
    target="-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DCMAKE_INSTALL_BINDIR=llama_cpp/lib"
    left_out='**/libggml-cpu-sapphirerapids.so'
    processor=all files=360
else
    target=-DGGML_NATIVE=ON left_out= files=140
    no_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    takes() { ${CC:-cc} "$@" -E -x c /dev/null >/dev/null 2>&1; }
    # A compiler that does not know these flags generates no such code.
    if [ "$(uname -m)" = x86_64 ] && { takes $no_amx || ! takes; }; then
        target="$target -DCMAKE_C_FLAGS='$no_amx' -DCMAKE_CXX_FLAGS='$no_amx'"
    fi
    processor=$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | tr ' ' '\n' | LC_ALL=C sort -u)
fi
options="$target -DMTMD_BUILD=OFF -DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF"
key=$({ cat requirements-llama.lock; echo "$options $left_out $(uname -m) $processor"; } | sha256sum | cut -c 1-16)
wheel=$cache/llama-$key

[ "${1:-}" != path ] || { echo "$wheel"; exit 0; }
[ ! -d "$wheel" ] || exit 0
mkdir -p "$cache"
exec 9>"$cache/llama.lock"
flock -n 9 || { say "    waiting for another build of llama.cpp on this machine"; flock 9; }
[ ! -d "$wheel" ] || exit 0

work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
start_log llama
say "==> llama.cpp: building, once on this machine (several minutes)"
"${PYTHON:-python3}" -m venv "$work/venv"
watched "1/2 installing its build tools" '^Collecting' "$(grep -c == requirements-llama-build.lock)" \
    "$work/venv/bin/pip" install --no-input --disable-pip-version-check --no-deps --require-hashes \
    -r requirements-llama-build.lock
export CMAKE_ARGS="$options" CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-$(nproc)}" PATH="$work/venv/bin:$PATH" TMPDIR="$work"
[ -z "$left_out" ] || export SKBUILD_WHEEL_EXCLUDE="$left_out"
watched "2/2 compiling" '^ *\[[0-9]+/[0-9]+\]' "$files" \
    "$work/venv/bin/pip" wheel -v --no-input --disable-pip-version-check --no-deps --no-build-isolation \
    --no-binary :all: --no-cache-dir --require-hashes -r requirements-llama.lock --wheel-dir "$work/wheel"
if [ -n "$left_out" ] && "$work/venv/bin/python" -m zipfile -l "$work"/wheel/llama_cpp_python-*.whl |
    grep -q "${left_out##*/}"; then
    fail "the wheel holds ${left_out##*/}, which ends the process on many processors" "see left_out in $0"
fi
mv "$work/wheel" "$wheel"
