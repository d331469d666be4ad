#!/bin/sh
# Installs Trunkline as a service, from a checkout that `make setup` has built.
# usage: install.sh [program | uninstall]    program: only the files of the program, for packages
# PREFIX=/usr/local   program in PREFIX/lib/trunkline, command in PREFIX/bin, unit in PREFIX/lib/systemd/system
# SYSCONFDIR=/etc     settings in SYSCONFDIR/trunkline
# DESTDIR=            a folder that stands for / (no user is created, no service is told)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/progress.sh
umask 022
mode=${1:-}
prefix=${PREFIX:-/usr/local} etc=${SYSCONFDIR:-/etc} dest=${DESTDIR:-}
lib=$prefix/lib/trunkline
unit=$prefix/lib/systemd/system/trunkline.service
data=/var/lib/trunkline
python=$root/.venv/bin/python

has_systemd() { [ -z "$dest" ] && [ -d /run/systemd/system ]; }

# The service's user must be able to read the interpreter.
check_python() {
    home=$("$python" -c 'import sys; print(sys.base_prefix)')
    case $home in
        /root | /root/* | /home/*)
            [ -n "$dest" ] || fail "the service cannot use the Python in $home, which is a user's own" \
                "rm -rf .venv; make setup install PYTHON=/usr/bin/python3"
            ;;
    esac
}

# Builds the program beside the installed one; `replace` puts it in its place.
build_program() {
    work=$dest$lib.new
    rm -rf "$work"
    mkdir -p "$work/pjsip" "$work/docs"
    "$("$python" -c 'import sys; print(sys._base_executable)')" -m venv --without-pip "$work/venv"
    site=$(echo "$work"/venv/lib/python3*/site-packages)
    packages=$("$python" scripts/copy_packages.py "$site" requirements.lock requirements-llama.lock)
    add_cluster_packages
    copy_pjsip
    copy_trunkline
    printf '#!%s/venv/bin/python -I\nimport sys\n\nfrom trunkline.cli.main import main\n\nsys.exit(main())\n' "$lib" \
        >"$work/venv/bin/trunkline"
    chmod 755 "$work/venv/bin/trunkline"
    rm -f "$work"/venv/bin/activate* "$work"/venv/bin/Activate*
    sed -i '/^command = /d' "$work/venv/pyvenv.cfg"
    for file in set-up.sh trunkline.toml; do filled_in "scripts/service/$file" >"$work/$file"; done
    chmod 755 "$work/set-up.sh"
    cp LICENSE CHANGELOG.md README.md "$work/"
    # .env of docs/how-to/cluster has the database's password.
    tar -C docs -cf - --exclude=.env . | tar -C "$work/docs" -xf - --no-same-owner
    chmod -R u+w,a+rX "$work"
    say "    $packages packages, $(du -sh "$work" | cut -f 1)"
}

# PostgreSQL and object stores. A checkout may lack these packages; then they are downloaded into the service alone.
add_cluster_packages() {
    if "$python" scripts/copy_packages.py "$site" requirements-cluster.lock >/dev/null 2>&1; then return; fi
    say "    downloading the packages for PostgreSQL and object stores"
    "$python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --require-hashes --upgrade \
        --root-user-action ignore --target "$site" -r requirements-cluster.lock && rm -rf "$site/bin" && return
    [ "$mode" != program ] || fail "the packages of requirements-cluster.lock are missing" "scripts/venv.sh cluster"
    say "    WITHOUT the packages for PostgreSQL and object stores, which could not be downloaded"
    say "    to add them: scripts/venv.sh cluster && sudo make install"
}

filled_in() { sed -e "s|@LIB@|$lib|g" -e "s|@ETC@|$etc|g" "$1"; }

