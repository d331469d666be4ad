#!/bin/sh
# Builds PJSIP's shared libraries and its Python binding pjsua2 into ~/.cache/trunkline/pjsip-KEY, once for each
# content of source, options, Python and distribution; then points build/pjsip in this checkout there.
# usage: build-pjsip.sh [sanitize]   sanitize: instead, with clang's address and undefined-behaviour sanitizers and what
#                                    libFuzzer is guided by; build/pjsip-sanitize points there
# PJPROJECT=/path   source tree or tarball to build instead of the pinned one
# PYTHON=/path      the Python that the binding is for (default python3)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline
PJPROJECT=${PJPROJECT:+$(realpath -m "$PJPROJECT")}
export PJPROJECT
cd "$root/scripts"
. ./progress.sh
remedy="see $cache/logs; then run the same command again, or give another source: make PJPROJECT=/path/to/pjproject-2.17.tar.gz"
# shellcheck source=pjproject.env
. ./pjproject.env

# NDEBUG: a failed assertion caused by a stranger's packet must return an error, not abort the process.
name=pjsip options="-O2 -fPIC -DNDEBUG" link_options= preloaded=
if [ "${1:-}" = sanitize ]; then
    name=pjsip-sanitize
    . ./sanitizers.sh
    export CC=clang CXX=clang++ ASAN_OPTIONS=detect_leaks=0
    options="-O1 -g -fPIC -DNDEBUG $sanitizer_options $coverage_options"
    link_options=" $sanitizer_link_options" preloaded=$sanitizer_runtime
fi

mkdir -p "$cache" "$root/build"
exec 9>"$cache/pjsip.lock"
flock -n 9 || { say "    waiting for another build of PJSIP on this machine"; flock 9; }

# --- Where the source comes from, and under which key its build is kept ---------------------------------------------
source=$(./pjproject-source.sh "$cache")

content_of() { # the SHA-256 of a file, or of a tree's sources
    if [ -d "$1" ]; then
        (cd "$1" && find . -name .git -prune -o -type f ! -name '*.o' ! -name '*.so*' ! -name '*.a' -print0 |
            sort -z | xargs -0 sha256sum)
    else
        sha256sum <"$1"
    fi | sha256sum | cut -c 1-64
}
python=${PYTHON:-python3}
abi=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))')
# shellcheck source=/dev/null
. /etc/os-release
key=$({ content_of "$source"; content_of build-pjsip.sh; content_of config_site.h
        echo "$abi $ID ${VERSION_ID:-}"; [ "$name" = pjsip ] || cat sanitizers.sh; } | sha256sum | cut -c 1-16)
prefix=$cache/$name-$key

link() { ln -sfn "$prefix" "$root/build/$name"; }
if [ -d "$prefix" ]; then
    link
    exit 0
fi

# --- Build in a folder of its own; only a finished build is moved into its place -------------------------------------
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
start_log pjsip
say "==> PJSIP: building $(basename "$source"), once on this machine (a minute or two)"

unpack() {
    if [ -d "$source" ]; then cp -a "$source/." "$work/tree"; else tar -xf "$source" -C "$work/tree" --strip-components=1; fi
}
mkdir "$work/tree"
watched "1/5 unpacking" "" "" unpack
cd "$work/tree"
[ -f version.mak ] || fail "$source is not a pjproject source" "check PJPROJECT="
version=$(sed -nE 's/^export PJ_VERSION_(MAJOR|MINOR|REV) *:= *([0-9]+).*/\2/p' version.mak | paste -s -d .)
[ "$version" = "$pjproject_version" ] ||
    say "    warning: this is pjproject $version, Trunkline is tested with $pjproject_version; building it all the same"
[ ! -d "$source" ] || make distclean >/dev/null 2>&1 || true

cp "$root/scripts/config_site.h" pjlib/include/pj/config_site.h
# Each allocation from a pool on its own: else a sanitizer sees only what goes beyond the whole pool.
[ "$name" = pjsip ] || echo "#define PJ_POOL_DEBUG 1" >>pjlib/include/pj/config_site.h
# This sound driver's source is not in the distribution's tarball, and we use no sound device.
sed -i 's/ bdimad_dev\.o//' pjmedia/build/Makefile

# Codec and SRTP libraries are the distribution's: its tarball has no bundled ones.
watched "2/5 configuring" '^checking' 120 ./configure --prefix="$prefix" \
    --enable-shared --enable-epoll --enable-libsamplerate \
    --with-external-srtp --with-external-speex --with-external-gsm \
    --disable-sound --disable-video --disable-libyuv --disable-sdl --disable-ffmpeg --disable-v4l2 \
    --disable-openh264 --disable-vpx --disable-libwebrtc --disable-upnp \
    --disable-l16-codec --disable-ilbc-codec --disable-g7221-codec --disable-bcg729 --disable-lyra \
    --disable-silk --disable-opencore-amr \
    CFLAGS="$options" CXXFLAGS="$options" LDFLAGS="-Wl,-rpath,$prefix/lib$link_options"

# -threads lets go of Python's lock in every call into PJSIP; directors take it again when PJSIP calls back.
includes=$(for part in pjlib pjlib-util pjnath pjmedia pjsip; do printf '%s' "-I$work/tree/$part/include "; done)
python_include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
binding=$work/tree/pjsip-apps/src/swig/python

# One file that keeps one core busy for most of the time that the libraries take on the others.
compile_binding() {
    cd "$binding"
    # shellcheck disable=SC2086  # one word per flag
    swig $includes -c++ -w312 -threads -python -o pjsua2_wrap.cpp ../pjsua2.i &&
        g++ -O1 -fPIC -DNDEBUG -DPJ_AUTOCONF=1 -w $includes -I"$python_include" -c pjsua2_wrap.cpp -o pjsua2_wrap.o
}
{
    compile_binding && ended=0 || ended=$?
    echo "$ended" >"$work/binding.ended"
} >"$work/binding.log" 2>&1 &

# Not by `wait`: after a long build its number may be another process's, the progress report's for example.
finish_binding() {
    until [ -s "$work/binding.ended" ]; do sleep 0.2; done
    [ "$(cat "$work/binding.ended")" -eq 0 ] || {
        cat "$work/binding.log"
        return 1
    }
}
watched "3/5 compiling the libraries and the Python binding" '^(gcc|g\+\+|clang)' "288 files" make -j "$(nproc)" lib
watched "4/5 compiling the rest of the Python binding" "" "" finish_binding
watched "5/5 installing the libraries" "" "" make install DESTDIR="$work/stage"

site=$work/stage$prefix/python
mkdir -p "$site"
cp "$binding/pjsua2.py" "$site/"
# shellcheck disable=SC2046  # one word per flag
watched "5/5 linking the Python binding" "" "" g++ -shared "$binding/pjsua2_wrap.o" -o "$site/_pjsua2.so" \
    -L"$work/stage$prefix/lib" $(pkg-config --libs-only-l "$work/stage$prefix/lib/pkgconfig/libpjproject.pc") \
    -Wl,-rpath,"$prefix/lib"
echo "$version" >"$work/stage$prefix/VERSION"

mv "$work/stage$prefix" "$prefix"
LD_PRELOAD=$preloaded PYTHONPATH=$prefix/python "$python" -c 'import pjsua2; pjsua2.Endpoint()' >>"$log" 2>&1 || {
    mv "$prefix" "$work/broken"
    fail "the Python binding was built but does not load" "$remedy"
}
link
say "    PJSIP $version is ready in $prefix"
