#!/bin/sh
# Prints the address of the distribution's mirror that this machine's apt is set up with; prints nothing when it has none.
# DEBIAN_MIRROR= comes first.
# usage: apt-mirror.sh debian|ubuntu
set -eu
if [ -n "${DEBIAN_MIRROR:-}" ]; then
    echo "$DEBIAN_MIRROR"
    exit 0
fi
case $1 in debian) label=Debian ;; ubuntu) label=Ubuntu ;; *) exit 0 ;; esac
# shellcheck disable=SC2016  # apt's own variables
targets=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages')
# A label is known only once its lists have been read; before that, the address has to tell.
{
    printf '%s\n' "$targets" | sed -n "s/^$label //p"
    printf '%s\n' "$targets" | sed 's/.* //' | grep -E "/$1/?\$" || true
} | head -n 1
