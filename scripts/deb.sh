#!/bin/sh
# Packs the checkout that `make setup` has built as a Debian package for the release that it runs on:
# build/trunkline_VERSION-1~debRELEASE_ARCHITECTURE.deb. It fits that release alone, because it uses its Python.
# usage: deb.sh [check]   check: only fails, before anything is built, if the package cannot be made with this Python
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/progress.sh
umask 022
# shellcheck source=/dev/null
. /etc/os-release
[ "$ID" = debian ] || fail "packages are made for Debian, not for $ID" "run it on Debian, or use make install"
version=$(sed -n 's/^version = //p' setup.cfg)-1~deb${VERSION_ID:-sid}
architecture=$(dpkg --print-architecture)
stage=$root/build/deb/root
lib=$stage/usr/lib/trunkline
package=$root/build/trunkline_${version}_$architecture.deb

python=.venv/bin/python
if [ "${1:-}" = check ]; then
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null || exit 0 # `make setup` installs it
fi
home=$("$python" -c 'import sys; print(sys.base_prefix)')
[ "$home" = /usr ] || fail "the package needs Debian's own Python, not that in $home" \
    "rm -rf .venv; make deb PYTHON=/usr/bin/python3"
[ "${1:-}" != check ] || exit 0

rm -rf "$root/build/deb"
mkdir -p "$stage/DEBIAN" "$root/build/deb/shlibs/debian"
DESTDIR=$stage PREFIX=/usr scripts/install.sh program

# Debian's packages that the compiled parts need; those that are loaded by name are in packages-run.txt.
shared_libraries() (
    echo "Source: trunkline" >"$root/build/deb/shlibs/debian/control"
    cd "$root/build/deb/shlibs"
    # shellcheck disable=SC2046  # one word per file
    dpkg-shlibdeps -O --ignore-missing-info -l"$lib/pjsip" \
        $(find "$lib/pjsip" -type f -name '*.so*') "$lib"/venv/lib/python3*/site-packages/_pjsua2.so \
        "$lib"/venv/lib/python3*/site-packages/sipcore/_native*.so 2>/dev/null | sed -n 's/^shlibs:Depends=//p'
)
dependencies() {
    minor=$(.venv/bin/python -c 'import sys; print(sys.version_info.minor)')
    echo "python3 (>= 3.$minor), python3 (<< 3.$((minor + 1)))"
    echo "init-system-helpers, passwd, util-linux"
    shared_libraries
    sed '/?$/d; /^python3$/d' scripts/packages-run.txt
}
depends=$(dependencies | paste -s -d , | sed 's/, */, /g')
case $depends in
    *libc6*libflite1*) ;;
    *) fail "the dependencies are not complete: $depends" "see dpkg-shlibdeps" ;;
esac

{
    echo "Licence of Trunkline; those of the Python packages are in their folders *.dist-info."
    echo
    cat LICENSE
} >"$root/build/deb/copyright"
install -D -m 644 "$root/build/deb/copyright" "$stage/usr/share/doc/trunkline/copyright"
gzip -9nc CHANGELOG.md >"$stage/usr/share/doc/trunkline/changelog.gz"
echo /etc/trunkline/trunkline.toml >"$stage/DEBIAN/conffiles"
install -m 755 scripts/debian/postinst scripts/debian/prerm scripts/debian/postrm "$stage/DEBIAN/"
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@DEPENDS@|$depends|" \
    -e "s|@SIZE@|$(du -sk "$stage/usr" | cut -f 1)|" scripts/debian/control >"$stage/DEBIAN/control"
start_log deb
watched "packing" "" "" dpkg-deb --root-owner-group -Zzstd --build "$stage" "$package"
rm -rf "$root/build/deb"
say "    $package, $(du -h "$package" | cut -f 1)"
