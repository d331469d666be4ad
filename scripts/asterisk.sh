#!/bin/sh
# Creates a chroot with Debian's development suite and Asterisk, for the tests with a real PBX; the system itself gets no
# package of that suite. Prints its path. Root only; once on a machine (about a minute).
set -eu
cd "$(dirname "$0")"
. ./progress.sh
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline
home=$cache/asterisk-sid-$(dpkg --print-architecture)
remedy="see $cache/logs/asterisk.log, then run the same command again"

if [ -x "$home/usr/sbin/asterisk" ]; then
    say "$home"
    exit 0
fi
[ "$(id -u)" -eq 0 ] || fail "creating a Debian chroot needs root" "run: sudo make test"
./apt-packages.sh fresh >&2
mkdir -p "$cache"
exec 9>"$cache/asterisk.lock"
flock 9
[ ! -x "$home/usr/sbin/asterisk" ] || { say "$home"; exit 0; }

mirror=$(./apt-mirror.sh debian)
[ -n "$mirror" ] || fail "no Debian mirror is configured in apt's sources" "set DEBIAN_MIRROR to one"
work=$(mktemp -d "$cache/asterisk.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
start_log asterisk

copy_machine_settings() {
    cp /etc/resolv.conf /etc/hosts "$work/etc/"
    apt-config dump | grep -iE '^Acquire::([a-z]+::Proxy|Check-)' >"$work/etc/apt/apt.conf.d/80machine" || true
    mkdir -p "$work/usr/local/share/ca-certificates" "$work/etc/ssl/certs"
    cp -a /usr/local/share/ca-certificates/. "$work/usr/local/share/ca-certificates/"
    cp /etc/ssl/certs/ca-certificates.crt "$work/etc/ssl/certs/" 2>/dev/null || true
}

install_asterisk() {
    copy_machine_settings
    printf '#!/bin/sh\nexit 101\n' >"$work/usr/sbin/policy-rc.d" # no service is started
    chmod 755 "$work/usr/sbin/policy-rc.d"
    # In a mount namespace of its own, which ends the mounts.
    unshare --mount --propagation private sh -eu -c '
        mount -t proc proc "$1/proc"
        mount --bind /dev "$1/dev"
        chroot "$1" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            apt-get install --yes --no-install-recommends asterisk
        chroot "$1" apt-get clean' sh "$work"
}
{
    say "==> Asterisk, for the tests: once on this machine"
    watched "1/2 creating a Debian chroot" '^I: (Retrieving|Unpacking|Configuring) ' 350 debootstrap --variant=minbase \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg sid "$work" "$mirror"
    watched "2/2 installing Asterisk into it" '^(Get:|Unpacking|Setting up)' "" install_asterisk
} >&2
mv "$work" "$home"
say "$home"
