#!/bin/sh
# Tests the setup on a fresh system: creates a chroot with a minimal Debian 12 with git, make and python3 only, clones the
# committed state of this checkout into it, and runs `make TARGET` there with an empty home.
# Only the machine's settings for its mirrors (pip, apt, CA certificates) are copied.
# usage: fresh.sh [TARGET]      TARGET: a target of the Makefile (default demo)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/scripts"
. ./progress.sh
target=${1:-demo}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/fresh
base=$cache/debian-12-$(dpkg --print-architecture).tar
remedy="see the log named above; to remove a broken base: rm -rf $cache"

[ "$(id -u)" -eq 0 ] || fail "creating a Debian chroot needs root" "run: sudo make fresh"
./apt-packages.sh fresh
mkdir -p "$cache"
work=$(mktemp -d "$cache/work.XXXXXX")
# All mounts are in a mount namespace of their own and end with it; --one-file-system protects other file systems.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

make_base() {
    mirror=$(./apt-mirror.sh debian)
    [ -n "$mirror" ] || fail "no Debian mirror is configured in apt's sources" "set DEBIAN_MIRROR to one"
    watched "creating a minimal Debian 12" '^I: (Retrieving|Unpacking|Configuring) ' 350 debootstrap --variant=minbase \
        --include=git,make,python3 --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        bookworm "$work/base" "$mirror"
    watched "caching it for the next run" "" "" tar --one-file-system -C "$work/base" -cf "$base.part" .
    mv "$base.part" "$base"
    rm -rf --one-file-system "$work/base"
}

# The machine's settings for its mirrors: pip, apt's proxies and date checks, certificates and name resolution.
copy_machine_settings() {
    cp /etc/resolv.conf /etc/hosts "$work/root/etc/"
    apt-config dump | grep -iE '^Acquire::([a-z]+::Proxy|Check-)' >"$work/root/etc/apt/apt.conf.d/80machine" || true
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$work/root$file"
    done
    mkdir -p "$work/root/usr/local/share/ca-certificates"
    cp -a /usr/local/share/ca-certificates/. "$work/root/usr/local/share/ca-certificates/"
}

passed_environment() { # one NAME=VALUE a line
    env | grep -iE '^(PIP_[A-Z_]+|https?_proxy|no_proxy|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=' || true
}

run_inside() {
    set -- env -i HOME="$HOME" PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM="${TERM:-dumb}"
    while IFS= read -r setting; do set -- "$@" "$setting"; done <<SETTINGS
$(passed_environment)
SETTINGS
    set -- "$@" make -C /srv/trunkline "$target"
    # shellcheck disable=SC2016  # expanded by the inner shell
    # The process namespace ends all processes of the run.
    unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
        inside=$1
        shift
        mount -t proc proc "$inside/proc"
        mount --rbind /dev "$inside/dev"
        mount -t tmpfs tmpfs "$inside/tmp"
        exec chroot "$inside" "$@"' fresh "$work/root" "$@"
}

say "==> a fresh Debian 12 in $work"
start_log fresh
[ -f "$base" ] || make_base
mkdir "$work/root"
watched "unpacking it" "" "" tar -C "$work/root" -xf "$base"
[ -z "$(git -C "$root" status --porcelain)" ] || say "    note: uncommitted changes are not included"
git clone --quiet --no-local "$root" "$work/root/srv/trunkline"
copy_machine_settings
say "==> make $target in the chroot"
run_inside
say "==> make $target succeeded on a fresh Debian 12"