# The libraries find each other wherever the folder is.
copy_pjsip() {
    pjsip=$(readlink -f build/pjsip)
    cp -P "$pjsip"/lib/*.so.* "$work/pjsip/"
    cp "$pjsip/VERSION" "$work/pjsip/"
    cp "$pjsip/python/pjsua2.py" "$pjsip/python/_pjsua2.so" "$site/"
    for library in "$work"/pjsip/*.so.*; do
        # shellcheck disable=SC2016  # the loader's own variable
        [ -L "$library" ] || patchelf --set-rpath '$ORIGIN' "$library"
    done
    # shellcheck disable=SC2016
    patchelf --set-rpath '$ORIGIN/../../../../pjsip' "$site/_pjsua2.so"
}

copy_trunkline() {
    suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    tar -cf - --exclude=__pycache__ --exclude='*.so' --exclude=sipcore/native \
        trunkline api calls sipcore models storage media config | tar -xf - --no-same-owner -C "$site"
    cp "sipcore/_native$suffix" "$site/sipcore/"
    # shellcheck disable=SC2016
    patchelf --set-rpath '$ORIGIN/../../../../../pjsip' "$site/sipcore/_native$suffix"
    commit=${BUILD_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
    [ -z "$commit" ] || [ -e "$site/trunkline/commit.txt" ] || echo "$commit" >"$site/trunkline/commit.txt"
    info=$("$python" -c 'from importlib.metadata import distribution; print(distribution("trunkline")._path)')
    mkdir "$site/$(basename "$info")"
    cp "$info/METADATA" "$site/$(basename "$info")/"
}

# A server loads modules and starts programs when it needs them first: one that runs must not find those of another
# version. It stops as `systemctl stop` does, once its live calls have ended.
stop_running() {
    [ -z "$dest" ] && has_systemd && systemctl --quiet is-active trunkline || return 0
    say "    stopping the running server, as soon as its live calls have ended"
    systemctl stop trunkline
    was_running=yes
}

# Modules are compiled in their final place.
replace() {
    rm -rf "$dest$lib.old"
    [ ! -e "$dest$lib" ] || mv "$dest$lib" "$dest$lib.old"
    mv "$dest$lib.new" "$dest$lib"
    rm -rf "$dest$lib.old"
    for package in trunkline api calls sipcore models storage media config; do
        "$python" -m compileall -q -s "$dest" -p / "$dest$lib"/venv/lib/python3*/site-packages/$package
    done
}

install_program() {
    command -v patchelf >/dev/null || fail "patchelf is missing" "apt-get install patchelf, or make install as root"
    check_python
    say "==> Trunkline in $dest$lib"
    mkdir -p "$dest$prefix/lib" "$dest$prefix/bin" "$dest$(dirname "$unit")" "$dest$etc/trunkline"
    build_program
    stop_running
    replace
    filled_in scripts/service/trunkline.sh >"$dest$prefix/bin/trunkline"
    chmod 755 "$dest$prefix/bin/trunkline"
    filled_in scripts/service/trunkline.service >"$dest$unit"
    [ -e "$dest$etc/trunkline/trunkline.toml" ] ||
        filled_in scripts/service/trunkline.toml >"$dest$etc/trunkline/trunkline.toml"
}

uninstall() {
    ! has_systemd || systemctl disable --now trunkline 2>/dev/null || true
    rm -rf "$dest$lib" "$dest$prefix/bin/trunkline" "$dest$unit"
    ! has_systemd || systemctl daemon-reload
    say "    removed: $dest$lib, $dest$prefix/bin/trunkline, $dest$unit"
    say "    kept: data in $dest$data, settings in $dest$etc/trunkline, the user trunkline"
    say "    to remove them, too: rm -rf --one-file-system $dest$data $dest$etc/trunkline; userdel trunkline"
}

case $mode in
    program) install_program ;;
    uninstall) uninstall ;;
    "")
        [ -n "$dest" ] || [ "$(id -u)" -eq 0 ] || fail "installing a service needs root" "run: sudo make install"
        install_program
        [ -z "$dest" ] || exit 0
        "$lib/set-up.sh" "$etc/trunkline"
        say "    settings: $etc/trunkline/trunkline.toml, data: $data"
        if has_systemd; then
            systemctl daemon-reload
            if [ -n "${was_running:-}" ]; then
                systemctl start trunkline
                say "    the server runs again"
            else
                say "    to start it, now and at each boot: systemctl enable --now trunkline"
            fi
        else
            say "    systemd does not run here; start the server with: trunkline serve"
        fi
        ;;
    *) fail "unknown argument $mode" "install.sh [program | uninstall]" ;;
esac
