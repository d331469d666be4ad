#!/bin/sh
# Builds or checks the dashboard with the packages of web/package-lock.json, which stay in the cache for each lock file.
# usage: web.sh build   web/static from web/src
#               check   style, types, that all texts are in web/src/texts, and that web/static is what web/src gives
#               lock    web/package-lock.json from web/package.json, with the hash of each package and no registry's name
set -eu
cd "$(dirname "$0")/.."
. scripts/progress.sh
node=$PWD/.venv/bin/node
npm="$PWD/.venv/bin/npm --no-audit --no-fund --omit-lockfile-registry-resolved"
remedy="see the log; check that npm reaches its registry, then run the same command again"

install_packages() {
    key=$(cat web/package.json web/package-lock.json | sha256sum | cut -c 1-16)
    cached=${XDG_CACHE_HOME:-$HOME/.cache}/trunkline/web-$key
    if [ ! -e "$cached/node_modules" ]; then
        start_log web
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        cp web/package.json web/package-lock.json "$work"
        # esbuild and biome come as packages of their own for each processor: no package runs a script.
        # shellcheck disable=SC2086  # one word per option
        watched "installing the packages of the dashboard" "" "" $npm --prefix "$work" ci --ignore-scripts
        mkdir -p "$cached"
        mv -T "$work/node_modules" "$cached/node_modules" 2>/dev/null || [ -e "$cached/node_modules" ]
    fi
    ln -sfn "$cached/node_modules" web/node_modules
}

make_types() {
    .venv/bin/python -c 'from api.routes import openapi_json; print(openapi_json().decode())' >web/src/api/openapi.json
    run openapi-typescript src/api/openapi.json --default-non-nullable=false --output src/api/schema.ts >/dev/null
    rm web/src/api/openapi.json
}

run() { # PROGRAM ARGUMENT...
    program=$1
    shift
    (cd web && PATH=$(dirname "$node"):$PATH "node_modules/.bin/$program" "$@")
}

case ${1:-} in
build)
    install_packages
    run biome check --write --log-level=warn src build.mjs check_texts.mjs
    (cd web && "$node" build.mjs static)
    ;;
check)
    install_packages
    make_types
    run biome check --error-on-warnings --log-level=warn src build.mjs check_texts.mjs
    "$node" web/check_texts.mjs
    run tsc
    (cd web && "$node" build.mjs ../build/web)
    diff -rq web/static build/web >&2 || fail "web/static is not what web/src gives" "make web"
    ;;
lock)
    # shellcheck disable=SC2086
    $npm --prefix web install --package-lock-only --ignore-scripts
    ;;
*)
    echo "usage: web.sh build | check | lock" >&2
    exit 2
    ;;
esac
