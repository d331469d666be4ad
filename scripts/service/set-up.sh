#!/bin/sh
# Creates what the service needs beside its program: user, settings, data directory. Changes nothing that exists.
# usage: set-up.sh SETTINGS-FOLDER
set -eu
settings=$1
data=/var/lib/trunkline

getent group trunkline >/dev/null || groupadd --system trunkline
getent passwd trunkline >/dev/null || useradd --system --gid trunkline --home-dir "$data" --no-create-home \
    --shell /usr/sbin/nologin --comment "Trunkline telephone server" trunkline
[ -d "$data" ] || install -d -o trunkline -g trunkline -m 700 "$data"
# The settings may hold names of hosts and files that are not for everybody.
install -d -o root -g trunkline -m 750 "$settings"
for file in "$settings/trunkline.toml" "$settings/trunkline.env"; do
    if [ -e "$file" ] && [ "$(stat -c %G "$file")" = root ]; then
        chown root:trunkline "$file"
        chmod 640 "$file"
    fi
done
