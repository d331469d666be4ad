#!/bin/sh
# The command `trunkline`, with the settings and as the user of the service. It uses neither if --config or
# TRUNKLINE_DATA_DIR names other ones.
set -eu
program=@LIB@/venv/bin/trunkline
settings=@ETC@/trunkline/trunkline.toml
environment=@ETC@/trunkline/trunkline.env
user=trunkline

# The variables that the unit has, unless they are set already: lines NAME=value or NAME="value".
read_environment() {
    [ -r "$environment" ] || return 0
    while IFS= read -r line || [ -n "$line" ]; do
        name=${line%%=*} value=${line#*=}
        case $line in TRUNKLINE_*=* | PG*=*) ;; *) continue ;; esac
        case $name in *[!A-Za-z0-9_]*) continue ;; esac
        case $value in '"'*'"' | "'"*"'") value=${value#?} value=${value%?} ;; esac
        printenv "$name" >/dev/null || export "$name=$value"
    done <"$environment"
}

[ -z "${TRUNKLINE_DATA_DIR:-}${_TRUNKLINE_COMPLETE:-}" ] || exec "$program" "$@"
for argument in "$@"; do
    case $argument in
        --config | --config=* | -h | --help | --version) exec "$program" "$@" ;;
    esac
done
case ${1:-} in '' | completion) exec "$program" "$@" ;; esac

read_environment
if [ "$(id -u)" = "$(id -u "$user")" ]; then
    exec "$program" --config "$settings" "$@"
elif [ "$(id -u)" -ne 0 ]; then
    echo "trunkline: the service's data belongs to the user $user: sudo trunkline $*" >&2
    exit 1
fi
case $1 in
    # Root's own files may be the source or the target; what is written to the data directory gets its owner.
    backup | restore) exec "$program" --config "$settings" "$@" ;;
    *) HOME=/var/lib/trunkline exec setpriv --reuid "$user" --regid "$user" --init-groups --bounding-set=-all \
        --no-new-privs "$program" --config "$settings" "$@" ;;
esac
