#!/bin/sh
# Prints the path of the pjproject source to build: PJPROJECT=, with a warning if it is not the pinned one
# (pjproject.env), or the pinned tarball, which is downloaded into FOLDER once.
# usage: pjproject-source.sh FOLDER
set -eu
folder=$1
given=${PJPROJECT:+$(realpath -m "$PJPROJECT")}
cd "$(dirname "$0")"
. ./progress.sh
# shellcheck source=pjproject.env
. ./pjproject.env

hash_of() { sha256sum <"$1" | cut -c 1-64; }

if [ -n "$given" ]; then
    [ -e "$given" ] || fail "there is no pjproject source at $given" "check PJPROJECT="
    if [ -d "$given" ]; then
        say "    warning: $given is a tree, which is not compared with the pinned pjproject $pjproject_version" >&2
    elif [ "$(hash_of "$given")" != "$pjproject_sha256" ]; then
        say "    warning: $given is not the pinned pjproject $pjproject_version (its SHA-256 is $(hash_of "$given"), not" \
            "$pjproject_sha256); building it because PJPROJECT names it" >&2
    fi
    say "$given"
    exit 0
fi

pinned=$folder/pjproject-$pjproject_sha256.tar.xz
if [ -e "$pinned" ] && [ "$(hash_of "$pinned")" != "$pjproject_sha256" ]; then
    say "    $pinned is damaged: downloading it again" >&2
    rm -f "$pinned"
fi
if [ ! -e "$pinned" ]; then
    say "==> PJSIP: downloading the source of pjproject $pjproject_version" >&2
    start_log pjproject
    watched "downloading the source package's index and the tarball (about 20 MB)" '^Get' 3 \
        ./fetch-pjproject.sh "$pinned" >&2
fi
say "$pinned"
