#!/bin/sh
# Downloads the pjproject source tarball into FOLDER as pjproject-SHA256.tar.xz and prints its path.
# The tarball is a component of the distribution's source package "asterisk". It is found and verified by apt, which
# works here on a state directory of its own: the system's sources and lists stay as they are.
# usage: fetch-pjproject.sh FOLDER
set -eu
folder=$1
cd "$(dirname "$0")"
. ./progress.sh
by_hand="give the pjproject 2.17 source yourself: make PJPROJECT=/path/to/pjproject-2.17.tar.gz (or its unpacked tree)"

# Debian's stable releases do not carry the package, so it comes from the development suite; only source is taken.
# shellcheck source=/dev/null
. /etc/os-release
case $ID in
    debian) suite=sid component=main keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    ubuntu) suite=devel component=universe keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
    *) fail "no source package is known for the distribution '$ID'" "$by_hand" ;;
esac

mirror=$(./apt-mirror.sh "$ID")
[ -n "$mirror" ] || fail "no $ID mirror is configured in apt's sources" "set DEBIAN_MIRROR to one, or $by_hand"

mkdir -p "$folder"
apt_dir=$(mktemp -d "$folder/apt.XXXXXX")
trap 'rm -rf "$apt_dir"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$apt_dir/state/lists/partial" "$apt_dir/cache/archives/partial"
echo "deb-src [signed-by=$keyring] $mirror $suite $component" >"$apt_dir/sources.list"
# Read after the system's settings, so that its proxies hold and its update hooks do not run.
cat >"$apt_dir/apt.conf" <<CONF
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State "$apt_dir/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$apt_dir/cache";
Dir::Etc::sourcelist "$apt_dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Sandbox::User "$(id -un)";
CONF

apt() { # TOOL ARGUMENT...
    tool=$1
    shift
    "$tool" -c "$apt_dir/apt.conf" "$@" >&2 ||
        fail "$tool $1 failed for $mirror $suite" "check the network and apt's proxy, or $by_hand"
}
apt apt-get -q update
found=$(apt-get -c "$apt_dir/apt.conf" source --print-uris --download-only asterisk | grep -F pjproject.tar || true)
[ -n "$found" ] || fail "the source package asterisk in $suite carries no pjproject tarball any more" "$by_hand"
# A line of --print-uris: 'URI' FILE SIZE SHA256:HASH
uri=$(printf '%s\n' "$found" | cut -d "'" -f 2)
sha256=${found##*SHA256:}
[ "${#sha256}" -eq 64 ] || fail "apt names no SHA256 for $uri" "$by_hand"

tarball=$folder/pjproject-$sha256.tar.xz
apt /usr/lib/apt/apt-helper download-file "$uri" "$apt_dir/tarball" "SHA256:$sha256"
mv "$apt_dir/tarball" "$tarball"
say "$tarball"
