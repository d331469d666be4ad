#!/bin/sh
# Builds the Debian package in a fresh Debian of each release, and proves it in another one without compiler: installed
# without a network (Debian's packages that it depends on are downloaded before), its service started, called from and
# calling an Asterisk, checked and stopped, the package removed, installed again and purged. Only the committed state of
# this checkout is built.
# usage: fresh-deb.sh [12 | 13]...
# BUILT=1: proves the packages that are in build/ already instead of building them.
# PREVIOUS=FOLDER: an earlier version's packages, one for each release, which are installed, used and upgraded first.
# The packages are left in build/. Builds of PJSIP and llama.cpp are taken from ~/.cache/trunkline and kept there.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root/scripts"
. ./progress.sh
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline
architecture=$(dpkg --print-architecture)
remedy="see the log named above; to remove a broken base: rm -rf $cache/fresh"

[ "$(id -u)" -eq 0 ] || fail "creating a Debian chroot needs root" "run: sudo make fresh-deb"
./apt-packages.sh fresh
command -v sipp >/dev/null || ./apt-packages.sh test
asterisk=$(./asterisk.sh | tail -n 1)
mkdir -p "$cache/fresh"
work=$(mktemp -d "$cache/fresh/work.XXXXXX")
# All mounts are in a mount namespace of their own and end with it; --one-file-system protects other file systems.
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

make_base() { # SUITE FILE
    mirror=$(./apt-mirror.sh debian)
    [ -n "$mirror" ] || fail "no Debian mirror is configured in apt's sources" "set DEBIAN_MIRROR to one"
    watched "creating a minimal Debian ($1)" '^I: (Retrieving|Unpacking|Configuring) ' 200 debootstrap \
        --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$1" "$work/base" "$mirror"
    watched "caching it for the next run" "" "" tar --one-file-system -C "$work/base" -cf "$2.part" .
    mv "$2.part" "$2"
    rm -rf --one-file-system "$work/base"
}

# The machine's settings for its mirrors: pip, apt's proxies and date checks, certificates and name resolution.
copy_machine_settings() { # CHROOT
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    apt-config dump | grep -iE '^Acquire::([a-z]+::Proxy|Check-)' >"$1/etc/apt/apt.conf.d/80machine" || true
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$1$file"
    done
    mkdir -p "$1/usr/local/share/ca-certificates"
    cp -a /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"
    # apt's downloaded packages stay for the installation without network.
    mkdir -p "$1/etc/dpkg/dpkg.cfg.d"
    echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/80fresh"
    echo 'Binary::apt::APT::Keep-Downloaded-Packages "true";' >"$1/etc/apt/apt.conf.d/80keep"
}

passed_environment() { # one NAME=VALUE a line
    echo "BUILD_COMMIT=$(git -C "$root" rev-parse --short=12 HEAD)"
    env | grep -iE '^(PIP_[A-Z_]+|https?_proxy|no_proxy|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|JOBS|LLAMA_PROCESSORS)=' || true
}

# Runs a command in namespaces of its own, in which the chroot has /proc, /dev, /tmp and, with `cached`, the cache.
contained() { # CHROOT cached|bare [--net] COMMAND...
    inside=$1 with_cache=$2
    shift 2
    net=
    if [ "$1" = --net ]; then net=--net && shift; fi
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount --pid --fork --kill-child --propagation private $net sh -eu -c '
        inside=$1 with_cache=$2 cache=$3
        shift 3
        mount -t proc proc "$inside/proc"
        mount --rbind /dev "$inside/dev"
        mount -t tmpfs tmpfs "$inside/tmp"
        [ "$with_cache" = bare ] || { mkdir -p "$inside$cache" && mount --bind "$cache" "$inside$cache"; }
        ip link set lo up 2>/dev/null || true
        exec "$@"' fresh "$inside" "$with_cache" "$cache" "$@"
}

in_chroot() { # CHROOT cached|bare [--net] COMMAND...: with the machine's settings for downloads
    inside=$1 with_cache=$2 net=
    shift 2
    if [ "$1" = --net ]; then net=--net && shift; fi
    set -- HOME="$HOME" PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
    while IFS= read -r setting; do [ -z "$setting" ] || set -- "$setting" "$@"; done <<SETTINGS
$(passed_environment)
SETTINGS
    # shellcheck disable=SC2086  # no word or one
    contained "$inside" "$with_cache" $net chroot "$inside" env -i "$@"
}

