#!/bin/sh
# Installs the Debian packages of the named lists (scripts/packages-NAME.txt) that are missing; silent when none is.
# usage: apt-packages.sh NAME...
# shellcheck disable=SC2086  # one word per package, and per word of $apt
set -eu
cd "$(dirname "$0")"
. ./progress.sh

wanted=$(for name in "$@"; do cat "packages-$name.txt"; done | sort -u)
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p' | sort -u || true)
missing=$(printf '%s\n' "$wanted" | grep -vxF -e "$installed" || true)
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
# The lock may be held by an unattended upgrade on a machine that has just started.
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300"

say "==> Debian packages: $missing"
watched "reading package lists" '^(Get|Hit)' "" $apt update
planned=$($apt install --simulate --no-install-recommends $missing 2>/dev/null | grep -c '^Inst' || true)
# Each package is fetched, unpacked and set up.
watched "installing $planned packages" '^(Get:|Unpacking|Setting up)' "$((3 * planned)) steps" $apt install --yes --no-install-recommends $missing
