#!/bin/sh
# Prints the address of the distribution's mirror in this machine's apt settings, or nothing if there is none.
# DEBIAN_MIRROR= takes precedence.
# usage: apt-mirror.sh debian|ubuntu
set -eu
if [ -n "${DEBIAN_MIRROR:-}" ]; then
    echo "$DEBIAN_MIRROR"
    exit 0
fi
case $1 in debian) label=Debian ;; ubuntu) label=Ubuntu ;; *) exit 0 ;; esac
# shellcheck disable=SC2016  # apt's own variables
targets=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages')
# The label is known only after `apt-get update`; before that, the mirror is recognized by its address.
{
    printf '%s\n' "$targets" | sed -n "s/^$label //p"
    printf '%s\n' "$targets" | sed 's/.* //' | grep -E "/$1/?\$" || true
} | head -n 1