build() { # RELEASE BASE
    builder=$work/builder-$1
    mkdir "$builder"
    watched "unpacking a Debian $1 to build in" "" "" tar -C "$builder" -xf "$2"
    copy_machine_settings "$builder"
    git clone --quiet --no-local "$root" "$builder/srv/trunkline"
    watched "installing make and python3 in it" '^(Get:|Setting up)' "" in_chroot "$builder" bare \
        sh -c 'apt-get update && apt-get install --yes --no-install-recommends make python3'
    say "==> make deb on Debian $1"
    in_chroot "$builder" cached make -C /srv/trunkline deb
    mkdir -p "$root/build"
    package=$(basename "$builder"/srv/trunkline/build/trunkline_*.deb)
    mv "$builder/srv/trunkline/build/$package" "$root/build/"
    rm -rf --one-file-system "$builder"
}

prove() { # RELEASE BASE: the package is $package
    target=$work/target-$1
    mkdir "$target"
    watched "unpacking a Debian $1 to install in" "" "" tar -C "$target" -xf "$2"
    copy_machine_settings "$target"
    cp "$root/build/$package" "$target/root/"
    first=$package
    if [ -n "${PREVIOUS:-}" ]; then
        first=previous.deb
        cp "$PREVIOUS"/trunkline_*~deb"$1"_"$architecture".deb "$target/root/$first"
    fi
    watched "downloading what the package depends on" '^Get:' "" in_chroot "$target" bare sh -c \
        "apt-get update && for each in $first $package; do
            apt-get install --yes --no-install-recommends --download-only /root/\$each; done"
    watched "installing it without network" '^(Unpacking|Setting up)' "" in_chroot "$target" bare --net sh -c \
        "apt-get install --yes --no-install-recommends /root/$first && ! command -v gcc"
    say "==> the service on Debian $1"
    contained "$target" bare --net python3 "$root/scripts/prove_service.py" "$target" "$asterisk"
    if [ "$first" != "$package" ]; then
        watched "upgrading it without network" '^(Unpacking|Setting up)' "" in_chroot "$target" bare --net \
            apt-get install --yes --no-install-recommends --reinstall "/root/$package"
        say "==> the service after the upgrade on Debian $1"
        contained "$target" bare --net python3 "$root/scripts/prove_service.py" "$target" "$asterisk" upgraded
    fi
    say "==> removal on Debian $1"
    in_chroot "$target" bare --net sh -eu -c "
        echo '# changed' >>/etc/trunkline/trunkline.toml
        dpkg --install /root/$package >/dev/null
        grep -q '^# changed' /etc/trunkline/trunkline.toml && echo '    an upgrade keeps changed settings'
        dpkg --remove trunkline
        test -s /var/lib/trunkline/trunkline.db && test -s /etc/trunkline/trunkline.toml && ! test -e /usr/lib/trunkline
        dpkg --install /root/$package >/dev/null
        trunkline org list | grep -q proof && echo '    after the next installation the data is there'
        dpkg --purge trunkline
        ! test -e /var/lib/trunkline && ! test -e /etc/trunkline && ! getent passwd trunkline
        echo '    a purge removes data, settings and user'"
    rm -rf --one-file-system "$target"
}

[ -z "$(git -C "$root" status --porcelain)" ] || say "    note: uncommitted changes are not included"
[ $# -gt 0 ] || set -- 12 13
for release in "$@"; do
    case $release in 12) suite=bookworm ;; 13) suite=trixie ;; *) fail "unknown release $release" "12 or 13" ;; esac
    base=$cache/fresh/debian-$release-minimal-$architecture.tar
    start_log "fresh-deb-$release"
    [ -f "$base" ] || make_base "$suite" "$base"
    if [ "${BUILT:-}" = 1 ]; then
        package=$(basename "$root"/build/trunkline_*~deb"$release"_"$architecture".deb)
    else
        build "$release" "$base"
    fi
    prove "$release" "$base"
    say "==> build/$package is proved on Debian $release"
done
