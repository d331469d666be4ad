#!/bin/sh
# Downloads the pinned pjproject source tarball (pjproject.env) to FILE and rejects any other hash.
# It is a component of the distribution's source package "asterisk", which apt finds; apt runs with a state directory of
# its own, so that the system's sources and lists do not change. Mirrors have only the newest version; if that is newer,
# PJPROJECT_URI= or DEBIAN_MIRROR= name the location of the older one.
# usage: fetch-pjproject.sh FILE
set -eu
tarball=$1
cd "$(dirname "$0")"
. ./progress.sh
# shellcheck source=pjproject.env
. ./pjproject.env
by_hand="download $pjproject_tarball of $pjproject_package from the archive of older versions ($pjproject_archive), then
    make PJPROJECT=/path/to/it
  or give its address: make PJPROJECT_URI=https://..., or make DEBIAN_MIRROR=<a mirror of that time>.
  Its SHA-256 is $pjproject_sha256"

folder=$(dirname "$tarball")
mkdir -p "$folder"
apt_dir=$(mktemp -d "$folder/apt.XXXXXX")
trap 'rm -rf "$apt_dir"' EXIT
trap 'exit 130' INT TERM

download() { # URI; fails if it does not exist or has another hash
    /usr/lib/apt/apt-helper ${apt_conf:+-c "$apt_conf"} download-file "$1" "$apt_dir/tarball" \
        "SHA256:$pjproject_sha256" >&2 &&
        [ "$(sha256sum <"$apt_dir/tarball" | cut -c 1-64)" = "$pjproject_sha256" ] &&
        mv "$apt_dir/tarball" "$tarball"
}
apt_conf=
if [ -n "${PJPROJECT_URI:-}" ]; then
    download "$PJPROJECT_URI" ||
        fail "$PJPROJECT_URI is not there, or is not the pinned pjproject $pjproject_version" "$by_hand"
    exit 0
fi

# Debian's stable releases do not have the package: its source is downloaded from the development suite.
# shellcheck source=/dev/null
. /etc/os-release
case $ID in
    debian) suite=sid component=main keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    ubuntu) suite=devel component=universe keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
    *) fail "no source package is known for the distribution '$ID'" "$by_hand" ;;
esac
mirror=$(./apt-mirror.sh "$ID")
[ -n "$mirror" ] || fail "no $ID mirror is configured in apt's sources" "set DEBIAN_MIRROR to one, or $by_hand"

mkdir -p "$apt_dir/state/lists/partial" "$apt_dir/cache/archives/partial"
echo "deb-src [signed-by=$keyring] $mirror $suite $component" >"$apt_dir/sources.list"
apt_conf=$apt_dir/apt.conf
# Read after the system's settings: uses its proxies and disables its update hooks. An archive's old index is signed but
# expired, which is accepted because the hash is pinned.
cat >"$apt_conf" <<CONF
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Check-Valid-Until "false";
Dir::State "$apt_dir/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$apt_dir/cache";
Dir::Etc::sourcelist "$apt_dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "$(id -un)";
CONF
apt-get -c "$apt_conf" -q update >&2 ||
    fail "apt-get update failed for $mirror $suite" "check the network and apt's proxy, or $by_hand"

# A line of --print-uris: 'URI' FILE SIZE SHA256:HASH. Several versions may be listed.
found=$(apt-get -c "$apt_conf" source --print-uris --download-only asterisk | grep -F pjproject.tar || true)
uri=$(printf '%s\n' "$found" | grep -F "SHA256:$pjproject_sha256" | cut -d "'" -f 2 | head -n 1)
# A file stays in the pool for some time after it is removed from the index.
[ -n "$uri" ] || uri=$mirror/pool/$component/a/asterisk/$(printf '%s' "$pjproject_tarball" | sed 's/+/%2b/g; s/~/%7e/g')
download "$uri" || {
    other=$(printf '%s\n' "$found" | sed -n "s/^'\([^']*\)'.*/\1/p" | head -n 1)
    fail "$mirror $suite has moved on: it has ${other:-no pjproject source}, not the pinned pjproject $pjproject_version" \
        "$by_hand"
}
