#!/bin/sh
# Installs the missing Debian packages of lists (scripts/packages-NAME.txt); prints nothing if none is missing.
# A name that ends with ? is optional: installed if the system's archive has it.
# usage: apt-packages.sh NAME...
# shellcheck disable=SC2086  # one word per package, and per word of $apt
set -eu
cd "$(dirname "$0")"
. ./progress.sh

wanted=$(for name in "$@"; do cat "packages-$name.txt"; done | sort -u)
needed=$(printf '%s\n' "$wanted" | grep -v '?$' || true)
optional=$(printf '%s\n' "$wanted" | sed -n 's/?$//p')
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $needed $optional 2>/dev/null | sed -n 's/^installed //p' | sort -u || true)

not_installed() { printf '%s\n' $1 | grep -vxF -e "$installed" || true; }
available() { for package in $1; do ! apt-cache policy "$package" | grep -q 'Candidate: [^(]' || echo "$package"; done; }

missing=$(not_installed "$needed")
[ -n "$missing" ] || missing=$(available "$(not_installed "$optional")")
[ -n "$missing" ] || exit 0

missing=$(printf '%s' "$missing" | tr '\n' ' ')
start_log apt
remedy="see $log; by hand, as root: apt-get update && apt-get install $missing"
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "Debian packages are missing and there is no sudo: $missing" "$remedy"
    as_root=sudo
    sudo true || fail "sudo was refused" "$remedy"
fi
# An unattended upgrade of a machine that has just started may hold the lock.
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300"

say "==> Debian packages: $missing"
watched "reading package lists" '^(Get|Hit)' "" $apt update
missing=$(printf '%s\n' $missing $(available "$(not_installed "$optional")") | sort -u | tr '\n' ' ')
planned=$($apt install --simulate --no-install-recommends $missing 2>/dev/null | grep -c '^Inst' || true)
# Each package is downloaded, unpacked and configured.
watched "installing $planned packages" '^(Get:|Unpacking|Setting up)' "$((3 * planned)) steps" $apt install --yes --no-install-recommends $missing
